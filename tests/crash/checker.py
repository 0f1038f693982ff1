"""The independent checker: it judges by rows alone and shares no code with the runtime.

What the handlers did stands in `evidence`; what was accepted of it stands in the queue's own
tables. The two must tell one story.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from tests.eventually import eventually

DEADLINE_S = 60.0
ERRORS_KEPT = 10
LOOK_S = 0.05  # Between two looks at the database, which the workers need more.

EVIDENCE = """
create table evidence (
    job_id uuid not null,
    attempt integer not null,
    token uuid not null,
    pid integer not null,
    what text not null,
    at timestamptz not null default clock_timestamp()
)
"""


@dataclass
class Report:
    """What was found. Only the faults must be empty; the rest is for tests to judge."""

    states: Counter[str]
    history: dict[UUID, dict[str, Any]]
    live: dict[UUID, dict[str, Any]]
    starts: Counter[tuple[UUID, int]]
    """How often a handler started, by job and attempt."""
    starters: dict[tuple[UUID, int], set[int]]
    faults: dict[str, list[UUID]] = field(default_factory=dict)

    def attempts_started(self, id: UUID) -> list[int]:
        """Which attempts of a job ever started, in order."""
        return sorted(attempt for job, attempt in self.starts if job == id)


class Checker:
    """Looks at the evidence, and at the queue."""

    def __init__(self, queue: asyncpg.Pool, evidence: asyncpg.Pool) -> None:
        self.queue = queue
        self.evidence = evidence

    async def started(self, *, attempt: int | None = None) -> int:
        """How many handlers have started, at that attempt."""
        counted: int = await self.evidence.fetchval(
            "select count(*) from evidence"
            " where what = 'start' and ($1::integer is null or attempt = $1)",
            attempt,
        )
        return counted

    async def ended(self) -> int:
        """How many jobs stand in the history."""
        counted: int = await self.queue.fetchval("select count(*) from chronos.job_history")
        return counted

    async def live(self, state: str | None = None) -> int:
        """How many jobs are live, in that state."""
        counted: int = await self.queue.fetchval(
            "select count(*) from chronos.all_jobs where finished_at is null"
            " and ($1::text is null or state::text = $1)",
            state,
        )
        return counted

    async def wait_started(self, count: int, *, attempt: int | None = None) -> None:
        """Wait until so many handlers have started."""

        async def enough() -> bool:
            return await self.started(attempt=attempt) >= count

        await eventually(enough, DEADLINE_S, poll_s=LOOK_S)

    async def wait_drained(self) -> None:
        """Wait until no job is live."""

        async def drained() -> bool:
            return await self.live() == 0

        await eventually(drained, DEADLINE_S, poll_s=LOOK_S)

    async def wait_expired(self) -> None:
        """Wait until every lease there is has run out, by the database's own clock."""

        async def expired() -> bool:
            is_expired: bool = await self.queue.fetchval(
                "select coalesce(bool_and(lease_until < clock_timestamp()), false)"
                " from chronos.jobs where lease_token is not null"
            )
            return is_expired

        await eventually(expired, DEADLINE_S, poll_s=LOOK_S)

    async def report(self, acknowledged: Collection[UUID]) -> Report:
        """Everything there is to know about the jobs whose enqueue was acknowledged."""
        history_rows = await self.queue.fetch(
            "select id, state::text as state, kind, attempt, max_attempts, lease_token, result,"
            " errors from chronos.job_history"
        )
        live_rows = await self.queue.fetch(
            "select id, state::text as state, kind, attempt, max_attempts, lease_token, errors"
            " from chronos.all_jobs where finished_at is null"
        )
        evidence = await self.evidence.fetch("select * from evidence order by at")
        starts = [row for row in evidence if row["what"] == "start"]
        report = Report(
            states=Counter(row["state"] for row in [*history_rows, *live_rows]),
            history={row["id"]: _plain(row) for row in history_rows},
            live={row["id"]: _plain(row) for row in live_rows},
            starts=Counter((row["job_id"], row["attempt"]) for row in starts),
            starters={},
        )
        for row in starts:
            report.starters.setdefault((row["job_id"], row["attempt"]), set()).add(row["pid"])
        in_history = Counter(row["id"] for row in history_rows)
        faults = {
            "lost": [id for id in acknowledged if id not in in_history and id not in report.live],
            "ended twice": [id for id, times in in_history.items() if times > 1],
            "ended and live": [id for id in report.live if id in in_history],
            "one claim started twice": _repeated(
                Counter((r["job_id"], r["token"]) for r in starts)
            ),
            "one attempt started twice": _started_too_often(report.starts, evidence),
            "result of another attempt": _foreign(report),
            "failed without a word": _silent(report),
        }
        report.faults = {what: ids for what, ids in faults.items() if ids}
        return report


@asynccontextmanager
async def open_checker(queue_dsn: str, evidence_dsn: str) -> AsyncIterator[Checker]:
    """A checker with connections of its own; it makes the table of evidence."""
    async with (
        asyncpg.create_pool(queue_dsn, min_size=0, max_size=2) as queue,
        asyncpg.create_pool(evidence_dsn, min_size=0, max_size=2) as evidence,
    ):
        await evidence.execute(EVIDENCE)
        yield Checker(queue, evidence)


def _plain(row: asyncpg.Record) -> dict[str, Any]:
    values = dict(row)
    for column in ("errors", "result"):
        if values.get(column) is not None:
            values[column] = json.loads(values[column])
    values["errors"] = values["errors"] or []
    return values


def _repeated(counts: Counter[tuple[UUID, UUID]]) -> list[UUID]:
    return [job for (job, _), times in counts.items() if times > 1]


def _started_too_often(
    starts: Counter[tuple[UUID, int]], evidence: list[asyncpg.Record]
) -> list[UUID]:
    """A snooze gives its attempt back, so that number may start once more; none other may."""
    snoozes = Counter((r["job_id"], r["attempt"]) for r in evidence if r["what"] == "snooze")
    return [job for (job, attempt), times in starts.items() if times > 1 + snoozes[job, attempt]]


def _foreign(report: Report) -> list[UUID]:
    """Succeeded jobs whose result was not made by the attempt and process on record."""
    foreign = []
    for id, row in report.history.items():
        if row["state"] != "succeeded":
            continue
        made_by = row["result"] or {}
        starters = report.starters.get((id, row["attempt"]), set())
        if made_by.get("attempt") != row["attempt"] or made_by.get("pid") not in starters:
            foreign.append(id)
    return foreign


def _silent(report: Report) -> list[UUID]:
    """Jobs with an attempt used up that left no error behind."""
    silent = []
    for id, row in (report.history | report.live).items():
        goes_well = row["state"] in ("running", "succeeded")
        failures = row["attempt"] - 1 if goes_well else row["attempt"]
        if len(row["errors"]) < min(failures, ERRORS_KEPT):
            silent.append(id)
    return silent
