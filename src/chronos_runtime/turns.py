"""Claimed jobs that wait for a slot: topic by topic in turn, no more of each than its limit."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from chronos_runtime.handlers import Handler
from chronos_runtime.job import Job
from chronos_runtime.metrics import JobMeter

NEVER = float("inf")


class KindInTopic:
    """A handler and the meter of its jobs in one topic: found together."""

    __slots__ = ("handler", "name", "note_run", "parts", "timeout_s")

    def __init__(self, handler: Handler, meter: JobMeter) -> None:
        self.handler = handler
        self.name = handler.kind
        self.timeout_s = handler.timeout_s
        self.note_run = meter.runs.append
        self.parts = (handler.function, handler.decode, meter.waits.append, self.note_run)
        """What a run calls, for slots to keep: function, decoder, and the meter's two notes."""


class TopicQueue:
    """The claimed jobs of one topic, how many of them may run at once, and their kinds.

    Those that run are counted only where there is a limit: that would cost the others 0.1 µs a job.
    """

    __slots__ = ("is_limited", "jobs", "kinds", "limit", "running")

    def __init__(self, limit: int | None) -> None:
        self.jobs: deque[Job] = deque()
        self.kinds: dict[str, KindInTopic] = {}
        self.is_limited = limit is not None
        self.limit = limit or 0
        self.running = 0

    @property
    def is_full(self) -> bool:
        """Whether its limit lets no more of its jobs start."""
        return self.is_limited and self.running >= self.limit

    def enter(self) -> bool:
        """Under a limit, a job starts; whether it was the last one that may."""
        self.running += 1
        return self.running == self.limit

    def leave(self) -> bool:
        """Under a limit, a job ended; whether that lets another start where none could."""
        was_full = self.running == self.limit
        self.running -= 1
        return was_full and bool(self.jobs)


class Turns:
    """The queues of all topics, and whose turn it is."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._queues: dict[str, TopicQueue] = {}
        self.waiting: deque[TopicQueue] = deque()
        """The queues that may start a job, the next one first."""

    def admit(self, jobs: Sequence[Job], only_topic: str | None) -> None:
        """Queue jobs; all of one topic, where that is known."""
        by_topic = _by_topic(jobs) if only_topic is None else [(only_topic, jobs)]
        for topic, some in by_topic:
            queue = self._queues.get(topic)
            if queue is None:
                queue = self._queues[topic] = TopicQueue(self._limits.get(topic))
            was_empty = not queue.jobs
            queue.jobs.extend(some)
            if was_empty and not queue.is_full:
                self.waiting.append(queue)

    def pass_on(self, queue: TopicQueue) -> None:
        """The first queue has started a job: it is the next one's turn."""
        is_full = queue.is_limited and queue.enter()
        if is_full or not queue.jobs:
            self.waiting.popleft()
        elif len(self.waiting) > 1:
            self.waiting.rotate(-1)

    def remove(self, id: UUID) -> Job | None:
        """Take a job out of its queue, if it is there."""
        for queue in self._queues.values():
            for job in queue.jobs:
                if job.id == id:
                    queue.jobs.remove(job)
                    if not queue.jobs and queue in self.waiting:
                        self.waiting.remove(queue)
                    return job
        return None

    def clear(self) -> list[Job]:
        """Take out all jobs."""
        jobs = [job for queue in self._queues.values() for job in queue.jobs]
        for queue in self._queues.values():
            queue.jobs.clear()
        self.waiting.clear()
        return jobs


def _by_topic(jobs: Sequence[Job]) -> Iterable[tuple[str, Sequence[Job]]]:
    """The jobs of each topic, in their order."""
    sorted_out: dict[str, list[Job]] = {}
    for job in jobs:
        sorted_out.setdefault(job.topic, []).append(job)
    return sorted_out.items()
