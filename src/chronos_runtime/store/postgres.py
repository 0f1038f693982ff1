"""The store on Postgres: one method, one statement of `schema/queries`, one round trip.

Sessions speak READ COMMITTED explicitly, whatever the server's default, and plan each statement
once: the shapes of the statements leave the planner one good plan, and re-planning arrays of
thousands costs more than running them.
"""

import functools
from collections.abc import Collection, Sequence
from itertools import repeat, starmap
from operator import attrgetter, concat, itemgetter
from uuid import UUID

import asyncpg
import msgspec

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.job import Finishes, Job, Return, State
from chronos_runtime.slot import Ending
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
from chronos_runtime.store.connect import connect
from chronos_runtime.store.fenced import FencedTransaction
from chronos_runtime.store.handler_connections import HandlerConnections
from chronos_runtime.store.insert import insert_jobs, insert_plain
from chronos_runtime.store.lane import Lane, Observe, ignore_observation
from chronos_runtime.store.listen import listen
from chronos_runtime.store.postgres_functions import PostgresFunctions
from chronos_runtime.store.postgres_offers import PostgresOffers
from chronos_runtime.store.postgres_schedules import PostgresSchedules
from chronos_runtime.store.report import finish_jobs, return_jobs
from chronos_runtime.store.rows import fences, job_record, read_ids
from chronos_runtime.transaction import Transaction

_BULK_FROM = 10_000  # Calls that get more time than a statement: all or none may take a while.
_BULK_JOBS_PER_S = 5_000  # A tenth of what one connection copies here: time for a slow server.

_values = itemgetter(slice(None))
_seq = attrgetter("seq")
_priority = attrgetter("priority")


class PostgresStore:
    """Chronos's durable state in one Postgres database."""

    def __init__(self, config: DatabaseConfig, observe: Observe = ignore_observation) -> None:
        self._config = config
        self._observe = observe
        # Claims, reports and beats each have a connection that nothing else can hold up.
        lane = functools.partial(Lane, self.connect, deadline_s=config.statement_s, observe=observe)
        self.lanes = {
            "claim": lane(size=1),
            "report": lane(size=1),
            "beat": lane(size=1),
            "upkeep": lane(size=1),
            "client": lane(size=config.client_connections),
        }
        self._claim = self.lanes["claim"]
        self._report = self.lanes["report"]
        self._beat = self.lanes["beat"]
        self._upkeep = self.lanes["upkeep"]
        self._client = self.lanes["client"]
        self.handler_connections = HandlerConnections(config)
        self.functions = PostgresFunctions(
            client=self._client, connections=self.handler_connections
        )
        self.offers = PostgresOffers(self._claim)
        self.schedules = PostgresSchedules(upkeep=self._upkeep, client=self._client)

    async def connect(self) -> asyncpg.Connection:
        """A new connection of its own, set up as every connection of this store is."""
        return await connect(self._config)

    async def enqueue_jobs(self, jobs: Sequence[NewJob]) -> Collection[UUID]:
        if len(jobs) == 1 and jobs[0].is_plain:
            return await self._client.run(
                "enqueue_jobs", functools.partial(insert_plain, job=jobs[0]), is_single=True
            )
        if len(jobs) < _BULK_FROM:
            return await self._client.run(
                "enqueue_jobs",
                lambda connection: insert_jobs(connection, jobs),
                is_single=len(jobs) == 1,
            )

        async def insert_in_bulk(connection: asyncpg.Connection) -> Collection[UUID]:
            async with connection.transaction():
                await connection.execute("set local statement_timeout = 0")
                return await insert_jobs(connection, jobs)

        deadline_s = self._config.statement_s + len(jobs) / _BULK_JOBS_PER_S
        return await self._client.run("enqueue_jobs", insert_in_bulk, deadline_s=deadline_s)

    async def claim_jobs(
        self,
        token: UUID,
        wanted: Sequence[Wanted],
        *,
        kinds: Sequence[str],
        room: int,
        lease_s: float,
        claimed_at: float,
        over: Sequence[UUID] = (),
    ) -> list[Job]:
        frontiers: list[int] = []
        ends: list[int] = []
        for one in wanted:
            frontiers += one.frontiers
            ends += one.ends or []
        rows = await self._claim.fetch(
            "claim_jobs",
            token,
            lease_s,
            [one.topic for one in wanted],
            [one.room for one in wanted],
            frontiers,
            kinds,
            room,
            over,
            ends or None,
        )
        # A slice of a record is a tuple at once: 0.1 µs a job less than to go through the record.
        jobs = list(starmap(Job, map(concat, map(_values, rows), repeat((token, claimed_at)))))
        # The update returns them in the order of its index. Two sorts by a number: 0.1 µs a job;
        # one by both: 0.2.
        jobs.sort(key=_seq)
        jobs.sort(key=_priority)
        return jobs

    async def release_claim(self, token: UUID) -> int:
        rows = await self._claim.fetch("release_claim", token)
        return int(rows[0]["released"])

    async def finish_jobs(self, finishes: Finishes) -> Collection[UUID]:
        return await finish_jobs(self._report.fetch, finishes)

    async def return_jobs(self, returns: Sequence[Return]) -> dict[UUID, str]:
        return await return_jobs(self._report.fetch, returns)

    def transaction(self, job: Job, ending: Ending) -> Transaction:
        """A handler's own transaction, ended with its job: the one thing of many round trips."""
        return FencedTransaction(
            self.handler_connections,
            self._config,
            job,
            ending,
            verify=self.verify_claims,
            observe=self._observe,
        )

    async def verify_claims(self, claims: Sequence[Claimed], worker: str) -> dict[UUID, Checked]:
        return await self._verify(self._report, claims, worker)

    async def verify_leases(self, claims: Sequence[Claimed], worker: str) -> dict[UUID, Checked]:
        return await self._verify(self._beat, claims, worker)

    async def _verify(
        self, lane: Lane, claims: Sequence[Claimed], worker: str
    ) -> dict[UUID, Checked]:
        rows = await lane.fetch("verify_claims", *fences(claims), worker)
        return {row["id"]: Checked(row["verdict"], row["current_token"]) for row in rows}

    async def extend_leases(self, claims: Sequence[Claimed], lease_s: float) -> dict[UUID, bool]:
        rows = await self._beat.fetch("extend_leases", *fences(claims), lease_s)
        return {row["id"]: row["cancel_requested"] for row in rows}

    async def reap_jobs(
        self, *, limit: int, after: UUID, dead_worker: tuple[UUID, UUID] | None = None
    ) -> list[Reaped]:
        first, last = dead_worker or (None, None)
        rows = await self._upkeep.fetch("reap_jobs", first, last, after, limit)
        return [Reaped(*row) for row in rows]

    async def list_expired(self, *, limit: int, after: UUID) -> list[UUID]:
        rows = await self._upkeep.fetch("list_expired", after, limit)
        return [row["id"] for row in rows]

    async def review_claims(self, limit: int) -> int:
        return int((await self._upkeep.fetch("review_claims", limit))[0]["forgotten"])

    async def note_claims(self, *, limit: int, after: UUID) -> tuple[UUID | None, int]:
        [row] = await self._upkeep.fetch("note_claims", after, limit)
        return row["last"], int(row["noted"])

    async def promote_jobs(self, limit: int) -> Promotion:
        rows = await self._upkeep.fetch("promote_jobs", limit)
        return Promotion(rows[0]["promoted"], rows[0]["next_due_s"])

    async def cancel_jobs(self, ids: Sequence[UUID]) -> dict[UUID, CancelResult]:
        rows = await self._client.fetch("cancel_jobs", ids)
        return {
            row["id"]: "requested" if row["state"] == "running" else "cancelled" for row in rows
        }

    async def retry_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        return read_ids(await self._client.fetch("retry_jobs", ids))

    async def discard_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        return read_ids(await self._client.fetch("discard_jobs", ids))

    async def start_attempt(
        self, task: UUID, *, id: UUID, payload: str | None, delay_s: float
    ) -> bool:
        return bool(await self._client.fetch("start_attempt", task, id, payload, delay_s))

    async def escalate_jobs(self, ids: Sequence[UUID]) -> set[UUID]:
        return read_ids(await self._client.fetch("escalate_jobs", ids))

    async def list_lineage(self, id: UUID, limit: int) -> list[JobRecord]:
        return [job_record(row) for row in await self._client.fetch("list_lineage", id, limit)]

    async def get_jobs(self, ids: Sequence[UUID]) -> dict[UUID, JobRecord]:
        rows = await self._client.fetch("get_jobs", ids)
        return {row["id"]: job_record(row) for row in rows}

    async def list_jobs(
        self,
        *,
        states: Sequence[State] | None,
        topic: str | None,
        kind: str | None,
        before: UUID | None,
        limit: int,
    ) -> list[JobRecord]:
        rows = await self._client.fetch("list_jobs", states, topic, kind, before, limit)
        return [job_record(row) for row in rows]

    async def find_unique(self, keys: Sequence[str]) -> dict[str, UUID]:
        rows = await self._client.fetch("find_unique", keys)
        return {row["unique_key"]: row["id"] for row in rows}

    async def set_paused(self, topic: str, paused: bool) -> None:
        await self._client.fetch("set_paused", topic, paused)

    async def list_gates(self) -> list[Gate]:
        return [Gate(*row) for row in await self._client.fetch("list_topics")]

    async def mark_idle(self, worker: UUID, topics: Sequence[str]) -> None:
        await self._claim.fetch("mark_idle", worker, topics)

    async def unmark_idle(self, worker: UUID) -> None:
        await self._claim.fetch("unmark_idle", worker)

    async def survey_topics(self, bound: int) -> list[TopicDepth]:
        return [TopicDepth(*row) for row in await self._upkeep.fetch("survey_topics", bound)]

    async def survey_unserved(self, limit: int) -> dict[str, int]:
        rows = await self._upkeep.fetch("survey_unserved", limit)
        return {row["kind"]: row["jobs"] for row in rows}

    async def count_history(self, bound: int) -> HistoryCounts:
        rows = await self._client.fetch("count_history", bound)
        return HistoryCounts(*rows[0])

    async def announce_worker(self, worker: WorkerInfo) -> None:
        await self._upkeep.fetch("announce_worker", *msgspec.structs.astuple(worker))

    async def forget_worker(self, worker: UUID) -> None:
        await self._upkeep.fetch("forget_worker", worker)

    async def prune_workers(self, older_than_s: float) -> None:
        await self._upkeep.fetch("prune_workers", older_than_s)

    async def make_partitions(self, days_ahead: int) -> int:
        rows = await self._upkeep.fetch("make_partitions", days_ahead)
        return int(rows[0]["made"])

    async def prune_history(self, older_than_s: float) -> list[str]:
        rows = await self._upkeep.fetch("drop_partitions", older_than_s)
        await self._upkeep.fetch("prune_default_history", older_than_s, self._config.prune_max)
        return [row["name"] for row in rows]

    async def listen(
        self, heard: Heard, *, presence: int, probe_s: float, probe_deadline_s: float
    ) -> None:
        await listen(
            self.connect,
            heard,
            presence=presence,
            probe_s=probe_s,
            probe_deadline_s=probe_deadline_s,
        )

    async def close(self) -> None:
        for lane in self.lanes.values():
            await lane.close()
        await self.handler_connections.close()
