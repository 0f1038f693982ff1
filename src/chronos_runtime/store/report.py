"""How outcomes are written: for a batch of the reporter, and for the one of a transaction."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import pairwise
from operator import attrgetter
from uuid import UUID

import asyncpg

from chronos_runtime.job import Finish, Job, Return
from chronos_runtime.store import Checked, Claimed
from chronos_runtime.store.scalars import Scalars

Fetch = Callable[..., Awaitable[list[asyncpg.Record]]]
"""Called with the name of a statement and its arguments."""
Verify = Callable[[Sequence[Claimed], str], Awaitable[dict[UUID, Checked]]]

_by_job_id = attrgetter("job.id")


async def finish_jobs(fetch: Fetch, finishes: Sequence[Finish]) -> Collection[UUID]:
    """Move ended jobs to the history; the ids whose claim still stood."""
    ids = [one.job.id for one in finishes]
    ascending = sorted(ids)
    if ids != ascending:  # Jobs of one producer mostly end in the order of their ids.
        finishes, ids = sorted(finishes, key=_by_job_id), ascending
    jobs = [one.job for one in finishes]
    tokens, places = _runs_of_tokens(jobs)
    # Most often all are plain successes: found in one look at each, they need no other.
    odd = [
        one
        for one in finishes
        if one.error is not None or one.result is not None or one.state != "succeeded"
    ]
    told = finishes if odd else []
    states = [one.state for one in told]
    results = [one.result for one in told]
    errors = [one.error for one in told]
    rows = await fetch(
        "finish_jobs",
        Scalars(ids),
        tokens,
        places,
        Scalars([one.run_s for one in finishes]),
        # Each array of thousands costs the server, too: most are not needed.
        None if states.count("succeeded") == len(states) else states,
        results if any(results) else None,
        errors if any(errors) else None,
        bool([job for job in jobs if job.schedule_id is not None]),
    )
    moved = rows[0]["moved"]
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


def _runs_of_tokens(jobs: Sequence[Job]) -> tuple[list[UUID], list[int]]:
    """The lease tokens without repetition, and the place (from 1) at which each comes into force.

    Jobs of one claim stand mostly together, and they share their token.
    """
    tokens = [job.lease_token for job in jobs]
    if tokens and tokens == tokens[:1] * len(tokens):
        return [tokens[0]], [1]
    first = [
        place
        for place, (before, token) in enumerate(pairwise([None, *tokens]), start=1)
        if token is not before
    ]
    return [tokens[place - 1] for place in first], first
