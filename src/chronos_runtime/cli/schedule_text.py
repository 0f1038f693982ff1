"""How schedules, alarms and their fires look on a terminal, and to programs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from rich.text import Text

from chronos_runtime.cli.arguments import span_text
from chronos_runtime.cli.facts import clock, print_document, print_facts
from chronos_runtime.cli.masks import is_masked, masked
from chronos_runtime.cli.output import (
    Cell,
    Column,
    ago,
    clean,
    duration,
    print_json,
    print_table,
    say,
    state_text,
)
from chronos_runtime.errors import InputError
from chronos_runtime.schedule import FireRecord, Schedule
from chronos_runtime.timetable import Preview

_LIST_COLUMNS = (
    Column("NAME", is_whole=False),
    Column("TIMING", is_whole=False),
    Column("NEXT"),
    Column("LAST"),
    Column("FAILS", align="right"),
    Column("STATUS"),
)
_FIRE_COLUMNS = (
    Column("OCCURRENCE"),
    Column("LATE", align="right"),
    Column("STATE"),
    Column("TRY", align="right"),
    Column("FINISHED"),
    Column("JOB"),
)
_STATUS_STYLES = {
    "active": "green",
    "finished": "dim",
    "fired": "green",
    "cancelled": "dim",
    "broken": "bold red",
    "failed": "bold red",
    "absent": "bold red",
    "paused": "yellow",
}
_CLOCK = "%Y-%m-%d %H:%M:%S"


def after_of(text: str | None) -> Schedule | None:
    """Where the next page begins, from what the page before said: `NAME/ID`."""
    if text is None:
        return None
    name, _, id = text.rpartition("/")
    try:
        return Schedule(id=UUID(id), name=name, kind="any")
    except ValueError as error:
        raise InputError(f"after: {text!r} is not NAME/ID, as the page before said") from error


def next_of(page: Sequence[Schedule], limit: int) -> str | None:
    """What to give as `--after` for the next page; None: this was the last."""
    return f"{page[-1].name}/{page[-1].id}" if len(page) == limit else None


def as_document(schedule: Schedule) -> Mapping[str, Any]:
    """Every field, also where it keeps its default; the payload as the JSON it is."""
    return msgspec.structs.asdict(schedule) | {"payload": _payload(schedule)}


def _payload(schedule: Schedule) -> object:
    payload = msgspec.Raw(schedule.payload.encode())
    if not is_masked(schedule.kind):
        return payload
    return masked(schedule.kind, msgspec.json.decode(payload))


def as_fire_document(fire: FireRecord) -> Mapping[str, Any]:
    """A fire with how late it was."""
    return msgspec.structs.asdict(fire) | {"late_s": fire.late_s}


def print_page(page: Sequence[Schedule], noun: str, *, limit: int, is_json: bool) -> None:
    """One page of schedules or alarms, and where the next one begins."""
    following = next_of(page, limit)
    if is_json:
        print_json({noun: [as_document(one) for one in page], "next": following})
        return
    print_schedules(page, f"no {noun}")
    if following:
        say(f"more: --after {clean(following)!r}")


def print_schedules(schedules: Sequence[Schedule], nothing: str) -> None:
    """Many, a line each."""
    if not schedules:
        say(nothing)
        return
    print_table(_LIST_COLUMNS, [_cells(schedule) for schedule in schedules])


def _cells(schedule: Schedule) -> tuple[Cell, ...]:
    return (
        clean(schedule.name),
        timing_text(schedule),
        next_text(schedule),
        _last(schedule),
        str(schedule.consecutive_failures or ""),
        status_text(schedule),
    )


def next_text(schedule: Schedule) -> str:
    """How far its next fire is; empty where none is to come."""
    if schedule.paused or schedule.next_run_at is None:
        return ""
    return ago(schedule.next_run_at) if schedule.next_run_at > datetime.now(UTC) else "due"


def _last(schedule: Schedule) -> Text:
    if schedule.last_outcome is None:
        return Text("" if schedule.last_job_id is None else "under way", style="dim")
    last = state_text(clean(schedule.last_outcome))
    return last.append(f" {ago(schedule.last_ended_at)}") if schedule.last_ended_at else last


def timing_text(schedule: Schedule) -> str:
    """When it fires, in a few words."""
    if schedule.cron is not None:
        return clean(f"{schedule.cron} {schedule.tz}")
    if schedule.interval_s is not None:
        return f"every {span_text(schedule.interval_s)}"
    assert schedule.once_at is not None
    return f"at {schedule.once_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def status_text(schedule: Schedule) -> Text:
    """What matters first: that it is broken or over, then paused, then absent."""
    words: list[str] = [schedule.status] if schedule.status != "active" else []
    words += ["paused"] * schedule.paused + ["absent"] * schedule.is_absent
    return Text(" ").join(Text(word, _STATUS_STYLES.get(word, "")) for word in words or ["active"])


def print_schedule(schedule: Schedule) -> None:
    """One, with everything that is known about it."""
    print_facts([*_rules(schedule), *_standing(schedule)])
    print_document("payload", _payload(schedule))


def _rules(schedule: Schedule) -> Iterator[tuple[str, Cell]]:
    yield "name", clean(schedule.name)
    yield "id", str(schedule.id)
    yield "status", status_text(schedule)
    yield "timing", timing_text(schedule)
    if schedule.cron is not None:
        yield "clock turns", f"gap {schedule.gap}, fold {schedule.fold}"
    for name, at in {"starts": schedule.starts_at, "ends": schedule.ends_at}.items():
        if at is not None:
            yield name, clock(at)
    yield "kind", clean(schedule.kind)
    yield "topic", f"{clean(schedule.topic)}, priority {schedule.priority}"
    yield "attempts", str(schedule.max_attempts)
    if schedule.timeout_s is not None:
        yield "timeout", span_text(schedule.timeout_s)
    if schedule.jitter_s:
        yield "jitter", f"up to {span_text(schedule.jitter_s)}"
    most = f", at most {schedule.catch_up_max}" if schedule.catch_up == "all" else ""
    yield "catch-up", f"{schedule.catch_up}{most}"
    yield "overlap", schedule.overlap
    if schedule.expect_success_within_s is not None:
        yield "success", f"expected within {span_text(schedule.expect_success_within_s)}"
    if schedule.expect_url is not None:
        yield "or else wake", clean(schedule.expect_url)
    yield "made by", "hand" if schedule.origin is None else f"the code of {clean(schedule.origin)}"


def _standing(schedule: Schedule) -> Iterator[tuple[str, Cell]]:
    if schedule.broken_error is not None:
        yield "broken", Text(clean(schedule.broken_error), style="red")
    instants = {
        "next fire": schedule.next_run_at,
        "waiting": schedule.queued_at,
        "last fire": schedule.last_fire_at,
        "last end": schedule.last_ended_at,
        "last success": schedule.last_success_at,
    }
    for name, at in instants.items():
        if at is not None:
            yield name, clock(at)
    if schedule.last_job_id is not None:
        yield "last job", str(schedule.last_job_id)
    if schedule.last_outcome is not None:
        yield "last outcome", state_text(clean(schedule.last_outcome))
    if schedule.last_error is not None:
        yield "last error", Text(clean(schedule.last_error), style="red")
    yield "failures", f"{schedule.consecutive_failures} in a row"
    if schedule.skipped:
        yield "skipped", f"{schedule.skipped} occurrences"


def print_fires(fires: Sequence[FireRecord]) -> None:
    """Fires, a line each."""
    if not fires:
        say("no fires")
        return
    print_table(
        _FIRE_COLUMNS,
        [
            (
                f"{fire.occurrence.astimezone(UTC):{_CLOCK}}",
                duration(max(fire.late_s, 0.0)),
                state_text(fire.state),
                str(fire.attempt),
                "" if fire.finished_at is None else ago(fire.finished_at),
                str(fire.id),
            )
            for fire in fires
        ],
    )


def print_previews(previews: Sequence[Preview], tz: str) -> None:
    """Occurrences to come, on two clocks."""
    if not previews:
        say("no occurrence is to come")
        return
    columns = (Column("UTC"), Column(tz), Column("TURN"), Column("NOTE", is_whole=False))
    print_table(
        columns,
        [
            (
                f"{each.at:{_CLOCK}}",
                f"{each.wall:%a {_CLOCK} %Z}",
                Text(each.mark, style="bold yellow"),
                each.note,
            )
            for each in previews
        ],
    )
