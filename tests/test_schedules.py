"""The client's schedules: what is refused, what an edit means, and what each change leaves be."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from chronos_runtime import Chronos, Client, Job, MemoryStore
from chronos_runtime.errors import InputError, PayloadError, ScheduleNotFound, UnknownKind
from chronos_runtime.fires import firing_of
from chronos_runtime.schedule import Schedule
from tests.actors.bench import on_both_loops

pytestmark = on_both_loops

START = datetime(2027, 1, 15, 8, tzinfo=UTC)


class Report(msgspec.Struct):
    day: datetime


class Office:
    """A client with an app, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = START
        self.store = MemoryStore(clock=self._clock)
        app = Chronos()

        @app.handler("report", topic="office", priority=2, max_attempts=3)
        async def report(job: Job, payload: Report) -> None: ...

        @app.handler("greet")
        async def greet(job: Job, payload: Any) -> None: ...

        self.client = Client(self.store, app)
        self.schedules = self.client.schedules
        self.report = report

    def _clock(self) -> float:
        return self.now.timestamp()

    def pass_time(self, **how: float) -> None:
        self.now += timedelta(**how)

    async def fire(self) -> int:
        due = await self.store.schedules.list_due(100)
        firings = [firing_of(one, due.read_at) for one in due.schedules]
        fired = await self.store.schedules.fire_schedules(firings)
        return sum(len(one.occurrences) for one in fired.values())


async def test_what_is_left_out_comes_from_the_handler() -> None:
    office = Office()
    await office.schedules.add(
        "daily", office.report, {"day": "{{occurrence}}"}, cron="0 9 * * *", tz="Europe/Berlin"
    )
    schedule = await office.schedules.get("daily")
    assert (schedule.kind, schedule.topic, schedule.priority) == ("report", "office", 2)
    assert (schedule.max_attempts, schedule.status) == (3, "active")
    assert schedule.next_run_at == datetime(2027, 1, 16, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (InputError, "cron, every_s, at: give one", {}),
        (InputError, "cron, every_s: give one", {"cron": "@daily", "every_s": 5}),
        (InputError, "^cron:", {"cron": "often"}),
        (InputError, "^every_s:", {"every_s": 0}),
        (InputError, "^tz:", {"cron": "@daily", "tz": "Europe/Atlantis"}),
        (InputError, "^gap:", {"cron": "@daily", "gap": "x"}),
        (InputError, "^overlap:", {"cron": "@daily", "overlap": "x"}),
        (InputError, "^catch_up:", {"cron": "@daily", "catch_up": "x"}),
        (InputError, "^catch_up_max:", {"cron": "@daily", "catch_up_max": 0}),
        (InputError, "^jitter_s:", {"cron": "@daily", "jitter_s": -1}),
        (InputError, "^topic:", {"cron": "@daily", "topic": "*"}),
        (InputError, "^ends_at:", {"cron": "@daily", "ends_at": START}),
        (InputError, "^expect_url:", {"cron": "@daily", "expect_url": "https://example.org"}),
        (
            InputError,
            "^expect_url:",
            {"cron": "@daily", "expect_success_within_s": 9, "expect_url": "ftp://example.org"},
        ),
        (InputError, "^colour:", {"cron": "@daily", "colour": "red"}),
        (PayloadError, "payload of 'report'", {"cron": "@daily", "payload": {"day": "soon"}}),
        (UnknownKind, "^kind:", {"cron": "@daily", "kind": "unheard"}),
    ],
)
async def test_what_cannot_be_a_schedule_is_refused_before_anything_is_written(
    error: type[Exception], match: str, options: dict[str, Any]
) -> None:
    office = Office()
    given = {"kind": "report", "payload": {"day": "{{occurrence}}"}} | options
    with pytest.raises(error, match=match):
        await office.schedules.add("daily", **given)
    assert await office.schedules.list() == []


async def test_a_name_that_is_taken_is_refused() -> None:
    office = Office()
    await office.schedules.add("daily", "greet", cron="@daily")
    with pytest.raises(InputError, match=r"^name: 'daily' is taken"):
        await office.schedules.add("daily", "greet", cron="@daily")


@pytest.mark.parametrize("do", ["get", "edit", "pause", "resume", "remove", "run_now", "fires"])
async def test_a_name_nobody_bears_is_said_to_be_unknown(do: str) -> None:
    office = Office()
    act: Callable[[str], Any] = getattr(office.schedules, do)
    with pytest.raises(ScheduleNotFound, match="daily"):
        await act("daily")


async def test_an_edit_changes_what_it_names_and_nothing_else() -> None:
    office = Office()
    await office.schedules.add("daily", "greet", {"n": 1}, cron="@daily", overlap="skip")
    before = await office.schedules.get("daily")
    await office.schedules.edit("daily", priority=0)
    after = await office.schedules.get("daily")
    assert (after.priority, after.overlap, after.cron) == (0, "skip", "@daily")
    assert (after.payload, after.next_run_at) == (before.payload, before.next_run_at)


async def test_a_new_timing_takes_the_place_of_the_old_one_and_counts_from_now() -> None:
    office = Office()
    await office.schedules.add("daily", "greet", cron="@daily")
    office.pass_time(hours=1)
    await office.schedules.edit("daily", every_s=60)
    after = await office.schedules.get("daily")
    assert (after.cron, after.interval_s) == (None, 60)
    assert after.next_run_at == office.now + timedelta(minutes=1)
    await office.schedules.edit("daily", at=office.now + timedelta(hours=5))
    assert (await office.schedules.get("daily")).interval_s is None


async def test_an_edit_never_fires_an_occurrence_again() -> None:
    office = Office()
    await office.schedules.add("minutely", "greet", every_s=60)
    office.pass_time(seconds=60)
    store = office.store.schedules
    edit, fired = store.edit_schedule, 0

    async def edit_late(*what: Any, **how: Any) -> bool:
        nonlocal fired
        fired += await office.fire()  # Between the read and the write of the edit.
        return await edit(*what, **how)

    store.edit_schedule = edit_late  # type: ignore[method-assign]
    await office.schedules.edit("minutely", priority=0)
    assert fired == 1
    assert await office.fire() == 0
    assert (await office.schedules.get("minutely")).priority == 0


async def test_a_broken_schedule_is_mended_by_an_edit() -> None:
    office = Office()
    bad = Schedule(id=uuid4(), name="bad", kind="greet", cron="often", next_run_at=START)
    await office.store.schedules.add_schedules([bad])
    await office.store.schedules.break_schedules([(bad, "often is no cron")])
    await office.schedules.edit("bad", cron="@daily")
    mended = await office.schedules.get("bad")
    assert (mended.status, mended.broken_error) == ("active", None)
    assert mended.next_run_at == datetime(2027, 1, 16, tzinfo=UTC)


async def test_what_was_missed_while_paused_does_not_burst() -> None:
    office = Office()
    await office.schedules.add("minutely", "greet", every_s=60, catch_up="all")
    await office.schedules.pause("minutely")
    office.pass_time(hours=1)
    assert await office.fire() == 0
    await office.schedules.resume("minutely")
    assert await office.fire() == 0
    office.pass_time(seconds=60)
    assert await office.fire() == 1


async def test_one_added_paused_fires_nothing_before_it_is_resumed() -> None:
    office = Office()
    await office.schedules.add("late", "greet", at=START - timedelta(hours=1), paused=True)
    assert await office.fire() == 0
    await office.schedules.resume("late")
    assert await office.fire() == 1


async def test_a_single_instant_missed_while_paused_fires_when_it_is_resumed() -> None:
    office = Office()
    await office.schedules.add("once", "greet", at=START + timedelta(hours=1))
    await office.schedules.pause("once")
    office.pass_time(hours=2)
    await office.schedules.resume("once")
    assert await office.fire() == 1
    assert (await office.schedules.get("once")).status == "finished"


async def test_a_resumed_schedule_has_its_time_for_a_success_anew() -> None:
    office = Office()
    await office.schedules.add("daily", "greet", cron="@daily", expect_success_within_s=600)
    await office.schedules.pause("daily")
    office.pass_time(hours=1)
    await office.schedules.resume("daily")
    assert not (await office.store.schedules.list_due(9)).has_overdue
    office.pass_time(minutes=11)
    assert (await office.store.schedules.list_due(9)).has_overdue


async def test_one_more_fire_runs_now_with_its_placeholders_filled_in() -> None:
    office = Office()
    await office.schedules.add("daily", "report", {"day": "{{occurrence}}"}, cron="@daily")
    first = await office.schedules.run_now("daily")
    second = await office.schedules.run_now("daily")
    assert (first.overlaps, second.overlaps) == (False, True)
    record = await office.client.get(first.id)
    assert record.payload == {"day": START.isoformat()}
    fires = await office.schedules.fires("daily")
    assert {fire.id for fire in fires} == {first.id, second.id}
    assert record.occurrence == START


async def test_a_preview_shows_what_comes_and_what_clocks_do_to_it() -> None:
    office = Office()
    await office.schedules.add("night", "greet", cron="30 2 28 3 *", tz="Europe/Berlin")
    [one] = await office.schedules.preview("night", 1)
    assert (one.at, one.mark) == (datetime(2027, 3, 28, 1, tzinfo=UTC), "gap")


async def test_a_removed_schedule_made_again_fires_again() -> None:
    office = Office()
    at = START + timedelta(hours=1)
    await office.schedules.add("once", "greet", at=at)
    office.pass_time(hours=2)
    assert await office.fire() == 1
    await office.schedules.remove("once")
    await office.schedules.add("once", "greet", at=at)
    assert await office.fire() == 1
    assert len((await office.client.list()).jobs) == 2


async def test_a_client_without_an_app_takes_any_kind() -> None:
    client = Client(MemoryStore())
    await client.schedules.add("daily", "anything", [1], cron="@daily")
    [found] = await client.schedules.list(statuses=["active"])
    assert (found.kind, found.payload) == ("anything", "[1]")
    with pytest.raises(InputError, match="limit"):
        await client.schedules.list(limit=0)
