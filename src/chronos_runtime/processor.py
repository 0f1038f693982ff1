"""A processor: what does the work of tasks that name it, with SQL functions before and after it.

It is a coroutine function of a task and a message, or an object that can be called like one. The
annotation of `message` is its type: what the task, or its `before_handler`, says is converted to
it. What it returns is the provider's answer; what it raises is a failure (see `errors`).
"""

from collections.abc import Awaitable
from typing import Any, Protocol
from uuid import UUID

import msgspec

from chronos_runtime.job import Job


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a processor and SQL functions know of a job. `id` and `attempt` are the key of facts.

    >>> from chronos_runtime.ids import new_job_id
    >>> job = Job(
    ...     new_job_id(), 7, "mail", "push", 5, 2, 5, None, b"{}", 0.0, None, None, None,
    ...     UUID(int=1),
    ... )
    >>> task = Task.of(job)
    >>> (task.kind, task.attempt, task.run, task.lineage_id == task.id)
    ('push', 2, 2, True)
    """

    id: UUID
    kind: str
    topic: str
    attempt: int
    """Of the work: a number no other try of it has."""
    run: int
    """Of this job: how often a worker has begun with it, this time included."""
    max_attempts: int
    retry_of: UUID | None
    """The task whose failure led to this one."""
    lineage_id: UUID
    """The first task of this work; its own id where it is the first."""

    @classmethod
    def of(cls, job: Job) -> "Task":
        """The task of a claimed job."""
        return cls(
            id=job.id,
            kind=job.kind,
            topic=job.topic,
            attempt=job.attempt if job.line is None else job.lineage_no,
            run=job.attempt,
            max_attempts=job.max_attempts,
            retry_of=job.retry_of,
            lineage_id=job.lineage_id,
        )


class Processor(Protocol):
    """What `@app.processor` takes: a coroutine function, or an object with such a `__call__`.

    >>> class Push:
    ...     async def __call__(self, task: Task, message: dict[str, str]) -> str:
    ...         return f"{task.id}: {message['text']}"
    >>> push: Processor = Push()
    """

    def __call__(self, task: Task, message: Any, /) -> Awaitable[object]:
        """Do it once: what the provider answered, a decision, or a failure raised."""
