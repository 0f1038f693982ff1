"""However a handler ends, its job gets the outcome that fits, and the slot serves the next one."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio import wait_all_tasks_blocked

from chronos_runtime.job import Cancel, Discard, Finish, Job, Outcome, Retry, Return, Snooze
from tests.actors.bench import (
    BACKOFF_S,
    ExecutorBench,
    ends,
    make_handler,
    make_job,
    on_both_loops,
    running,
)

pytestmark = on_both_loops


class Parcel(msgspec.Struct):
    weight_kg: float


class OtherBaseException(BaseException):
    """Neither an error nor an exit."""


def error_of(outcome: Outcome) -> dict[str, object]:
    assert outcome.error is not None
    record: dict[str, object] = msgspec.json.decode(outcome.error)
    return record


def returning(value: object) -> Callable[[Job, object], Awaitable[object]]:
    async def give(job: Job, payload: object) -> object:
        await anyio.lowlevel.checkpoint()
        return value

    return give


def raising(error: BaseException) -> Callable[[Job, object], Awaitable[object]]:
    async def fail(job: Job, payload: object) -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    return fail


async def test_a_handler_without_a_result_succeeds() -> None:
    outcome = await ExecutorBench(returning(None)).finish_of(make_job())
    assert (outcome.state, outcome.result, outcome.error) == ("succeeded", None, None)
    assert 0 <= outcome.run_s < 5


async def test_a_result_is_kept_as_json() -> None:
    outcome = await ExecutorBench(returning({"sent": [1, 2]})).finish_of(make_job())
    assert (outcome.state, outcome.result) == ("succeeded", '{"sent":[1,2]}')


async def test_a_handler_gets_its_job_and_its_payload_decoded() -> None:
    seen: list[tuple[Job, Parcel]] = []

    async def weigh(job: Job, payload: Parcel) -> None:
        seen.append((job, payload))

    job = make_job(payload='{"weight_kg": 2.5}')
    await ExecutorBench(weigh).finish_of(job)
    assert seen == [(job, Parcel(2.5))]


async def test_a_snooze_gives_the_attempt_back_and_waits() -> None:
    outcome = await ExecutorBench(returning(Snooze(30.0))).return_of(make_job())
    assert (outcome.why, outcome.delay_s, outcome.gives_back) == ("snooze", 30.0, True)
    assert outcome.error is None


async def test_a_snooze_of_the_last_attempt_is_no_failure() -> None:
    job = make_job(attempt=5, max_attempts=5)
    outcome = await ExecutorBench(returning(Snooze(30.0))).return_of(job)
    assert outcome.why == "snooze"


async def test_a_wish_to_retry_overrules_the_backoff() -> None:
    outcome = await ExecutorBench(returning(Retry(3.0, "rate limited"))).return_of(make_job())
    assert (outcome.why, outcome.delay_s, outcome.gives_back) == ("retry", 3.0, False)
    assert error_of(outcome)["message"] == "rate limited"


async def test_a_wish_to_retry_the_last_attempt_ends_dead() -> None:
    job = make_job(attempt=5, max_attempts=5)
    outcome = await ExecutorBench(returning(Retry(3.0, "rate limited"))).finish_of(job)
    assert (outcome.state, error_of(outcome)["message"]) == ("dead", "rate limited")


async def test_a_handler_may_cancel_its_own_job() -> None:
    outcome = await ExecutorBench(returning(Cancel("withdrawn"))).finish_of(make_job())
    assert (outcome.state, error_of(outcome)["message"]) == ("cancelled", "withdrawn")


async def test_a_handler_may_give_its_job_up_before_the_last_attempt() -> None:
    outcome = await ExecutorBench(returning(Discard("no such customer"))).finish_of(make_job())
    assert (outcome.state, error_of(outcome)["message"]) == ("dead", "no such customer")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        TimeoutError("the service did not answer"),
        ExceptionGroup("two", [ValueError("one"), KeyError("other")]),
        StopAsyncIteration(),
        SystemExit(3),
        OtherBaseException("odd"),
        BaseExceptionGroup("both", [OtherBaseException(), ValueError()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_handler_raises_is_a_failed_attempt(error: BaseException) -> None:
    bench = ExecutorBench(make_handler(raising(error)), make_handler(returning(1), kind="next"))
    async with running(bench.executor.run):
        bench.give(make_job(), make_job(kind="next"))
        failed, following = await bench.outcomes(2)
    assert isinstance(failed, Return)
    assert (failed.why, failed.delay_s, failed.gives_back) == ("retry", BACKOFF_S, False)
    assert error_of(failed)["type"] == type(error).__name__
    assert ends([following]) == ["succeeded"]


async def test_the_last_failed_attempt_ends_dead() -> None:
    job = make_job(attempt=3, max_attempts=3)
    outcome = await ExecutorBench(raising(ValueError("no"))).finish_of(job)
    assert outcome.state == "dead"
    assert error_of(outcome)["attempt"] == 3
    assert "ValueError: no" in str(error_of(outcome)["traceback"])


@pytest.mark.parametrize("payload", ["{", "[]", '{"weight_kg": "much"}', "{}", "\x00"])
async def test_a_payload_that_cannot_be_read_fails_until_the_job_is_dead(payload: str) -> None:
    async def weigh(job: Job, payload: Parcel) -> None:
        raise AssertionError("never called")

    first = await ExecutorBench(weigh).return_of(make_job(payload=payload))
    assert first.why == "retry"
    last = await ExecutorBench(weigh).finish_of(make_job(payload=payload, attempt=5))
    assert last.state == "dead"
    assert error_of(last)["type"] in ("ValidationError", "DecodeError")


def raise_zero_division(attempt: int) -> float:
    return 1 / 0


@pytest.mark.parametrize(
    "backoff",
    [
        raise_zero_division,
        lambda attempt: -1.0,
        lambda attempt: float("nan"),
        lambda attempt: float("inf"),
        lambda attempt: "soon",
        lambda attempt: None,
        lambda: 1.0,
    ],
)
async def test_a_backoff_that_makes_no_sense_still_brings_the_job_back(
    backoff: Callable[[int], float],
) -> None:
    handler = make_handler(raising(ValueError("no")), backoff=backoff)
    outcome = await ExecutorBench(handler).return_of(make_job())
    assert (outcome.why, outcome.delay_s) == ("retry", 60.0)
    assert error_of(outcome)["type"] == "ValueError"


async def test_a_backoff_is_asked_with_the_attempt() -> None:
    handler = make_handler(raising(ValueError("no")), backoff=lambda attempt: attempt * 10.0)
    outcome = await ExecutorBench(handler).return_of(make_job(attempt=4))
    assert outcome.delay_s == 40.0


async def sleep_for_ever(job: Job, payload: object) -> None:
    await anyio.sleep_forever()


async def test_a_handler_that_takes_too_long_fails_and_waits_as_its_backoff_says() -> None:
    handler = make_handler(sleep_for_ever, timeout_s=0.01)
    outcome = await ExecutorBench(handler).return_of(make_job())
    assert (outcome.why, outcome.delay_s) == ("retry", BACKOFF_S)
    assert error_of(outcome)["type"] == "TimeoutError"
    assert 0.01 <= outcome.run_s < 5


async def test_a_timeout_is_noticed_in_time_by_an_executor_that_was_idle() -> None:
    bench = ExecutorBench(sleep_for_ever)
    async with running(bench.executor.run):
        await wait_all_tasks_blocked()
        bench.give(make_job(timeout_s=0.01))
        [outcome] = await bench.outcomes(1)
    assert outcome.run_s < 0.6  # An idle executor looks once a second.


async def test_a_last_attempt_that_takes_too_long_ends_dead() -> None:
    handler = make_handler(sleep_for_ever, timeout_s=0.01)
    outcome = await ExecutorBench(handler).finish_of(make_job(attempt=5))
    assert outcome.state == "dead"


async def test_the_timeout_of_a_job_overrules_that_of_its_handler() -> None:
    handler = make_handler(sleep_for_ever, timeout_s=3_600.0)
    outcome = await ExecutorBench(handler).return_of(make_job(timeout_s=0.01))
    assert error_of(outcome)["type"] == "TimeoutError"


async def test_a_job_may_have_more_time_than_its_handler_gives() -> None:
    is_over = anyio.Event()

    async def outlast_the_other(job: Job, payload: object) -> str:
        try:
            await is_over.wait()
        finally:
            is_over.set()
        return "done"

    bench = ExecutorBench(make_handler(outlast_the_other, timeout_s=0.01), concurrency=2)
    patient, usual = make_job(timeout_s=3_600.0), make_job()
    async with running(bench.executor.run):
        bench.give(patient, usual)  # The patient one starts first, so its time was up first.
        ended = {outcome.job.id: outcome for outcome in await bench.outcomes(2)}
    assert error_of(ended[usual.id])["type"] == "TimeoutError"
    finish = ended[patient.id]
    assert isinstance(finish, Finish)
    assert finish.result == '"done"'


async def test_a_result_that_is_too_large_is_replaced_by_a_note() -> None:
    bench = ExecutorBench(returning("x" * 200), result_max_bytes=100)
    outcome = await bench.finish_of(make_job())
    assert outcome.state == "succeeded"
    assert outcome.result is not None
    assert "dropped" in outcome.result


@pytest.mark.parametrize("decision", [Snooze(-1.0), Retry(float("nan")), Snooze("soon")])  # type: ignore[arg-type]
async def test_a_decision_that_makes_no_sense_is_a_failed_attempt(decision: object) -> None:
    outcome = await ExecutorBench(returning(decision)).return_of(make_job())
    assert (outcome.why, outcome.delay_s) == ("retry", BACKOFF_S)
    assert error_of(outcome)["type"] == "InputError"


@pytest.mark.parametrize("reason", [None, 404, ValueError("gone")], ids=repr)
@pytest.mark.parametrize("decision", [Cancel, Discard])
async def test_a_reason_need_not_be_text(
    decision: Callable[[object], object], reason: object
) -> None:
    outcome = await ExecutorBench(returning(decision(reason))).finish_of(make_job())
    assert error_of(outcome)["message"] == str(reason)


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_a_reason_that_has_no_text_is_a_failed_attempt() -> None:
    decision = Discard(Unspeakable())  # type: ignore[arg-type]
    outcome = await ExecutorBench(returning(decision)).return_of(make_job())
    assert outcome.why == "retry"
