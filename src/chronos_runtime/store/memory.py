"""The store in memory: an exact model of the one on Postgres, for simulation and unit tests.

Each method does what the statement of the same name in `schema/queries` does, by the same rules
and in the same order, and `tests/store` holds both to one contract. There is nothing to wait
for and nothing to lock: a method lets other tasks run first and is then one step. It belongs to
one event loop, asyncio's or trio's; any number of clients and runtimes there may share it. The
clock is the caller's, so that simulated time may pass as fast as it likes.
"""
# ruff: noqa: D102 (the protocol says what each method does)

import heapq
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

from anyio.lowlevel import checkpoint

from chronos_runtime.errors import StoreError
from chronos_runtime.job import TOPIC_ALL, FinalState, Finish, Job, LiveState, Return, State
from chronos_runtime.store import (
    CancelResult,
    Checked,
    Claimed,
    Gate,
    Heard,
    HistoryCounts,
    JobRecord,
    NewJob,
    Promotion,
    Reaped,
    TopicDepth,
    Wanted,
    WorkerInfo,
)
from chronos_runtime.store.memory_bell import Bell
from chronos_runtime.store.memory_history import History
from chronos_runtime.store.memory_row import Row, is_storable, read_json

_SEEN_LATELY_S = 180.0  # As in survey_unserved.sql.
_DUE_SOON_S = 5.0  # As in enqueue_jobs.sql: what falls due sooner is worth waking a scheduler for.


class MemoryStore:
    """Chronos's state for as long as this object lives.

    >>> MemoryStore(clock=lambda: 0.0).row_count
    0
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._live: dict[UUID, Row] = {}
        self._history = History()
        self._gates: dict[str, Gate] = {}
        self._workers: dict[UUID, tuple[WorkerInfo, float]] = {}
        self._bell = Bell()
        self._seqs = itertools.count(1)

    async def enqueue_jobs(self, jobs: Sequence[NewJob]) -> set[UUID]:
        now = await self._begin()
        new: dict[UUID, Row] = {}
        keys = {row.unique_key for row in self._live.values()} - {None}
        for job in jobs:
            row = Row.of(job, seq=next(self._seqs), now=now)
            if row.id in self._live or row.id in new or row.unique_key in keys:
                continue
            new[row.id] = row
            if row.unique_key is not None:
                keys.add(row.unique_key)
        self._live |= new
        self._wake("chronos_ready", (row for row in new.values() if row.state == "ready"))
        self._wake("chronos_due", (row for row in new.values() if now < row.run_at < now + _DUE_SOON_S))
        return set(new)
