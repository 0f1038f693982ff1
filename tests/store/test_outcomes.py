"""How a claim ends: written once, by its owner, or not at all."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from chronos_runtime.errors import StoreError
from chronos_runtime.job import Finish, Job, Return, Successes
from chronos_runtime.store import Claimed
from tests.store.world import World, claimed, error_of

Write = Callable[[World, Job], Awaitable[object]]


async def _finish(world: World, job: Job) -> object:
    return await world.store.finish_jobs([Finish(job, "succeeded", 0.5)])


async def _return(world: World, job: Job) -> object:
    return await world.store.return_jobs([Return(job, "retry", delay_s=5.0)])


async def _extend(world: World, job: Job) -> object:
    return await world.store.extend_leases([claimed(job)], 1e6)


every_write = pytest.mark.parametrize("write", [_finish, _return, _extend])


async def _verdict(world: World, job: Job) -> str:
    checks = await world.store.verify_claims([claimed(job)], world.worker.name)
    leases = await world.store.verify_leases([claimed(job)], world.worker.name)
    assert checks == leases
    return checks[job.id].verdict


@pytest.mark.parametrize("state", ["succeeded", "dead", "cancelled"])
async def test_a_finished_job_stands_in_the_history_with_all_that_is_known(
    world: World, state: Any
) -> None:
    job = await world.claim_one(
        topic="mail", priority=2, payload='{"a": 1}', max_attempts=3, timeout_s=2.5, unique_key="k"
    )
    before = await world.get(job.id)
    assert await world.finish(job, state, result='{"b": 2}', error=error_of(world.worker, job))
    after = await world.get(job.id)
    for field in ("topic", "kind", "priority", "payload", "max_attempts", "timeout_s", "attempt"):
        assert getattr(after, field) == getattr(before, field)
    assert (after.state, after.unique_key, after.lease_token) == (state, "k", job.lease_token)
    assert (after.run_at, after.enqueued_at) == (before.run_at, before.enqueued_at)
    assert (after.result, after.run_s, after.lease_until) == ({"b": 2}, 0.5, None)
    assert after.finished_at is not None
    assert after.finished_at >= after.enqueued_at
    [error] = after.errors
    assert error["message"] == "boom"
    assert error["at"]


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "backwards"])
async def test_many_jobs_finish_at_once_each_with_its_own_outcome(world: World, step: int) -> None:
    await world.enqueue(300)
    jobs = (await world.claim())[::step]
    finishes = [
        Finish(job, "succeeded" if number % 2 else "dead", float(number), result=str(number))
        for number, job in enumerate(jobs)
    ]
    assert sorted(await world.store.finish_jobs(finishes)) == sorted(job.id for job in jobs)
    records = await world.store.get_jobs([job.id for job in jobs])
    for finish in finishes:
        record = records[finish.job.id]
        assert (record.state, record.result) == (finish.state, int(finish.run_s))
    assert len(await world.store.finish_jobs([])) == 0


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "backwards"])
async def test_plain_finishes_in_columns_are_written_each_with_its_own_time(
    world: World, step: int
) -> None:
    await world.enqueue(300)
    jobs = (await world.claim())[::step]
    lost, held = jobs[:1], jobs[1:]
    assert await world.finish(lost[0])
    run_s = [float(number) for number in range(300)]
    written = await world.store.finish_jobs(Successes(jobs, run_s))
    assert sorted(written) == sorted(job.id for job in held)
    records = await world.store.get_jobs([job.id for job in jobs])
    for job, its_run_s in list(zip(jobs, run_s, strict=True))[1:]:
        record = records[job.id]
        assert (record.state, record.result, record.run_s) == ("succeeded", None, its_run_s)
    assert len(await world.store.finish_jobs(Successes([], []))) == 0


@pytest.mark.parametrize("is_mixed", [False, True], ids=["one after another", "mixed"])
async def test_jobs_of_several_claims_finish_in_one_write(world: World, is_mixed: bool) -> None:
    await world.enqueue(9)
    claims = [await world.claim(room=3) for _ in range(3)]
    order = zip(*claims, strict=True) if is_mixed else claims
    jobs = [job for some in order for job in some]
    assert len(await world.store.finish_jobs(Successes(jobs, [0.5] * 9))) == 9


@pytest.mark.parametrize(
    "odd",
    [{"state": "dead"}, {"result": "7"}, {"error": '{"message": "boom"}'}],
    ids=["state", "result", "error"],
)
async def test_one_that_differs_in_one_thing_is_written_so_among_plain_successes(
    world: World, odd: dict[str, Any]
) -> None:
    await world.enqueue(3)
    jobs = await world.claim()
    plain: dict[str, Any] = {"state": "succeeded", "run_s": 0.5}
    changes: list[dict[str, Any]] = [plain, plain | odd, plain]
    pairs = list(zip(jobs, changes, strict=True))
    await world.store.finish_jobs([Finish(job, **change) for job, change in pairs])
    for job, change in pairs:
        after = await world.get(job.id)
        assert after.state == change["state"]
        assert after.result == (7 if "result" in change else None)
        assert [error["message"] for error in after.errors] == ["boom"] * ("error" in change)


async def test_finishing_twice_writes_once_and_the_second_look_says_applied(world: World) -> None:
    job = await world.claim_one()
    assert await _verdict(world, job) == "owned"
    assert await world.finish(job)
    assert not await world.finish(job)
    assert await _verdict(world, job) == "applied"
    assert (
        len(await world.store.list_jobs(states=None, topic=None, kind=None, before=None, limit=9))
        == 1
    )


@pytest.mark.parametrize(
    ("why", "delay_s", "state", "attempt"),
    [
        ("retry", 60.0, "scheduled", 1),
        ("retry", 0.0, "ready", 1),
        ("snooze", 60.0, "scheduled", 0),
        ("release", None, "ready", 0),
        ("interrupt", None, "ready", 1),
    ],
)
async def test_a_returned_job_waits_again(
    world: World, why: str, delay_s: float | None, state: str, attempt: int
) -> None:
    job = await world.claim_one()
    before = await world.get(job.id)
    assert await world.give_back(job, why, delay_s=delay_s) == state
    after = await world.get(job.id)
    assert (after.state, after.attempt) == (state, attempt)
    assert (after.lease_token, after.lease_until, after.errors) == (None, None, [])
    if delay_s is None:
        assert after.run_at == before.run_at, "as due as it was"
    else:
        assert after.run_at >= before.run_at + timedelta(seconds=delay_s)


async def test_a_retry_leaves_its_error_and_the_second_look_says_applied(world: World) -> None:
    job = await world.claim_one()
    error = error_of(world.worker, job)
    assert await world.give_back(job, "retry", delay_s=60.0, error=error) == "scheduled"
    assert (await world.get(job.id)).errors[0]["message"] == "boom"
    assert await world.give_back(job, "retry", delay_s=60.0, error=error) is None
    assert await _verdict(world, job) == "applied"
    assert len((await world.get(job.id)).errors) == 1


async def test_after_giving_an_attempt_back_the_second_look_says_applied(world: World) -> None:
    job = await world.claim_one()
    assert await world.give_back(job, "snooze", delay_s=60.0) == "scheduled"
    assert await _verdict(world, job) == "applied"


async def test_many_jobs_return_at_once_each_in_its_own_way(world: World) -> None:
    await world.enqueue(100)
    jobs = await world.claim()
    returns = [
        Return(job, "retry", delay_s=60.0, error=error_of(world.worker, job, str(number)))
        if number % 2
        else Return(job, "release")
        for number, job in enumerate(jobs)
    ]
    returned = await world.store.return_jobs(returns)
    records = await world.store.get_jobs([job.id for job in jobs])
    for number, job in enumerate(jobs):
        record, is_retry = records[job.id], bool(number % 2)
        assert returned[job.id] == record.state == ("scheduled" if is_retry else "ready")
        assert record.attempt == is_retry
        assert [error["message"] for error in record.errors] == [str(number)] * is_retry
    assert await world.store.return_jobs([]) == {}


async def test_a_job_asked_to_cancel_ends_cancelled_when_it_is_given_back(world: World) -> None:
    job = await world.claim_one()
    await world.store.cancel_jobs([job.id])
    assert await world.give_back(job, "retry", delay_s=5.0, error=error_of(world.worker, job))
    record = await world.get(job.id)
    assert (record.state, record.attempt, len(record.errors)) == ("cancelled", 1, 1)
    assert record.lease_token == job.lease_token
    assert await _verdict(world, job) == "applied"


async def test_the_error_history_keeps_the_ten_newest(world: World) -> None:
    [id] = await world.enqueue(max_attempts=100)
    for number in range(13):
        [job] = await world.claim()
        await world.give_back(job, delay_s=0.0, error=error_of(world.worker, job, str(number)))
    errors = (await world.get(id)).errors
    assert [error["message"] for error in errors] == [str(number) for number in range(3, 13)]
    assert all(error["at"] for error in errors)
    [job] = await world.claim()
    await world.finish(job, "dead", error=error_of(world.worker, job, "last"))
    errors = (await world.get(id)).errors
    assert (len(errors), errors[-1]["message"]) == (10, "last")


@every_write
async def test_a_claim_lost_to_another_worker_writes_nothing(world: World, write: Write) -> None:
    lost = await world.claim_one(world.worker)
    await world.lose_lease(lost)
    [job] = await world.claim(world.other_worker)
    before = await world.get(job.id)
    assert not await write(world, lost)
    assert await world.get(job.id) == before
    assert await _verdict(world, lost) == "stale"
    checks = await world.store.verify_claims([claimed(lost)], world.worker.name)
    assert checks[lost.id].current_token == job.lease_token


@every_write
async def test_an_old_claim_of_the_same_worker_writes_nothing(world: World, write: Write) -> None:
    zombie = await world.claim_one()
    await world.lose_lease(zombie)
    [job] = await world.claim(world.worker)
    before = await world.get(job.id)
    assert not await write(world, zombie)
    assert await world.get(job.id) == before
    assert await _verdict(world, zombie) == "stale"


@every_write
async def test_an_attempt_number_issued_again_does_not_revive_a_claim(
    world: World, write: Write
) -> None:
    lost = await world.claim_one()
    await world.store.release_claim(lost.lease_token)
    [job] = await world.claim()
    assert job.attempt == lost.attempt
    before = await world.get(job.id)
    assert not await write(world, lost)
    assert await world.get(job.id) == before
    assert await _verdict(world, lost) == "stale"


# A finish looks at the token alone: that is of one claim, and so of one attempt.
@pytest.mark.parametrize("write", [_return, _extend])
async def test_the_right_token_with_the_wrong_attempt_writes_nothing(
    world: World, write: Write
) -> None:
    job = await world.claim_one()
    before = await world.get(job.id)
    assert not await write(world, msgspec.structs.replace(job, attempt=2))
    assert await world.get(job.id) == before


@every_write
async def test_a_write_for_a_job_nobody_knows_matches_nothing(world: World, write: Write) -> None:
    job = await world.claim_one()
    await world.finish(job)
    await world.pass_time(86_400 * 3)
    await world.store.prune_history(86_400.0)
    assert not await write(world, job)
    assert await _verdict(world, job) == "stale"


@every_write
async def test_one_lost_claim_in_a_batch_does_not_hold_up_the_others(
    world: World, write: Write
) -> None:
    lost = await world.claim_one()
    await world.lose_lease(lost)
    [_] = await world.claim()
    held = await world.claim_one()
    claims = [claimed(lost), claimed(held)]
    if write is _finish:
        written = list(
            await world.store.finish_jobs([Finish(job, "succeeded", 0.1) for job in (lost, held)])
        )
    elif write is _return:
        written = list(
            await world.store.return_jobs([Return(job, "release") for job in (lost, held)])
        )
    else:
        written = list(await world.store.extend_leases(claims, 60.0))
    assert written == [held.id]


@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_an_outcome_that_came_after_the_reaper_is_stale_not_applied(
    world: World, max_attempts: int
) -> None:
    job = await world.claim_one(max_attempts=max_attempts)
    await world.lose_lease(job)
    assert not await world.finish(job)
    assert await _verdict(world, job) == "stale"


async def test_verdicts_are_given_for_every_claim_asked_about(world: World) -> None:
    owned, applied = await world.claim_one(), await world.claim_one()
    await world.finish(applied)
    never = Claimed(world.worker.next_token(), world.worker.next_token(), 1)
    checks = await world.store.verify_claims(
        [claimed(owned), claimed(applied), never], world.worker.name
    )
    assert {id: check.verdict for id, check in checks.items()} == {
        owned.id: "owned",
        applied.id: "applied",
        never.id: "stale",
    }
    assert checks[never.id].current_token is None
    assert checks[applied.id].current_token == applied.lease_token


async def test_an_outcome_the_table_refuses_keeps_its_whole_batch_out(world: World) -> None:
    good, bad = await world.claim_one(), await world.claim_one()
    with pytest.raises(StoreError):
        await world.store.finish_jobs(
            [Finish(good, "succeeded", 0.1), Finish(bad, "succeeded", 0.1, result="{")]
        )
    with pytest.raises(StoreError):
        await world.store.return_jobs(
            [Return(good, "retry", delay_s=1.0), Return(bad, "retry", delay_s=1e12)]
        )
    assert await world.states([good.id, bad.id]) == ["running", "running"]
