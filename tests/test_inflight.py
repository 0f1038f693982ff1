"""A claimed job is in exactly one place until its outcome is committed."""

import random
import sys
import threading
from collections.abc import Iterator
from uuid import UUID

import pytest

from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job
from chronos_runtime.likeness import UNLIKE, Likeness
from tests.actors.bench import make_job, make_jobs


def places(inflight: Inflight) -> tuple[int, int, int, int]:
    return (inflight.queued, inflight.running, inflight.reporting, inflight.settled)


def test_a_job_that_runs_passes_through_every_place() -> None:
    inflight = Inflight(10)
    job = make_job()
    assert inflight.claim([job]) == [job]
    assert (places(inflight), job.id in inflight) == ((1, 0, 0, 0), True)
    inflight.start()
    assert places(inflight) == (0, 1, 0, 0)
    inflight.stop(job)
    assert (places(inflight), job.id in inflight) == ((0, 0, 1, 0), True)
    inflight.settle([job.id])
    assert (places(inflight), job.id in inflight) == ((0, 0, 0, 1), False)
    inflight.check()


def test_a_job_that_never_starts_goes_straight_to_the_reporter() -> None:
    inflight = Inflight(10)
    jobs = make_jobs(3)
    inflight.claim(jobs)
    inflight.unqueue(jobs[1:])
    assert places(inflight) == (1, 0, 2, 0)
    inflight.settle([job.id for job in jobs[1:]])
    assert (places(inflight), len(inflight)) == ((1, 0, 0, 2), 1)


def test_the_law_holds_on_every_path() -> None:
    dice = random.Random(1)  # The same walk every time.
    inflight = Inflight(50, limited="ab")
    queued, started, ended = [], [], []
    for _ in range(5_000):
        match dice.choice(["claim", "start", "stop", "unqueue", "settle"]):
            case "claim":
                batch = make_jobs(dice.randint(0, inflight.room), topic=dice.choice("ab"))
                queued += inflight.claim(batch)
            case "start" if queued:
                inflight.start()
                started.append(queued.pop())
            case "stop" if started:
                ended.append(started.pop(dice.randrange(len(started))))
                inflight.stop(ended[-1])
            case "unqueue" if queued:
                inflight.unqueue(queued[:2])
                ended += queued[:2]
                del queued[:2]
            case "settle" if ended:
                batch = [ended.pop() for _ in range(dice.randint(1, len(ended)))]
                inflight.settle([job.id for job in batch])
        inflight.check()
        assert places(inflight)[:3] == (len(queued), len(started), len(ended))
        assert inflight.room == 50 - len(queued) - len(started) - len(ended)
        for topic in "ab":
            unfinished = sum(job.topic == topic for job in queued + started)
            assert inflight.unfinished.get(topic, 0) == unfinished
    assert inflight.settled > 1_000


def test_a_job_that_is_claimed_again_while_its_old_attempt_is_here_is_refused() -> None:
    inflight = Inflight(10)
    old = make_job(attempt=1, lease_token=UUID(int=1))
    again = make_job(id=old.id, attempt=2, lease_token=UUID(int=2))
    other = make_job()
    inflight.claim([old])
    assert inflight.claim([again, other]) == [other]
    assert (inflight.claimed, len(inflight)) == (2, 2)
    assert old in inflight.held_longer_than(-1_000_000.0)
    inflight.start()
    inflight.stop(old)
    inflight.settle([old.id])
    assert inflight.claim([again]) == [again]


def test_a_job_that_comes_twice_in_one_claim_is_taken_once() -> None:
    inflight = Inflight(10)
    job = make_job()
    assert inflight.claim([job, make_job(id=job.id)]) == [job]
    assert inflight.holds(job)


def test_a_job_that_left_cannot_leave_again() -> None:
    inflight = Inflight(10)
    job = make_job()
    inflight.claim([job])
    inflight.unqueue([job])
    inflight.settle([job.id])
    with pytest.raises(KeyError):
        inflight.settle([job.id])


def through(inflight: Inflight, *jobs: Job) -> None:
    inflight.unqueue(jobs)
    inflight.settle([job.id for job in jobs])


def test_a_claim_is_over_when_its_last_job_is_settled() -> None:
    inflight = Inflight(10)
    first, second = (make_jobs(3, lease_token=UUID(int=number)) for number in (1, 2))
    inflight.claim(first)
    inflight.claim(second)
    through(inflight, first[0], second[0], first[1], second[1])
    assert inflight.claims_over == []
    through(inflight, second[2])
    assert inflight.claims_over == [UUID(int=2)]
    through(inflight, first[2])
    assert inflight.claims_over == [UUID(int=2), UUID(int=1)]


def test_a_claim_of_which_a_job_was_refused_is_never_over() -> None:
    inflight = Inflight(10)
    old = make_job(lease_token=UUID(int=1))
    again = make_job(id=old.id, lease_token=UUID(int=2))
    other = make_job(lease_token=UUID(int=2))
    inflight.claim([old])
    assert inflight.claim([again, other]) == [other]
    through(inflight, other)
    assert inflight.claims_over == [], "the lease of the one refused may still stand"


def test_a_claim_with_a_lease_that_stands_is_never_over() -> None:
    inflight = Inflight(10)
    jobs = make_jobs(2, lease_token=UUID(int=1))
    inflight.claim(jobs)
    inflight.keep_claim(UUID(int=1))
    through(inflight, *jobs)
    assert inflight.claims_over == []


def test_a_claim_is_over_though_its_token_came_in_several_objects() -> None:
    inflight = Inflight(10)
    jobs = [make_job(lease_token=UUID(int=number)) for number in (1, 2, 1, 2, 1)]
    inflight.claim(jobs)
    through(inflight, *jobs[:3])
    assert inflight.claims_over == []
    through(inflight, *jobs[3:])
    assert sorted(inflight.claims_over) == [UUID(int=1), UUID(int=2)]


def test_it_is_known_what_the_jobs_of_a_claim_have_in_common() -> None:
    inflight = Inflight(10)
    alike = make_jobs(2, topic="mail", kind="send", lease_token=UUID(int=1))
    others = make_jobs(1, topic="mail", kind="bill", lease_token=UUID(int=2))
    mixed = make_jobs(1, topic="a", lease_token=UUID(int=3))
    mixed += make_jobs(1, topic="b", lease_token=UUID(int=3))
    for jobs in (alike, others, mixed):
        inflight.claim(jobs)
    assert inflight.likeness_of(alike) == Likeness("mail", "send")
    assert inflight.likeness_of(alike + others) == Likeness("mail", None)
    assert inflight.likeness_of(mixed) == Likeness(None, "work")
    assert inflight.likeness_of(mixed[:1]) == Likeness(None, "work"), "it is asked of the claim"
    assert inflight.likeness_of(alike + mixed) == UNLIKE
    assert inflight.likeness_of([]) == UNLIKE


def test_nothing_is_said_of_jobs_whose_claim_is_not_known_or_came_in_parts() -> None:
    inflight = Inflight(10)
    jobs = make_jobs(2, topic="mail", lease_token=UUID(int=1))
    inflight.claim(jobs)
    inflight.claim(make_jobs(1, topic="bill", lease_token=UUID(int=1)))
    assert inflight.likeness_of(jobs) == Likeness(None, "work")
    inflight.keep_claim(UUID(int=1))
    assert inflight.likeness_of(jobs) == UNLIKE


def test_a_place_that_would_become_negative_is_a_bug() -> None:
    inflight = Inflight(10)
    inflight.claim([make_job()])
    inflight.start()
    inflight.start()
    with pytest.raises(AssertionError):
        inflight.check()


def test_a_table_that_differs_from_what_was_counted_is_a_bug() -> None:
    inflight = Inflight(10)
    jobs = make_jobs(3)
    inflight.claim(jobs)
    inflight.unqueue(jobs)
    inflight._jobs.pop(jobs[0].id.bytes)
    with pytest.raises(AssertionError):
        inflight.check()


def test_jobs_are_beaten_for_once_they_are_held_for_long() -> None:
    now = 100.0
    inflight = Inflight(10, clock=lambda: now)
    old, new = make_job(claimed_at=90.0), make_job(claimed_at=97.0)
    inflight.claim([old, new])
    assert inflight.held_longer_than(5.0) == [old]
    assert inflight.held_longer_than(10.0) == [old]
    assert inflight.held_longer_than(10.1) == []
    now = 110.0
    assert inflight.held_longer_than(5.0) == [old, new]


def test_a_job_is_held_until_its_outcome_is_committed() -> None:
    inflight = Inflight(10, clock=lambda: 100.0)
    job = make_job(claimed_at=0.0)
    inflight.claim([job])
    inflight.start()
    inflight.stop(job)
    assert inflight.held_longer_than(5.0) == [job]  # Its outcome still waits to be written.
    inflight.settle([job.id])
    assert inflight.held_longer_than(5.0) == []


@pytest.fixture
def _restless_threads() -> Iterator[None]:
    """Threads take turns after a few steps, so that what can happen between two does."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("_restless_threads")
def test_another_thread_may_read_while_jobs_come_and_go() -> None:
    inflight = Inflight(10_000, clock=lambda: 100.0)
    steady = make_jobs(200, claimed_at=0.0)
    inflight.claim(steady)
    ended = threading.Event()
    broken: list[BaseException] = []
    reads = 0

    def read() -> None:
        nonlocal reads
        try:
            while not ended.is_set():
                held = inflight.held_longer_than(1.0)
                assert held[:200] == steady
                assert all(job.id in inflight for job in steady)
                reads += 1
        except BaseException as error:  # noqa: BLE001 - told to the test.
            broken.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while reads < 100 and not broken:
        batch = make_jobs(50, claimed_at=0.0)
        inflight.claim(batch)
        inflight.unqueue(batch)
        inflight.settle([job.id for job in batch])
    ended.set()
    thread.join()
    assert not broken
    inflight.check()
