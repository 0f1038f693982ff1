"""What handlers ended with reaches the reporter, whichever way it is kept meanwhile."""

import pytest

from chronos_runtime.ids import new_job_id
from chronos_runtime.job import Finish, Outcome, Return, Successes
from chronos_runtime.outbox import Outbox
from tests.actors.bench import make_job, make_jobs

PLAIN = Finish(make_job(), "succeeded", 0.5)


def test_plain_finishes_come_in_columns_each_with_its_time() -> None:
    outbox, jobs = Outbox(10), make_jobs(3)
    for number, job in enumerate(jobs):
        outbox.put(Finish(job, "succeeded", float(number)))
    assert (len(outbox), outbox.fill) == (3, 0.3)
    taken = outbox.take_successes()
    assert taken == Successes(jobs, [0.0, 1.0, 2.0])
    assert list(taken)[2] == Finish(jobs[2], "succeeded", 2.0)
    assert (len(outbox), outbox.take_now()) == (0, [])


@pytest.mark.parametrize(
    "outcome",
    [
        Finish(make_job(), "dead", 0.5),
        Finish(make_job(), "succeeded", 0.5, result="7"),
        Finish(make_job(), "succeeded", 0.5, error="{}"),
        Finish(make_job(), "succeeded", 0.5, is_written=True),
        Finish(make_job(schedule_id=new_job_id()), "succeeded", 0.5),
        Return(make_job(), "retry", 0.5),
    ],
    ids=["state", "result", "error", "written", "fire", "return"],
)
def test_what_says_more_comes_by_itself(outcome: Outcome) -> None:
    outbox = Outbox(10)
    outbox.put(outcome)
    outbox.put(PLAIN)
    assert len(outbox) == 2
    assert list(outbox.take_successes()) == [PLAIN]
    assert outbox.take_now() == [outcome]


async def test_each_sort_wakes_the_reader_who_may_take_both_as_one() -> None:
    for outcome in (PLAIN, Return(make_job(), "retry", 0.5)):
        outbox = Outbox(10)
        outbox.put(outcome)
        assert await outbox.nudge.wait(0.0)
        assert await outbox.take() == [outcome]


def test_what_was_taken_is_not_touched_by_what_comes_later() -> None:
    outbox = Outbox(10)
    outbox.put(PLAIN)
    taken = outbox.take_successes()
    outbox.put(PLAIN)
    assert (len(taken), len(outbox)) == (1, 1)


def test_more_than_there_is_credit_for_is_a_bug() -> None:
    outbox = Outbox(1)
    outbox.put(PLAIN)
    outbox.put(PLAIN)
    with pytest.raises(AssertionError, match="a credit was lost"):
        outbox.take_successes()
