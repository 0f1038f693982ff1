"""What a caller's values must be. Each check names the field and says how to mend it."""

import sys
from datetime import UTC, datetime
from typing import TypeGuard

from chronos_runtime.errors import InputError
from chronos_runtime.job import PRIORITIES, TOPIC_ALL

NAME_MAX_BYTES = 200
KEY_MAX_BYTES = 1_000
MAX_ATTEMPTS_MAX = 1_000_000
DELAY_MAX_S = 366 * 24 * 3600.0  # No delay is longer than a year, whatever a backoff computes.
TIMEOUT_MIN_S = 0.001
RUN_AT_FIRST = datetime(2000, 1, 1, tzinfo=UTC)
RUN_AT_LAST = datetime(9999, 1, 1, tzinfo=UTC)


def checked_name(name: object, field: str) -> str:
    """`name`, once it can be a topic or a kind."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InputError(f"{field}: {name!r} must be a printable, non-empty string")
    if len(name.encode("utf-8", "replace")) > NAME_MAX_BYTES:
        raise InputError(f"{field}: longer than {NAME_MAX_BYTES} bytes")
    if field == "topic" and name == TOPIC_ALL:
        raise InputError(f"topic: {TOPIC_ALL!r} means all topics and cannot be one")
    return name


def checked_priority(priority: object) -> int:
    """`priority`, once it is one."""
    if not _is_whole(priority) or not 0 <= priority < PRIORITIES:
        raise InputError(f"priority: {priority!r} is not a whole number from 0 (first) to 9")
    return priority


def checked_max_attempts(max_attempts: object) -> int:
    """`max_attempts`, once it is a number of attempts."""
    if not _is_whole(max_attempts) or not 1 <= max_attempts <= MAX_ATTEMPTS_MAX:
        raise InputError(f"max_attempts: {max_attempts!r} is not from 1 to {MAX_ATTEMPTS_MAX}")
    return max_attempts


def checked_timeout(timeout_s: float | None) -> float | None:
    """`timeout_s`, once it is none or a time that a handler could run in."""
    if timeout_s is None:
        return None
    if (seconds := checked_delay(timeout_s, "timeout_s")) < TIMEOUT_MIN_S:
        raise InputError(f"timeout_s: below {TIMEOUT_MIN_S}; leave it out for no timeout")
    return seconds


def checked_delay(delay_s: object, field: str) -> float:
    """`delay_s`, once it is a finite number that is not negative, and at most a year."""
    if (
        not isinstance(delay_s, int | float)
        or isinstance(delay_s, bool)
        or not 0 <= delay_s <= sys.float_info.max  # Not NaN, and no integer beyond any float.
    ):
        raise InputError(f"{field}: {delay_s!r} is not a number of seconds >= 0")
    return min(float(delay_s), DELAY_MAX_S)


def checked_run_at(run_at: object) -> datetime | None:
    """`run_at`, once it is none or an instant with a time zone."""
    return None if run_at is None else checked_instant(run_at, "run_at")


def checked_instant(instant: object, field: str) -> datetime:
    """`instant`, once it has a time zone and lies where jobs can be."""
    if not isinstance(instant, datetime):
        raise InputError(f"{field}: {instant!r} is not a datetime")
    if instant.utcoffset() is None:
        raise InputError(
            f"{field}: has no time zone; use datetime.now(UTC) "
            "or attach one with .replace(tzinfo=…)"
        )
    if not RUN_AT_FIRST <= instant <= RUN_AT_LAST:
        raise InputError(f"{field}: {instant} is not between the years 2000 and 9999")
    return instant


def checked_key(key: object) -> str | None:
    """`key`, once it is none or text that fits an index."""
    if key is None:
        return None
    if not isinstance(key, str) or not key or "\x00" in key:
        raise InputError("key: must be a non-empty string without NUL characters")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InputError(f"key: {key!r} holds a lone surrogate") from error
    if size > KEY_MAX_BYTES:
        raise InputError(f"key: longer than {KEY_MAX_BYTES} bytes; hash it")
    return key


def checked_reference(reference: str) -> str:
    """`reference`, once it says where a secret is. It may be the secret: it is never repeated."""
    source, _, place = reference.partition(":")
    if source not in ("env", "file") or not place:
        raise InputError(
            "must be env:NAME or file:/path, a place to read the secret from, not the secret"
        )
    if source == "env" and place.startswith("CHRONOS_"):
        raise InputError(f"{place} starts with CHRONOS_, as only settings do; rename it")
    return reference


def checked_gate(topic: str) -> str:
    """`topic`, once it is one, or the name of all."""
    return topic if topic == TOPIC_ALL else checked_name(topic, "topic")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
