"""What handlers of workers that are killed write down, and the gates they wait at."""

import os
from pathlib import Path

import anyio
import asyncpg

from chronos_runtime import Failure, Job

GATE_POLL_S = 0.05


class Evidence:
    """Writes down what handlers do."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self.pool = pool

    async def add(self, job: Job, what: str) -> None:
        """One fact, committed."""
        await self.pool.execute(
            "insert into evidence (job_id, attempt, token, pid, what) values ($1, $2, $3, $4, $5)",
            job.id,
            job.attempt,
            job.lease_token,
            os.getpid(),
            what,
        )

    async def add_occurrence(self, job: Job) -> None:
        """That a fire runs, committed."""
        await self.pool.execute(
            "insert into seen (schedule_id, occurrence, job_id, attempt) values ($1, $2, $3, $4)",
            job.schedule_id,
            job.occurrence,
            job.id,
            job.attempt,
        )

    async def add_asked(self, failure: Failure) -> None:
        """That a supervisor was asked, committed."""
        await self.pool.execute(
            "insert into evidence (job_id, attempt, token, pid, what)"
            " values ($1, $2, $3, $4, 'asked')",
            failure.id,
            failure.attempt,
            failure.lineage_id,
            os.getpid(),
        )

    async def count(self, job: Job, what: str) -> int:
        """How often that is on record for a job."""
        counted: int = await self.pool.fetchval(
            "select count(*) from evidence where job_id = $1 and what = $2", job.id, what
        )
        return counted


async def wait_at(gate: str, attempt: int) -> None:
    """Wait until the test opens the gate, for everybody or for this attempt; none is open."""
    while gate and not is_open(gate, attempt):  # noqa: ASYNC110 - another process opens it
        await anyio.sleep(GATE_POLL_S)


def is_open(gate: str, attempt: int) -> bool:
    return Path(gate).exists() or Path(f"{gate}.{attempt}").exists()
