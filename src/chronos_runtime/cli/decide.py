"""Retry and discard: what to do with dead jobs, one by one or all of them."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from uuid import UUID

import msgspec

from chronos_runtime.cli.database import open_store
from chronos_runtime.cli.output import print_json, print_line, progress_bar, say
from chronos_runtime.client import COUNT_BOUND, Client
from chronos_runtime.errors import InputError, StoreError, StoreUnavailable
from chronos_runtime.store.postgres import PostgresStore

_PAGE = 500  # Dead jobs per statement: small enough that one that clashes costs little.


class DeadJobs(msgspec.Struct, frozen=True):
    """Which dead jobs are meant: those with these ids, or all of a topic and kind."""

    ids: list[UUID]
    is_all: bool
    topic: str | None
    kind: str | None


class Decision(msgspec.Struct, frozen=True):
    """What is done to them; `one` says why it cannot, `many` leaves out what it cannot."""

    word: str
    one: Callable[[Client, UUID], Awaitable[None]]
    many: Callable[[PostgresStore, Sequence[UUID]], Awaitable[set[UUID]]]


RETRY = Decision("retried", Client.retry, PostgresStore.retry_jobs)
DISCARD = Decision("discarded", Client.discard, PostgresStore.discard_jobs)


async def decide(
    decision: Decision,
    wanted: DeadJobs,
    dsn: str | None,
    file: Path | None,
    is_json: bool,
) -> None:
    """Do it, and print what was done."""
    if bool(wanted.ids) == wanted.is_all:
        raise InputError("ids: give the jobs' ids, or --all for all dead ones")
    async with open_store(dsn, file) as store:
        if wanted.is_all:
            done = await _decide_all(decision, wanted, store)
            if is_json:
                print_json({decision.word: done})
            else:
                print_line(f"{decision.word} {done:,} jobs")
            return
        for id in wanted.ids:
            await decision.one(Client(store), id)
            if not is_json:
                print_line(f"{id} {decision.word}")
    if is_json:
        print_json({decision.word: len(wanted.ids)})


async def _decide_all(decision: Decision, wanted: DeadJobs, store: PostgresStore) -> int:
    """Page by page towards older ids, so that what dies again meanwhile is not met twice."""
    counted = await store.count_history(COUNT_BOUND)
    is_exact = wanted.topic is None and wanted.kind is None and counted.dead <= COUNT_BOUND
    done = 0
    before: UUID | None = None
    with progress_bar(f"{decision.word}", counted.dead if is_exact else None) as advance:
        while page := await store.list_jobs(
            states=["dead"], topic=wanted.topic, kind=wanted.kind, before=before, limit=_PAGE
        ):
            before = page[-1].id
            done += await _decide_page(decision, store, [job.id for job in page])
            advance(len(page))
    return done


async def _decide_page(decision: Decision, store: PostgresStore, ids: list[UUID]) -> int:
    try:
        return len(await decision.many(store, ids))
    except StoreUnavailable:
        raise
    except StoreError:  # One whose key is taken meanwhile fails them all: find it.
        done = 0
        for id in ids:
            try:
                done += len(await decision.many(store, [id]))
            except StoreUnavailable:
                raise
            except StoreError as error:
                say(f"{id} not {decision.word}: {error}")
        return done
