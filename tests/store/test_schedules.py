"""Schedules are kept, edited by whoever read them last, and fired exactly once."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from chronos_runtime.errors import StoreError
from chronos_runtime.schedule import Fire, Firing
from tests.store.schedules import add, clock, fire, firing, new_schedule, read
from tests.store.world import World

HOUR = timedelta(hours=1)
ANCHOR = datetime(2027, 1, 1, tzinfo=UTC)


async def test_a_schedule_is_read_as_it_was_written(world: World) -> None:
    now = await clock(world)
    given = new_schedule(
        "every hour",
        cron=None,
        interval_s=3600.5,
        anchor_at=now,
        tz="Europe/Berlin",
        gap="skip",
        fold="both",
        starts_at=now,
        ends_at=now + HOUR,
        jitter_s=2.5,
        catch_up="all",
        catch_up_max=7,
        late_s=5.0,
        overlap="queue",
        topic="mail",
        priority=2,
        max_attempts=3,
        timeout_s=1.5,
        payload='{"name": "Ada"}',
        expect_success_within_s=60.0,
        expect_url="https://example.org/absent",
        origin="shop",
        digest="d",
        next_run_at=now + HOUR,
    )
    assert await world.store.schedules.add_schedules([given]) == {given.id}
    found = await read(world, "every hour")
    assert found.absent_at == found.created_at + timedelta(seconds=60)  # type: ignore[operator]
    changes = dict.fromkeys(("absent_at", "created_at", "updated_at"))
    assert msgspec.structs.replace(found, **changes) == given


@pytest.mark.parametrize("payload", ["null", "[null]", '"text"', "7"])
async def test_a_payload_is_any_json(world: World, payload: str) -> None:
    await add(world, payload=payload)
    assert (await read(world)).payload == payload


async def test_a_name_is_given_once(world: World) -> None:
    first = await add(world)
    again, other = new_schedule(), new_schedule("other")
    assert await world.store.schedules.add_schedules([again, other]) == {other.id}
    assert (await read(world)).id == first


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("schedules_has_one_timing", {"cron": None}),
        ("schedules_has_one_timing", {"interval_s": 5.0}),
        ("schedules_interval_is_positive", {"cron": None, "interval_s": 0.0}),
        ("schedules_anchor_has_interval", {"anchor_at": ANCHOR}),
        ("schedules_rules_are_known", {"overlap": "perhaps"}),
        ("schedules_rules_are_known", {"catch_up": "perhaps"}),
        ("schedules_rules_are_known", {"gap": "perhaps"}),
        ("schedules_bounds_hold", {"jitter_s": -1.0}),
        ("schedules_bounds_hold", {"catch_up_max": 0}),
        ("schedules_bounds_hold", {"expect_success_within_s": 0.0}),
        ("schedules_priority_in_range", {"priority": 10}),
        ("schedules_attempts_in_range", {"max_attempts": 0}),
        ("schedules_timeout_is_positive", {"timeout_s": 0.0}),
        ("schedules_names_fit", {"name": ""}),
        ("schedules_names_fit", {"topic": "*"}),
        ("schedules_names_fit", {"kind": "k" * 201}),
        ("schedules_status_is_known", {"status": "fired"}),
        ("schedules_status_is_known", {"status": "finished", "is_alarm": True}),
    ],
)
async def test_the_table_refuses_what_no_schedule_can_be(
    world: World, rule: str, changes: dict[str, Any]
) -> None:
    bad = new_schedule(**({"name": "bad"} | changes))
    with pytest.raises(StoreError, match=rule):
        await world.store.schedules.add_schedules([new_schedule("good"), bad])
    assert (await world.store.schedules.get_schedules(["good"]))[1] == []


async def test_an_edit_goes_through_once(world: World) -> None:
    await add(world, payload="[null]")
    before = await read(world)
    edited = msgspec.structs.replace(before, cron="0 4 * * *", payload="7")
    assert await world.store.schedules.edit_schedule(before, edited)
    after = await read(world)
    assert (after.cron, after.payload, after.version) == ("0 4 * * *", "7", 2)
    assert not await world.store.schedules.edit_schedule(before, edited)


async def test_an_edit_made_on_what_fired_meanwhile_is_refused(world: World) -> None:
    await add(world)
    before = await read(world)
    await fire(world)
    assert not await world.store.schedules.edit_schedule(before, before)
    assert (await read(world)).next_run_at != before.next_run_at


async def test_an_edit_does_not_touch_what_fires_left_behind(world: World) -> None:
    await add(world)
    await fire(world, missed=3)
    fired = await read(world)
    stale = msgspec.structs.replace(fired, skipped=0, last_job_id=None, last_fire_at=None)
    assert await world.store.schedules.edit_schedule(fired, stale)
    after = await read(world)
    assert (after.skipped, after.last_job_id) == (3, fired.last_job_id)
    assert after.last_fire_at == fired.last_fire_at


async def test_schedules_are_listed_by_name_page_by_page(world: World) -> None:
    for name in ("c", "a", "b"):
        await add(world, name)
    await add(world, "alarm", is_alarm=True)
    first = await world.store.schedules.list_schedules(
        is_alarm=False, statuses=None, after=("", UUID(int=0)), limit=2
    )
    assert [one.name for one in first] == ["a", "b"]
    rest = await world.store.schedules.list_schedules(
        is_alarm=False, statuses=["active"], after=(first[-1].name, first[-1].id), limit=2
    )
    assert [one.name for one in rest] == ["c"]
    alarms = await world.store.schedules.list_schedules(
        is_alarm=True, statuses=None, after=("", UUID(int=0)), limit=2
    )
    assert [one.name for one in alarms] == ["alarm"]


async def test_an_app_finds_what_its_code_made(world: World) -> None:
    await add(world, "b", origin="shop")
    await add(world, "a", origin="shop")
    await add(world, "other", origin="mail")
    await add(world, "by hand")
    assert [one.name for one in await world.store.schedules.list_origin("shop")] == ["a", "b"]


async def test_a_removed_schedule_leaves_its_fires(world: World) -> None:
    id = await add(world)
    await fire(world)
    assert await world.store.schedules.remove_schedules([id, uuid4()]) == {id}
    assert (await world.store.schedules.get_schedules(["nightly"]))[1] == []
    [job] = await world.claim()
    assert await world.finish(job)
    assert [one.state for one in await world.store.schedules.list_fires(id, 9)] == ["succeeded"]


async def test_what_is_due_is_told_the_most_overdue_first(world: World) -> None:
    await add(world, "late", due_s=-20)
    await add(world, "later", due_s=-50)
    await add(world, "next", due_s=50)
    await add(world, "far", due_s=500)
    await add(world, "paused", due_s=-90, paused=True)
    due = await world.store.schedules.list_due(10)
    assert [one.name for one in due.schedules] == ["later", "late"]
    assert due.next_due_s == pytest.approx(50, abs=5)
    assert abs(due.read_at - await clock(world)) < timedelta(seconds=5)
    assert [one.name for one in (await world.store.schedules.list_due(1)).schedules] == ["later"]


async def test_nothing_due_still_tells_the_time(world: World) -> None:
    due = await world.store.schedules.list_due(10)
    assert (due.schedules, due.next_due_s, due.has_queued) == ([], None, False)


async def test_a_fire_is_an_ordinary_job_that_knows_its_occurrence(world: World) -> None:
    id = await add(world, topic="mail", priority=2, max_attempts=3, timeout_s=4.0)
    schedule = await read(world)
    one = firing(schedule)
    result = await world.store.schedules.fire_schedules([one])
    assert result[id].occurrences == [schedule.next_run_at]
    [job] = await world.claim(topics=["mail"])
    assert (job.id, job.schedule_id, job.occurrence) == (
        one.fires[0].job_id,
        id,
        schedule.next_run_at,
    )
    assert (job.kind, job.priority, job.max_attempts, job.timeout_s) == ("greet", 2, 3, 4.0)
    record = await world.get(job.id)
    assert (record.schedule_id, record.payload) == (id, {"n": 1})
    after = await read(world)
    assert (after.last_job_id, after.last_occurrence) == (job.id, schedule.next_run_at)
    assert after.next_run_at == one.next_at
    assert after.version == 1


async def test_a_fire_with_jitter_waits_for_its_time(world: World) -> None:
    await add(world)
    schedule = await read(world)
    assert schedule.next_run_at is not None
    run_at = schedule.next_run_at + timedelta(seconds=60)
    given = Firing(schedule, [Fire(uuid4(), schedule.next_run_at, run_at, "null")], None)
    await world.store.schedules.fire_schedules([given])
    assert await world.claim() == []
    await world.pass_time(100)
    assert (await world.store.promote_jobs(9)).promoted == 1
    assert len(await world.claim()) == 1


async def test_a_firing_wins_once(world: World) -> None:
    await add(world)
    one = firing(await read(world))
    assert await world.store.schedules.fire_schedules([one])
    assert await world.store.schedules.fire_schedules([one]) == {}
    assert len(await world.claim()) == 1


@pytest.mark.parametrize("change", ["edit", "pause", "remove", "recreate", "end"])
async def test_whoever_changes_a_schedule_between_read_and_fire_wins(
    world: World, change: str
) -> None:
    store = world.store.schedules
    id = await add(world, is_alarm=True)
    one = firing(await read(world))
    if change in ("edit", "pause"):
        edited = msgspec.structs.replace(one.schedule, paused=change == "pause")
        assert await store.edit_schedule(one.schedule, edited)
    elif change == "end":
        assert await store.end_alarm(id, "cancelled")
    else:
        await store.remove_schedules([id])
        if change == "recreate":
            await add(world, next_run_at=one.schedule.next_run_at)
    assert await store.fire_schedules([one]) == {}
    assert await world.claim() == []


async def test_a_bad_fire_fails_the_batch_before_anything_is_written(world: World) -> None:
    await add(world, "good")
    await add(world, "bad")
    good, bad = firing(await read(world, "good")), firing(await read(world, "bad"))
    broken = [msgspec.structs.replace(bad.fires[0], payload="{")]
    with pytest.raises(StoreError):
        await world.store.schedules.fire_schedules(
            [good, msgspec.structs.replace(bad, fires=broken)]
        )
    assert await world.claim() == []
    assert (await read(world, "good")).next_run_at == good.schedule.next_run_at


async def test_several_missed_occurrences_fire_together_in_order(world: World) -> None:
    await add(world, due_s=-100)
    schedule = await read(world)
    assert schedule.next_run_at is not None
    occurrences = [schedule.next_run_at + timedelta(seconds=number) for number in range(3)]
    one = firing(schedule, *reversed(occurrences), missed=5)
    result = await world.store.schedules.fire_schedules([one])
    assert result[schedule.id].occurrences == occurrences
    assert [job.occurrence for job in await world.claim()] == occurrences
    assert (await read(world)).skipped == 5


async def test_a_schedule_without_a_next_occurrence_is_finished(world: World) -> None:
    await add(world)
    await fire(world, next_s=None)
    after = await read(world)
    assert (after.status, after.next_run_at) == ("finished", None)
    assert (await world.store.schedules.list_due(9)).schedules == []


async def test_skip_fires_nothing_while_a_fire_lives(world: World) -> None:
    await add(world, overlap="skip")
    first = await fire(world, next_s=1)
    assert len(first.occurrences) == 1
    second = await fire(world, next_s=1)
    assert (second.occurrences, second.skipped) == ([], 1)
    assert (await read(world)).skipped == 1
    [job] = await world.claim()
    await world.finish(job)
    third = await fire(world, next_s=1)
    assert len(third.occurrences) == 1


async def test_allow_lets_fires_live_side_by_side(world: World) -> None:
    await add(world)
    for _ in range(3):
        await fire(world, next_s=1)
    assert len(await world.claim()) == 3


async def test_queue_keeps_one_occurrence_waiting_until_the_living_one_ends(world: World) -> None:
    await add(world, overlap="queue")
    first = (await read(world)).next_run_at
    await fire(world, next_s=1)
    second = (await read(world)).next_run_at
    waits = await fire(world, next_s=1)
    assert (waits.occurrences, waits.skipped) == ([], 0)
    assert (await read(world)).queued_at == second
    third = (await read(world)).next_run_at
    skips = await fire(world, next_s=3_600)  # Nobody waits behind the one that waits.
    assert (skips.occurrences, skips.skipped) == ([], 1)
    assert (await read(world)).queued_at == second
    due = await world.store.schedules.list_due(9)
    assert (due.schedules, due.has_queued) == ([], True)
    [job] = await world.claim()
    assert job.occurrence == first
    await world.finish(job)
    [ready] = (await world.store.schedules.list_due(9)).schedules
    assert ready.queued_at == second
    one = firing(ready, second)  # type: ignore[arg-type]
    one = msgspec.structs.replace(one, next_at=ready.next_run_at)
    result = await world.store.schedules.fire_schedules([one])
    assert result[ready.id].occurrences == [second]
    after = await read(world)
    assert (after.queued_at, after.skipped) == (None, 1)
    assert third != second


async def test_a_queued_occurrence_goes_before_the_one_that_is_due(world: World) -> None:
    await add(world, overlap="queue")
    await fire(world, next_s=1)
    await fire(world, next_s=1)
    waiting, due = (await read(world)).queued_at, (await read(world)).next_run_at
    [job] = await world.claim()
    await world.finish(job)
    result = await fire(world)
    assert result.occurrences == [waiting]
    assert (await read(world)).queued_at == due


async def test_one_more_fire_may_be_had_at_any_time(world: World) -> None:
    store = world.store.schedules
    id = await add(world, due_s=500, overlap="skip", paused=True)
    before = await read(world)
    now = await clock(world)
    first, second = uuid4(), uuid4()
    assert await store.run_schedule(id, occurrence=now, job_id=first, payload="1") is False
    assert await store.run_schedule(id, occurrence=now, job_id=second, payload="2") is True
    assert await store.run_schedule(uuid4(), occurrence=now, job_id=first, payload="1") is None
    assert {job.id for job in await world.claim()} == {first, second}
    assert (await read(world)).next_run_at == before.next_run_at


async def test_a_schedule_that_cannot_be_fired_is_marked_and_left_alone(world: World) -> None:
    store = world.store.schedules
    await add(world, "bad")
    await add(world, "edited")
    bad, edited = await read(world, "bad"), await read(world, "edited")
    await store.edit_schedule(edited, edited)
    marked = await store.break_schedules([(bad, "no such zone"), (edited, "no such zone")])
    assert marked == {bad.id}
    after = await read(world, "bad")
    assert (after.status, after.broken_error, after.next_run_at) == ("broken", "no such zone", None)
    assert [one.name for one in (await store.list_due(9)).schedules] == ["edited"]


async def test_fires_are_listed_newest_occurrence_first(world: World) -> None:
    id = await add(world)
    for _ in range(4):
        await fire(world, next_s=1)
    jobs = await world.claim()
    await world.finish(jobs[0])
    await world.finish(jobs[1], "dead", error='{"type": "ValueError", "message": "boom"}')
    fires = await world.store.schedules.list_fires(id, 3)
    assert [one.id for one in fires] == [job.id for job in reversed(jobs[1:])]
    assert [one.state for one in fires] == ["running", "running", "dead"]
    assert fires[-1].error
    assert fires[-1].error["message"] == "boom"
    assert fires[0].late_s == pytest.approx(10, abs=10)
