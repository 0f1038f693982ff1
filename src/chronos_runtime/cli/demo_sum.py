"""The sum of a demo, job by job from the database: nothing lost, nothing twice."""

from collections.abc import AsyncIterator
from uuid import UUID

import msgspec

from chronos_runtime.store import JobRecord, Store

_PAGE = 5_000


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all jobs."""

    enqueued: int
    succeeded: int
    dead: int
    others: int
    """In any other state, or there twice; none should be."""
    retries: int
    wait_p50_s: float
    wait_p99_s: float
    rate: float
    """Jobs a second, of those that needed one attempt: the others waited on purpose."""

    @property
    def is_right(self) -> bool:
        """Whether every job ended, once."""
        return self.others == 0 and self.succeeded + self.dead == self.enqueued


async def add_up(store: Store, enqueued: int) -> Summary:
    """Read every job there is and add up."""
    states = {"succeeded": 0, "dead": 0}
    others = retries = 0
    waits: list[float] = []
    first, last = float("inf"), 0.0
    seen: set[UUID] = set()
    async for job in _every_job(store):
        if job.state not in states or job.id in seen or job.finished_at is None:
            others += 1
            continue
        seen.add(job.id)
        states[job.state] += 1
        retries += job.attempt - 1
        if job.attempt == 1:
            arrived, ended = job.enqueued_at.timestamp(), job.finished_at.timestamp()
            first, last = min(first, arrived), max(last, ended)
            waits.append(max(ended - arrived - (job.run_s or 0.0), 0.0))
    waits.sort()
    return Summary(
        enqueued=enqueued,
        succeeded=states["succeeded"],
        dead=states["dead"],
        others=others,
        retries=retries,
        wait_p50_s=_quantile(waits, 0.5),
        wait_p99_s=_quantile(waits, 0.99),
        rate=len(waits) / (last - first) if last > first else 0.0,
    )


async def _every_job(store: Store) -> AsyncIterator[JobRecord]:
    before: UUID | None = None
    while page := await store.list_jobs(
        states=None, topic=None, kind=None, before=before, limit=_PAGE
    ):
        before = page[-1].id
        for job in page:
            yield job


def _quantile(values: list[float], q: float) -> float:
    """The value at rank `q` of sorted values.

    >>> _quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    3.0
    """
    return values[min(int(q * len(values)), len(values) - 1)] if values else 0.0
