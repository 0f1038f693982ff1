"""The pace of a process: jobs ended while there was something to do, not while it waited."""

import pytest

from chronos_runtime.inflight import Inflight
from chronos_runtime.pace import Pace
from tests.actors.bench import make_jobs


class Process:
    """A registry on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.inflight = Inflight(100_000, clock=lambda: self.now)
        self.pace = Pace(self.inflight)

    def work(self, jobs: int, seconds: float) -> None:
        """Claim jobs, end them all in that time, and find nothing more to do."""
        claimed = self.inflight.claim(make_jobs(jobs))
        for _ in claimed:
            self.inflight.start()
        self.now += seconds
        for job in claimed:
            self.inflight.stop(job)
        self.inflight.settle([job.id for job in claimed])
        self.inflight.rest()


@pytest.fixture
def process() -> Process:
    process = Process()
    assert process.pace.measure() == 0.0
    return process


def test_waiting_for_a_claim_does_not_slow_the_pace(process: Process) -> None:
    for _ in range(5):
        process.work(1_000, seconds=0.05)
        process.now += 60.0  # Nothing to do.
        assert process.pace.measure() == pytest.approx(20_000.0)


def test_slow_handlers_have_a_slow_pace(process: Process) -> None:
    process.work(1_000, seconds=0.05)
    process.inflight.claim(make_jobs(10))
    for _ in range(10):
        process.inflight.start()
    process.inflight.rest()  # A free slot found nothing, but ten run: this is no rest.
    process.now += 5.0
    assert process.pace.measure() == pytest.approx(1_000 / 5.05)


def test_a_claim_that_comes_while_jobs_run_is_part_of_the_same_work(process: Process) -> None:
    process.inflight.claim(make_jobs(1))
    process.inflight.start()
    process.now += 0.5
    process.work(10, seconds=0.5)
    assert process.inflight.busy_s == pytest.approx(1.0)


def test_a_moment_of_work_does_not_promise_millions(process: Process) -> None:
    process.work(100, seconds=0.000_001)
    assert process.pace.measure() == pytest.approx(10_000.0)


def test_only_the_last_moments_of_work_count(process: Process) -> None:
    process.work(10_000, seconds=0.3)
    process.pace.measure()
    for _ in range(5):
        process.work(10, seconds=0.1)
        process.pace.measure()
    assert process.pace.measure() == pytest.approx(100.0)


def test_looking_at_an_idle_process_leaves_nothing_behind(process: Process) -> None:
    process.work(10, seconds=0.1)
    for _ in range(1_000):
        process.now += 10.0
        process.pace.measure()
    assert len(process.pace._samples) <= 2
