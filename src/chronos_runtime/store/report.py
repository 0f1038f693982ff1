"""How outcomes are written: for a batch of the reporter, and for the one of a transaction."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from operator import attrgetter
from uuid import UUID

import asyncpg

from chronos_runtime.job import Finishes, Job, Return, Successes
from chronos_runtime.likeness import runs_of_tokens
from chronos_runtime.store import Checked, Claimed
from chronos_runtime.store.scalars import Scalars

Fetch = Callable[..., Awaitable[list[asyncpg.Record]]]
"""Called with the name of a statement and its arguments."""
Verify = Callable[[Sequence[Claimed], str], Awaitable[dict[UUID, Checked]]]

_Ends = tuple[Sequence[str] | None, Sequence[str | None] | None, Sequence[str | None] | None, bool]
"""How jobs ended: their states, results and errors, or none; and whether any was a fire."""

_PLAIN: _Ends = (None, None, None, False)

_by_job_id = attrgetter("job.id")


async def finish_jobs(fetch: Fetch, finishes: Finishes) -> Collection[UUID]:
    """Move ended jobs to the history; the ids whose claim still stood."""
    if isinstance(finishes, Successes):
        return await _finish_successes(fetch, finishes)
    ids = [one.job.id for one in finishes]
    ascending = sorted(ids)
    if ids != ascending:  # Jobs of one producer mostly end in the order of their ids.
        finishes = sorted(finishes, key=_by_job_id)
    jobs = [one.job for one in finishes]
    states = [one.state for one in finishes]
    results = [one.result for one in finishes]
    errors = [one.error for one in finishes]
    ends: _Ends = (
        # Each array of thousands costs the server, too: most are not needed.
        None if states.count("succeeded") == len(states) else states,
        results if any(results) else None,
        errors if any(errors) else None,
        any(job.schedule_id is not None for job in jobs),
    )
    return await _finish(fetch, ascending, jobs, [one.run_s for one in finishes], ends)


async def _finish_successes(fetch: Fetch, successes: Successes) -> Collection[UUID]:
    jobs, run_s = successes.jobs, successes.run_s
    ids = [job.id for job in jobs]
    ascending = sorted(ids)
    if ids != ascending:
        places = sorted(range(len(ids)), key=ids.__getitem__)
        jobs, run_s = [jobs[place] for place in places], [run_s[place] for place in places]
    return await _finish(fetch, ascending, jobs, run_s, _PLAIN)


async def _finish(
    fetch: Fetch, ids: Sequence[UUID], jobs: Sequence[Job], run_s: Sequence[float], ends: _Ends
) -> Collection[UUID]:
    tokens: list[UUID] = []
    places: list[int] = []  # In `ids`, from 1, at which each of the tokens comes into force.
    place = 1
    for token, count in runs_of_tokens(jobs):
        tokens.append(token)
        places.append(place)
        place += count
    [row] = await fetch("finish_jobs", Scalars(ids), tokens, places, Scalars(run_s), *ends)
    moved = row["moved"]
    return ids if moved is None else moved  # To make a set takes 0.04 µs each.


async def return_jobs(fetch: Fetch, returns: Sequence[Return]) -> dict[UUID, str]:
    """Give jobs back to the queue; the states they came to."""
    rows = await fetch(
        "return_jobs",
        [one.job.id for one in returns],
        [one.job.lease_token for one in returns],
        [one.job.attempt for one in returns],
        [one.delay_s for one in returns],
        [one.error for one in returns],
        [one.gives_back for one in returns],
    )
    return {row["id"]: row["state"] for row in rows}
