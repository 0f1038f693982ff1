"""What the tests of single actors are written in: both event loops, jobs out of thin air, and an
executor between two mailboxes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import anyio
import pytest

from chronos_runtime.actors.executor import Executor
from chronos_runtime.backoff import Fixed
from chronos_runtime.config import ExecutorConfig
from chronos_runtime.handlers import Handler, HandlerFunction
from chronos_runtime.ids import Worker, new_job_id
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Finish, Job, Outcome, Return
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.outbox import Outbox

ASYNCIO = ("asyncio", {"use_uvloop": True})
TRIO: tuple[str, dict[str, bool]] = ("trio", {})

on_both_loops = pytest.mark.parametrize("anyio_backend", [ASYNCIO, TRIO], ids=["asyncio", "trio"])
"""For modules whose actors are neutral; every test of such a module is a coroutine."""

DEADLINE_S = 10.0  # Of a test that waits for something that should come at once.
BACKOFF_S = 7.0


def make_job(**changes: Any) -> Job:
    """A claimed job like any other, but for the changes."""
    plain: dict[str, Any] = {
        "id": new_job_id(),
        "seq": 1,
        "topic": "default",
        "kind": "work",
        "priority": 5,
        "attempt": 1,
        "max_attempts": 5,
        "timeout_s": None,
        "payload": "null",
        "wait_s": 0.0,
        "schedule_id": None,
        "occurrence": None,
        "line": None,
        "lease_token": UUID(int=1),
        "claimed_at": 0.0,
    }
    return Job(**(plain | changes))


def make_jobs(count: int, **changes: Any) -> list[Job]:
    """Equal jobs."""
    return [make_job(**changes) for _ in range(count)]


def make_handler(function: HandlerFunction, kind: str = "work", **options: Any) -> Handler:
    """A handler whose failed attempts wait `BACKOFF_S`, unless the options say otherwise."""
    return Handler.of(function, kind, **({"backoff": Fixed(BACKOFF_S)} | options))


@asynccontextmanager
async def running(run: Callable[[], Awaitable[None]]) -> AsyncIterator[anyio.CancelScope]:
    """An actor's loop beside the block, cancelled with it; what breaks it breaks the block."""
    async with anyio.create_task_group() as tasks:

        async def host() -> None:
            await run()

        tasks.start_soon(host)
        yield tasks.cancel_scope
        tasks.cancel_scope.cancel()


class ListeningNudge(Nudge):
    """Remembers how long its waiter was ready to wait, and wakes it only by a nudge."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    async def wait(self, timeout_s: float | None = None) -> bool:
        assert timeout_s is not None
        self.waits.append(timeout_s)
        return await super().wait()


def sample(metrics: Metrics, name: str, **labels: str) -> float:
    """What a scrape would read; 0 where there is nothing to read."""
    return metrics.registry.get_sample_value(name, labels) or 0.0


def restarts(metrics: Metrics, actor: str) -> float:
    """How often an actor was restarted."""
    return sample(metrics, f"chronos_{actor}_restarts_total")


class ExecutorBench:
    """An executor, the mailboxes before and behind it, and the registry over them."""

    def __init__(
        self,
        *handlers: Handler | HandlerFunction,
        concurrency: int = 1,
        topic_concurrency: Mapping[str, int] | None = None,
        result_max_bytes: int = 1_000,
        capacity: int = 20_000,
    ) -> None:
        known = [one if isinstance(one, Handler) else make_handler(one) for one in handlers]
        self.metrics = Metrics()
        self.inflight = Inflight(capacity)
        self.inbox: Mailbox[Job] = Mailbox(capacity)
        self.outbox = Outbox(capacity)
        self.room = Nudge()
        self.executor = Executor(
            ExecutorConfig(
                concurrency=concurrency,
                topic_concurrency=dict(topic_concurrency or {}),
                result_max_bytes=result_max_bytes,
            ),
            {handler.kind: handler for handler in known},
            self.inflight,
            self.metrics,
            worker=Worker(bytes(8)).name,
            inbox=self.inbox,
            outbox=self.outbox,
            room=self.room,
        )

    def give(self, *jobs: Job) -> None:
        """Hand jobs over as the claimer does."""
        self.inbox.put_all(self.inflight.claim(jobs))

    async def outcomes(self, count: int) -> list[Outcome]:
        """The next outcomes, at least `count`; of those that come at once, successes first."""
        came: list[Outcome] = []
        with anyio.fail_after(DEADLINE_S):
            while len(came) < count:
                came += await self.outbox.take()
        self.inflight.settle([one.job.id for one in came])
        return came

    async def outcome_of(self, job: Job) -> Outcome:
        """Run one job to its outcome."""
        async with running(self.executor.run):
            self.give(job)
            [outcome] = await self.outcomes(1)
        assert outcome.job is job
        return outcome

    async def finish_of(self, job: Job) -> Finish:
        """Run one job that ends."""
        outcome = await self.outcome_of(job)
        assert isinstance(outcome, Finish)
        return outcome

    async def return_of(self, job: Job) -> Return:
        """Run one job that comes back."""
        outcome = await self.outcome_of(job)
        assert isinstance(outcome, Return)
        return outcome


def in_order_of(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of these jobs."""
    by_job = {one.job.id: one for one in outcomes}
    return [by_job[job.id] for job in jobs]


def ends(outcomes: list[Outcome]) -> list[str]:
    """How jobs ended, in one word each."""
    return [one.state if isinstance(one, Finish) else one.why for one in outcomes]
