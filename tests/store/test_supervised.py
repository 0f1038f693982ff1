"""A supervised task is never tried again by the queue: it fails, and its supervisor is told."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from chronos_runtime.errors import StoreError
from chronos_runtime.ids import new_job_id, new_job_ids
from chronos_runtime.job import Finish, Job
from chronos_runtime.lineage import fact_id
from chronos_runtime.store import JobRecord
from tests.store.schedules import add, clock, fire, read
from tests.store.world import FIRST, World, error_of, new_job

FACTS = "chronos.supervise.mail"


async def claim_facts(world: World) -> list[Job]:
    return await world.claim(topics=["chronos"], kinds=[FACTS])


async def fail(world: World, job: Job) -> None:
    assert await world.finish(job, "failed", error=error_of(world.worker, job))


async def fail_one(world: World, **changes: Any) -> UUID:
    """Enqueue a supervised task, claim it and let it fail."""
    job = await world.claim_one(supervisor="mail", **changes)
    await fail(world, job)
    return job.id


async def start(
    world: World, task: UUID, *, payload: str | None = None, delay_s: float = 0.0
) -> UUID:
    """Start the next attempt of a task; its id."""
    id = new_job_id()
    assert await world.store.start_attempt(task, id=id, payload=payload, delay_s=delay_s)
    return id


def link(record: JobRecord) -> tuple[object, ...]:
    return (record.retry_of, record.lineage_id, record.lineage_no)


async def test_a_plain_job_tells_nothing_of_a_line(world: World) -> None:
    job = await world.claim_one()
    assert (job.supervisor, job.retry_of, job.lineage_id, job.lineage_no) == (None, None, job.id, 1)
    assert (job.failed_state, job.is_last_attempt) == ("dead", False)
    record = await world.get(job.id)
    assert (record.supervisor, *link(record)) == (None, None, None, None)


async def test_a_claim_tells_who_supervises_and_which_attempt_it_is(world: World) -> None:
    job = await world.claim_one(supervisor='m"ä')
    assert (job.supervisor, job.retry_of, job.lineage_id, job.lineage_no) == (
        *('m"ä', None),
        *(job.id, 1),
    )
    assert (job.failed_state, job.is_last_attempt) == ("failed", True)
    await fail(world, job)
    second = await start(world, job.id)
    [again] = await world.claim()
    assert (again.id, again.supervisor, again.retry_of, again.lineage_id, again.lineage_no) == (
        *(second, 'm"ä'),
        *(job.id, job.id, 2),
    )


@pytest.mark.parametrize("count", [1, 3, 600], ids=["one", "some", "copied"])
async def test_supervised_and_plain_jobs_are_enqueued_together(world: World, count: int) -> None:
    jobs = [new_job(supervisor="mail" if number % 2 else None) for number in range(count)]
    assert set(await world.store.enqueue_jobs(jobs)) == {job.id for job in jobs}
    claimed = await world.claim()
    assert [job.supervisor for job in claimed] == [job.supervisor for job in jobs]


async def test_a_failure_is_told_to_the_supervisor_once(world: World) -> None:
    task = await world.claim_one(supervisor="mail")
    await fail(world, task)
    [fact] = await claim_facts(world)
    assert (fact.id, fact.topic) == (fact_id(task.id, task.attempt), "chronos")
    record = await world.get(fact.id)
    assert (record.payload, record.max_attempts) == ({"task": str(task.id)}, 20)
    assert not await world.finish(task, "failed"), "the claim is over"
    assert await claim_facts(world) == []
    ended = await world.get(task.id)
    assert (ended.state, ended.supervisor, ended.attempt) == ("failed", "mail", 1)
    assert ended.errors[-1]["message"] == "boom"


@pytest.mark.parametrize("state", ["succeeded", "cancelled", "dead"])
async def test_no_other_end_is_told(world: World, state: Any) -> None:
    await world.finish(await world.claim_one(supervisor="mail"), state)
    assert await claim_facts(world) == []


async def test_nobody_is_told_where_the_supervisor_is_nobody(world: World) -> None:
    job = await world.claim_one(supervisor="")
    assert (job.supervisor, job.failed_state) == ("", "failed")
    await fail(world, job)
    assert [one.id for one in await list_all(world)] == [job.id]


async def list_all(world: World, states: Any = None) -> list[JobRecord]:
    return await world.store.list_jobs(
        states=states, topic=None, kind=None, before=None, limit=1_000
    )


async def test_a_batch_tells_of_its_failures_and_no_others(world: World) -> None:
    await world.enqueue(3, supervisor="mail")
    await world.enqueue(3)
    jobs = await world.claim()
    ends: list[Any] = ["failed", "succeeded", "failed", "dead", "succeeded", "cancelled"]
    finishes = [Finish(job, state, 0.5) for job, state in zip(jobs, ends, strict=True)]
    assert len(await world.store.finish_jobs(finishes)) == 6
    facts = await claim_facts(world)
    assert [fact.id for fact in facts] == [fact_id(jobs[0].id, 1), fact_id(jobs[2].id, 1)]


async def test_a_lost_claim_tells_nothing(world: World) -> None:
    job = await world.claim_one(supervisor="mail")
    await world.lose_lease(job)
    assert not await world.finish(job, "failed")
    assert await claim_facts(world) == []


async def test_a_crash_runs_the_same_attempt_again(world: World) -> None:
    job = await world.claim_one(supervisor="mail", max_attempts=2)
    await world.lose_lease(job)
    assert (await world.get(job.id)).state == "ready"
    [again] = await world.claim()
    assert (again.id, again.attempt, again.lineage_no) == (job.id, 2, 1)
    await fail(world, again)
    [fact] = await claim_facts(world)
    assert fact.id == fact_id(job.id, 2)


async def test_a_task_that_crashes_every_worker_fails_and_is_told_of(world: World) -> None:
    job = await world.claim_one(supervisor="mail", max_attempts=1)
    plain = await world.claim_one(max_attempts=1)
    await world.pass_time(3_600)
    reaped = await world.store.reap_jobs(limit=10, after=FIRST)
    assert [(one.id, one.state) for one in reaped] == [(job.id, "failed"), (plain.id, "dead")]
    record = await world.get(job.id)
    assert (record.state, record.errors[-1]["type"]) == ("failed", "LeaseExpired")
    [fact] = await claim_facts(world)
    assert fact.id == fact_id(job.id, 1)


async def test_a_cancelled_task_is_nobodys_decision(world: World) -> None:
    asked = await world.claim_one(supervisor="mail", max_attempts=1)
    [waiting] = await world.enqueue(supervisor="mail")
    await world.store.cancel_jobs([asked.id, waiting])
    await world.pass_time(3_600)
    await world.store.reap_jobs(limit=10, after=FIRST)
    assert await world.states([asked.id, waiting]) == ["cancelled", "cancelled"]
    assert (await world.get(waiting)).supervisor == "mail"
    assert await claim_facts(world) == []


async def test_the_next_attempt_is_a_task_like_the_failed_one(world: World) -> None:
    changes = {"payload": '{"to": 7}', "priority": 3, "max_attempts": 4, "timeout_s": 9.0}
    first = await fail_one(world, **changes)
    second = await start(world, first)
    record = await world.get(second)
    assert (record.state, record.kind, record.topic, record.priority) == (
        *("ready", "greet"),
        *("default", 3),
    )
    assert (record.payload, record.max_attempts, record.timeout_s) == ({"to": 7}, 4, 9.0)
    assert (record.attempt, record.errors, record.supervisor) == (0, [], "mail")
    assert link(record) == (first, first, 2)
    assert (await world.get(first)).state == "failed", "an attempt that failed stays failed"


async def test_the_next_attempt_may_wait_and_carry_another_payload(world: World) -> None:
    first = await fail_one(world)
    second = await start(world, first, payload='{"by": "post"}', delay_s=150.0)
    record = await world.get(second)
    assert (record.state, record.payload) == ("scheduled", {"by": "post"})
    assert (record.run_at - record.enqueued_at) == timedelta(seconds=150)
    await world.pass_time(200)
    assert (await world.store.promote_jobs(10)).promoted == 1


async def test_only_a_failed_task_has_a_next_attempt(world: World) -> None:
    dead = await world.make_dead(supervisor="mail")
    [live] = await world.enqueue(supervisor="mail")
    for id in (dead, live, new_job_id()):
        assert not await world.store.start_attempt(id, id=new_job_id(), payload=None, delay_s=0.0)


async def test_a_payload_that_is_no_json_starts_nothing(world: World) -> None:
    first = await fail_one(world)
    with pytest.raises(StoreError):
        await start(world, first, payload="{")
    assert len(await world.store.list_lineage(first, 10)) == 1


async def test_the_unique_key_goes_along_while_it_is_free(world: World) -> None:
    first = await fail_one(world, unique_key="k")
    second = await start(world, first)
    assert await world.store.find_unique(["k"]) == {"k": second}


async def test_an_attempt_goes_without_the_key_that_another_bears(world: World) -> None:
    first = await fail_one(world, unique_key="k")
    [other] = await world.enqueue(unique_key="k")
    second = await start(world, first)
    assert (await world.get(second)).unique_key is None
    assert await world.store.find_unique(["k"]) == {"k": other}


async def test_a_line_is_read_by_any_of_its_attempts(world: World) -> None:
    first = await fail_one(world)
    line = [first]
    for _ in range(3):
        line.append(await start(world, line[-1]))
        [job] = await world.claim()
        if len(line) < 4:
            await fail(world, job)
    await fail_one(world)
    for id in line:
        found = await world.store.list_lineage(id, 10)
        assert [one.id for one in found] == line
        assert [one.lineage_no for one in found] == [None, 2, 3, 4]
        assert [one.retry_of for one in found] == [None, *line[:3]]
        assert [one.state for one in found] == ["failed"] * 3 + ["running"]
    assert [one.id for one in await world.store.list_lineage(first, 2)] == line[:2]


async def test_two_attempts_after_one_failure_stand_in_the_order_of_their_ids(world: World) -> None:
    first = await fail_one(world)
    earlier, later = new_job_ids(2)
    for id in (later, earlier):
        assert await world.store.start_attempt(first, id=id, payload=None, delay_s=0.0)
    found = await world.store.list_lineage(first, 10)
    assert [one.id for one in found] == [first, earlier, later]


async def test_a_plain_job_is_a_line_of_one(world: World) -> None:
    [id] = await world.enqueue()
    assert [one.id for one in await world.store.list_lineage(id, 10)] == [id]
    assert await world.store.list_lineage(new_job_id(), 10) == []


async def test_a_job_that_bears_the_id_of_an_attempt_again_is_not_of_its_line(world: World) -> None:
    first = await fail_one(world)
    second = await start(world, first)
    [job] = await world.claim(room=1)
    assert await world.finish(job)
    await world.store.enqueue_jobs([new_job(id=second)])
    assert [one.id for one in await world.store.list_lineage(first, 10)] == [first, second]


async def test_an_escalated_task_stands_with_the_dead_letters(world: World) -> None:
    failed, other = await fail_one(world), await world.make_dead()
    assert await world.store.escalate_jobs([failed, other]) == {failed}
    assert {one.id for one in await list_all(world, ["dead"])} == {failed, other}
    assert await world.store.escalate_jobs([failed]) == set()


async def test_a_revived_task_is_supervised_as_before(world: World) -> None:
    first = await fail_one(world)
    second = await start(world, first)
    [job] = await world.claim()
    await fail(world, job)
    assert len(await claim_facts(world)) == 2
    assert await world.store.retry_jobs([second]) == set(), "a failed task is the supervisor's"
    await world.store.escalate_jobs([second])
    assert await world.store.retry_jobs([second]) == {second}
    [again] = await world.claim()
    assert (again.attempt, again.supervisor, again.retry_of, again.lineage_no) == (
        *(2, "mail"),
        *(first, 2),
    )
    await fail(world, again)
    [fact] = await claim_facts(world)
    assert fact.id == fact_id(second, 2), "another failure, another fact"


async def test_the_line_survives_a_snooze_and_a_cancel_in_between(world: World) -> None:
    first = await fail_one(world)
    second = await start(world, first)
    [job] = await world.claim()
    assert await world.give_back(job, "snooze", delay_s=0.0) == "ready"
    [job] = await world.claim()
    assert (job.id, job.attempt, job.lineage_no) == (second, 1, 2)
    await world.store.cancel_jobs([second])
    assert await world.give_back(job) == "cancelled"
    assert link(await world.get(second)) == (first, first, 2)


async def test_failed_tasks_are_listed_and_counted_as_such(world: World) -> None:
    failed = await fail_one(world)
    await world.make_dead()
    await world.finish(await world.claim_one())
    assert [one.id for one in await list_all(world, ["failed"])] == [failed]
    assert len(await list_all(world, ["succeeded"])) == 1
    counts = await world.store.count_history(9)
    assert (counts.dead, counts.failed, counts.cancelled) == (1, 1, 0)


async def test_a_fire_of_a_supervised_schedule_is_supervised(world: World) -> None:
    await add(world, supervisor="mail")
    await fire(world)
    [job] = await world.claim()
    assert job.supervisor == "mail"
    await fail(world, job)
    after = await read(world)
    assert (after.last_outcome, after.consecutive_failures) == ("failed", 1)
    second = await start(world, job.id)
    [again] = await world.claim()
    assert (again.id, again.schedule_id, again.occurrence) == (
        *(second, job.schedule_id),
        job.occurrence,
    )
    await world.finish(again)
    after = await read(world)
    assert (after.last_outcome, after.consecutive_failures) == ("succeeded", 0)


async def test_run_now_of_a_supervised_schedule_is_supervised(world: World) -> None:
    schedule = await add(world, supervisor="mail")
    id = new_job_id()
    await world.store.schedules.run_schedule(
        schedule, occurrence=await clock(world), job_id=id, payload="{}"
    )
    assert (await world.get(id)).supervisor == "mail"


async def test_a_name_too_long_for_a_kind_is_refused(world: World) -> None:
    with pytest.raises(StoreError, match="supervisor_fits"):
        await world.enqueue(supervisor="x" * 181)
    await world.enqueue(supervisor="x" * 180)


async def test_an_edit_changes_who_supervises(world: World) -> None:
    await add(world, due_s=60)
    before = await read(world)
    edited = msgspec.structs.replace(before, supervisor="mail")
    assert await world.store.schedules.edit_schedule(before, edited)
    assert (await read(world)).supervisor == "mail"
