"""Where the executor keeps what it runs: slots, and the claimed jobs of each topic."""

from collections import deque

import anyio

from chronos_runtime.handlers import Handler
from chronos_runtime.job import Job
from chronos_runtime.metrics import JobMeter
from chronos_runtime.outcomes import StopReason

NEVER = float("inf")


class KindInTopic:
    """A handler and the meter of its jobs in one topic: found together, once a job."""

    __slots__ = ("handler", "meter")

    def __init__(self, handler: Handler, meter: JobMeter) -> None:
        self.handler = handler
        self.meter = meter


class TopicQueue:
    """The claimed jobs of one topic, how many of them may run at once, and their kinds."""

    __slots__ = ("jobs", "kinds", "limit", "running")

    def __init__(self, limit: float) -> None:
        self.jobs: deque[Job] = deque()
        self.kinds: dict[str, KindInTopic] = {}
        self.limit = limit
        self.running = 0

    @property
    def may_start(self) -> bool:
        """Whether it has a job that its limit lets start."""
        return bool(self.jobs) and self.running < self.limit


class Slot:
    """One long-lived task and the job it runs right now, if any."""

    __slots__ = ("deadline", "job", "queue", "reason", "scope", "started_at", "wake")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.queue = TopicQueue(NEVER)
        self.scope = anyio.CancelScope()
        self.reason: StopReason | None = None
        self.started_at = 0.0
        self.deadline = NEVER
        self.wake = anyio.Event()
