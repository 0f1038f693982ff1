"""What a due schedule fires, and what its jobs are told."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from chronos_runtime.errors import InputError
from chronos_runtime.fires import firing_of, first_run_at, render
from chronos_runtime.ids import fire_id
from chronos_runtime.schedule import Definition, Schedule

ID = UUID(int=7)
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


def minutely(**changes: Any) -> Schedule:
    """A schedule that was due at noon and every minute since."""
    plain: dict[str, Any] = {"cron": "* * * * *", "next_run_at": NOON}
    return Schedule(id=ID, name="minutely", kind="greet", **(plain | changes))


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def occurrences(schedule: Schedule, minutes: float) -> list[datetime]:
    return [fire.occurrence for fire in firing_of(schedule, at(minutes)).fires]


def test_a_fire_is_known_by_its_occurrence() -> None:
    [fire] = firing_of(minutely(), at(0.5)).fires
    assert fire.job_id == fire_id(ID, NOON)
    assert (fire.occurrence, fire.run_at) == (NOON, NOON)


def test_the_cursor_goes_beyond_now_and_what_is_missed_is_counted() -> None:
    firing = firing_of(minutely(), at(10.5))
    assert [fire.occurrence for fire in firing.fires] == [at(10)]
    assert (firing.next_at, firing.missed) == (at(11), 10)


def test_catch_up_all_fires_every_one() -> None:
    assert occurrences(minutely(catch_up="all"), 3.5) == [at(0), at(1), at(2), at(3)]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_only_the_newest_is_wanted_where_fires_must_not_overlap(overlap: Any) -> None:
    firing = firing_of(minutely(catch_up="all", overlap=overlap), at(3.5))
    assert [fire.occurrence for fire in firing.fires] == [at(3)]
    assert firing.missed == 3


def test_what_waits_goes_first() -> None:
    waiting = minutely(overlap="queue", queued_at=at(-5))
    assert occurrences(waiting, 0.5) == [at(-5), at(0)]


def test_what_waits_goes_alone_when_nothing_is_due_and_the_cursor_stays() -> None:
    firing = firing_of(minutely(overlap="queue", queued_at=at(-5)), at(-1))
    assert [fire.occurrence for fire in firing.fires] == [at(-5)]
    assert (firing.next_at, firing.missed) == (NOON, 0)


def test_a_single_instant_fires_once_and_has_no_next() -> None:
    firing = firing_of(minutely(cron=None, once_at=NOON), at(60))
    assert ([fire.occurrence for fire in firing.fires], firing.next_at) == ([NOON], None)


def test_a_snoozed_alarm_fires_at_an_instant_that_is_none_of_its_timetable() -> None:
    snoozed = minutely(cron="0 3 * * *", is_alarm=True)
    firing = firing_of(snoozed, at(1))
    assert [fire.occurrence for fire in firing.fires] == [NOON]
    assert firing.next_at == datetime(2027, 1, 16, 3, tzinfo=UTC)


def test_jitter_delays_the_job_and_not_the_occurrence() -> None:
    [fire] = firing_of(minutely(jitter_s=60.0), at(0.5)).fires
    assert fire.occurrence == NOON
    assert NOON < fire.run_at < at(1)


def test_a_schedule_begins_with_its_next_occurrence_a_single_instant_even_if_it_is_past() -> None:
    assert first_run_at(Definition(kind="k", cron="* * * * *"), NOON) == at(1)
    assert first_run_at(Definition(kind="k", interval_s=60.0), NOON) == at(1)
    assert first_run_at(Definition(kind="k", once_at=at(-9)), NOON) == at(-9)


def test_a_row_without_timing_is_refused() -> None:
    with pytest.raises(InputError, match="cron, every_s, at"):
        firing_of(minutely(cron=None), NOON)


@pytest.mark.parametrize(
    ("payload", "rendered"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ('"{{occurrence}}"', '"2027-01-15T12:00:00+00:00"'),
        ('["{{name}}", "on {{schedule_id}}!"]', f'["say \\"hi\\"", "on {ID}!"]'),
        ('"{{unknown}} {name}"', '"{{unknown}} {name}"'),
    ],
)
def test_placeholders_are_filled_in_and_nothing_else(payload: str, rendered: str) -> None:
    assert render(payload, name='say "hi"', id=ID, occurrence=NOON) == rendered
