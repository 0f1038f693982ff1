"""From what a caller says about a schedule to a checked definition, and what tells two apart."""

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Protocol, TypedDict, Unpack, get_args
from uuid import UUID

import msgspec

from chronos_runtime.attempts import checked_supervisor
from chronos_runtime.checks import (
    checked_delay,
    checked_max_attempts,
    checked_name,
    checked_priority,
    checked_timeout,
)
from chronos_runtime.errors import InputError
from chronos_runtime.fires import render, timetable_of
from chronos_runtime.payload import encode_payload
from chronos_runtime.processors.targets import Target
from chronos_runtime.schedule import CatchUp, Definition, Fold, Gap, Overlap
from chronos_runtime.timetable import checked_catch_up_max

_SAMPLE = datetime(2027, 1, 15, 8, tzinfo=UTC)  # An occurrence like any other, to check with.
# What the caller calls the fields of a timetable.
_FIELDS = {"expression": "cron", "interval_s": "every_s", "instant": "at", "at": "at"}
TIMINGS = frozenset(
    "cron interval_s once_at anchor_at tz gap fold starts_at ends_at".split()  # noqa: SIM905
)
"""The fields of a definition that decide when it fires."""


class Rules(Protocol):
    """What goes for the jobs of a kind."""

    @property
    def topic(self) -> str:
        """Which queue."""

    @property
    def priority(self) -> int:
        """How urgent."""

    @property
    def max_attempts(self) -> int:
        """How often it is tried."""

    @property
    def supervisor(self) -> str | None:
        """Who decides after a failed attempt; None: the queue."""

    @property
    def decode(self) -> Callable[[str | bytes], Any] | None:
        """How the handler reads a payload; None: nobody knows."""


class ScheduleOptions(TypedDict, total=False):
    """What may be said about a schedule. One of `cron`, `every_s`, `at` must be."""

    cron: str
    every_s: float
    at: datetime
    anchor: datetime
    tz: str
    gap: Gap
    fold: Fold
    starts_at: datetime | None
    ends_at: datetime | None
    jitter_s: float
    catch_up: CatchUp
    catch_up_max: int
    late_s: float
    overlap: Overlap
    topic: str
    priority: int
    max_attempts: int
    timeout_s: float | None
    supervisor: str | None
    expect_success_within_s: float | None
    expect_url: str | None


def define_schedule(
    name: str, kind: str, payload: object, rules: Rules, **options: Unpack[ScheduleOptions]
) -> Definition:
    """A checked definition. What is left out comes from the kind's handler.

    >>> from chronos_runtime.processors.wake_payload import wake_rules
    >>> body = {"url": "https://example.org"}
    >>> define_schedule("w", "chronos.wake", body, wake_rules(), cron="@daily").topic
    'chronos'
    """
    plain = Definition(
        kind=kind,
        topic=rules.topic,
        priority=rules.priority,
        max_attempts=rules.max_attempts,
        supervisor=rules.supervisor,
    )
    return change_definition(name, plain, rules, payload=payload, **options)


def change_definition(
    name: str,
    definition: Definition,
    rules: Rules,
    *,
    payload: object = msgspec.UNSET,
    **options: Unpack[ScheduleOptions],
) -> Definition:
    """The definition with these options, checked. A new timing takes the place of the old one."""
    changes: dict[str, Any] = dict(options)
    timings = {"cron": "cron", "every_s": "interval_s", "at": "once_at"}
    if given := timings.keys() & changes.keys():
        if len(given) > 1:
            raise InputError(f"{', '.join(sorted(given))}: give one of them")
        [chosen] = given
        value = changes.pop(chosen)
        changes |= dict.fromkeys(timings.values()) | {timings[chosen]: value}
        changes.setdefault("anchor", None)
    if "anchor" in changes:
        changes["anchor_at"] = changes.pop("anchor")
    if unknown := changes.keys() - set(Definition.__struct_fields__):
        raise InputError(f"{', '.join(sorted(unknown))}: no schedule has such an option")
    changed = msgspec.structs.replace(definition, **changes)
    if payload is not msgspec.UNSET:
        text = encode_payload(changed.kind, payload, _check_of(name, rules))
        changed = msgspec.structs.replace(changed, payload=text)
    _check(changed)
    return changed


def _check_of(name: str, rules: Rules) -> Callable[[bytes], object] | None:
    """How the handler will read the payload, once its placeholders are filled in."""
    decode = rules.decode
    if decode is None:
        return None
    return lambda data: decode(render(data.decode(), name=name, id=UUID(int=0), occurrence=_SAMPLE))


def _check(definition: Definition) -> None:
    try:
        timetable_of(definition)
    except InputError as error:
        field, colon, text = str(error).partition(":")
        raise InputError(f"{_FIELDS.get(field, field)}{colon}{text}") from error
    for field, values in {"overlap": Overlap, "catch_up": CatchUp}.items():
        if (given := getattr(definition, field)) not in get_args(values):
            raise InputError(f"{field}: {given!r} is none of {', '.join(get_args(values))}")
    checked_name(definition.topic, "topic")
    checked_priority(definition.priority)
    checked_max_attempts(definition.max_attempts)
    checked_timeout(definition.timeout_s)
    if definition.supervisor is not None:
        checked_supervisor(definition.supervisor)
    checked_catch_up_max(definition.catch_up_max)
    checked_delay(definition.jitter_s, "jitter_s")
    checked_delay(definition.late_s, "late_s")
    within_s = definition.expect_success_within_s
    if within_s is not None and checked_delay(within_s, "expect_success_within_s") <= 0:
        raise InputError("expect_success_within_s: must be more than 0, or left out")
    if definition.expect_url is not None:
        Target.of(definition.expect_url, "expect_url")
        if within_s is None:
            raise InputError("expect_url: give expect_success_within_s too; it says when to tell")


def digest_of(definition: Definition) -> str:
    """What tells two definitions apart. A field that keeps its default does not count, so a newer
    program that knows more fields comes to the same.

    >>> digest_of(Definition(kind="k", cron="@daily")) == digest_of(
    ...     Definition(kind="k", cron="@daily", overlap="allow")
    ... )
    True
    """
    return blake2b(msgspec.json.encode(definition), digest_size=16).hexdigest()
