"""The model and the real store, side by side: whatever is done to both, they look the same.

`CHRONOS_MODEL_EXAMPLES` asks for more histories than the few of every run.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chronos_runtime.errors import StoreError
from chronos_runtime.ids import Worker, new_job_ids
from chronos_runtime.job import Finish, Job, Return, State
from chronos_runtime.store import JobRecord, Store, Wanted
from tests.store.world import FIRST, MemoryWorld, PostgresWorld, World, claimed, error_of, new_job

EXAMPLES = int(os.environ.get("CHRONOS_MODEL_EXAMPLES", "30"))
STEPS = 40

# Time passes by hundreds of seconds and every delay and lease ends half-way between, so that
# the seconds a slow machine takes never decide which came first.
PASSES_S = st.sampled_from([100.0, 200.0])
DELAYS_S = st.sampled_from([None, 0.0, 50.0, 150.0])
LEASES_S = st.sampled_from([50.0, 150.0])
SLACK_S = 45.0

TOPICS = ("mail", "sms")
KINDS = ("greet", "other")
KEYS = ("k", "l")

_EMPTY = """
truncate chronos.jobs, chronos.job_history, chronos.topics, chronos.idle_marks restart identity
"""


class Stage:
    """The database that all histories play on, and the loop they play in."""

    def __init__(self, runner: asyncio.Runner, world: PostgresWorld) -> None:
        self.run = runner.run
        self.world = world


@contextmanager
def open_stage(dsn: str) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        back_door = runner.run(asyncpg.connect(dsn))
        world = PostgresWorld(dsn, back_door)
        try:
            yield Stage(runner, world)
        finally:
            runner.run(world.store.close())
            runner.run(back_door.close())


class Twins(RuleBasedStateMachine):
    """Does the same to both stores and compares all that can be seen."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.real, self.model = stage.world, MemoryWorld()
        self.workers = (Worker(b"worker-1"), Worker(b"worker-2"))
        self.ids: list[UUID] = []
        self.claims: list[Job] = []

    @initialize()
    def empty(self) -> None:
        self.stage.run(self.real.back_door.execute(_EMPTY))

    def both(self, act: Callable[[Store], Awaitable[Any]]) -> Any:
        """What both stores answer; the same, or the history ends here."""
        self.model.now += 0.001  # As in the real one, no two steps at the same instant.
        answers = [self.stage.run(_answer(act, one.store)) for one in (self.real, self.model)]
        assert answers[0] == answers[1]
        return answers[0]

    def ids_in(self, *states: State) -> list[UUID]:
        """The jobs in these states."""
        records = self.stage.run(_records(self.model))
        return [one.id for one in records if one.state in states]

    def some_claims(self, data: st.DataObject) -> list[Job]:
        """A few claims of different jobs, most of which still stand."""
        tokens = {one.lease_token for one in self.stage.run(_records(self.model))}
        held = [job for job in self.claims if job.lease_token in tokens]
        pool = st.sampled_from(held * 3 + self.claims[-5:])
        return data.draw(st.lists(pool, min_size=1, max_size=3, unique_by=lambda job: job.id))

    @rule(
        count=st.integers(1, 3),
        topic=st.sampled_from(TOPICS),
        kind=st.sampled_from(KINDS),
        priority=st.sampled_from([0, 5, 9]),
        delay_s=DELAYS_S,
        max_attempts=st.integers(1, 3),
        keys=st.lists(st.sampled_from([None, None, *KEYS]), min_size=3, max_size=3),
    )
    def enqueue(self, count: int, keys: list[str | None], **fields: object) -> None:
        jobs = [
            new_job(id=id, unique_key=key, **fields)
            for id, key in zip(new_job_ids(count), keys, strict=False)
        ]
        self.both(lambda store: store.enqueue_jobs(jobs))
        self.ids += [job.id for job in jobs]

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def enqueue_again(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.ids))
        self.both(lambda store: store.enqueue_jobs([new_job(id=id, topic="mail")]))

    @rule(
        worker=st.integers(0, 1),
        topics=st.permutations(TOPICS),
        rooms=st.lists(st.integers(0, 4), min_size=2, max_size=2),
        room=st.integers(1, 5),
        frontier=st.sampled_from([0, 0, 0, 3, 9]),
        kinds=st.sampled_from([KINDS, KINDS, KINDS[:1]]),
        lease_s=LEASES_S,
    )
    def claim(
        self,
        *,
        worker: int,
        topics: Sequence[str],
        rooms: list[int],
        room: int,
        frontier: int,
        kinds: Sequence[str],
        lease_s: float,
    ) -> None:
        token = self.workers[worker].next_token()
        wanted = [
            Wanted(topic, one, [frontier] * 10) for topic, one in zip(topics, rooms, strict=True)
        ]

        async def claim(store: Store) -> list[Job]:
            jobs = await store.claim_jobs(
                token, wanted, kinds=kinds, room=room, lease_s=lease_s, claimed_at=0.0
            )
            # How long it waited is for the clock to say.
            return [msgspec.structs.replace(job, wait_s=0.0) for job in jobs]

        self.claims += self.both(claim)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), state=st.sampled_from(["succeeded", "dead", "dead", "cancelled"]))
    def finish(self, data: st.DataObject, state: Any) -> None:
        batch = self.some_claims(data)
        error = None if state == "succeeded" else error_of(self.workers[0], batch[0])
        finishes = [Finish(job, state, 0.5, result="1", error=error) for job in batch]
        self.both(lambda store: store.finish_jobs(finishes))

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        why=st.sampled_from(["retry", "snooze", "release", "interrupt"]),
        delay_s=DELAYS_S,
        fails=st.booleans(),
    )
    def give_back(
        self, data: st.DataObject, why: Any, delay_s: float | None, *, fails: bool
    ) -> None:
        batch = self.some_claims(data)
        error = error_of(self.workers[0], batch[0]) if fails else None
        returns = [Return(job, why, delay_s=delay_s, error=error) for job in batch]
        self.both(lambda store: store.return_jobs(returns))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), lease_s=LEASES_S)
    def extend(self, data: st.DataObject, lease_s: float) -> None:
        claims = [claimed(job) for job in self.some_claims(data)]
        self.both(lambda store: store.extend_leases(claims, lease_s))

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def release_claim(self, data: st.DataObject) -> None:
        token = self.some_claims(data)[0].lease_token
        self.both(lambda store: store.release_claim(token))

    @rule(seconds=PASSES_S)
    def pass_time(self, seconds: float) -> None:
        for world in (self.real, self.model):
            self.stage.run(world.pass_time(seconds))

    @rule(
        data=st.data(),
        limit=st.sampled_from([1, 2, 100]),
        dead=st.sampled_from([None, None, 0, 1]),
        late=st.booleans(),
    )
    def reap(self, data: st.DataObject, limit: int, dead: int | None, *, late: bool) -> None:
        if late:
            self.pass_time(200.0)
        after = data.draw(st.sampled_from([FIRST, FIRST, *self.ids]))
        tokens = None
        if dead is not None:
            tokens = (self.workers[dead].id, self.workers[dead].last_token)
        self.both(lambda store: store.list_expired(limit=limit, after=after))
        self.both(lambda store: store.reap_jobs(limit=limit, after=after, dead_worker=tokens))

    @rule()
    def promote(self) -> None:
        async def promote(store: Store) -> tuple[int, bool]:
            promotion = await store.promote_jobs(1_000)
            return promotion.promoted, promotion.next_due_s is None

        self.both(promote)

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), state=st.sampled_from(["running", "running", "ready", None]))
    def cancel(self, data: st.DataObject, state: Any) -> None:
        pool = (state and self.ids_in(state)) or self.ids
        batch = data.draw(st.lists(st.sampled_from(pool), max_size=2))
        self.both(lambda store: store.cancel_jobs(batch))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.ids_in("dead") or self.ids))
        self.both(lambda store: store.retry_jobs([id]))

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.ids))
        self.both(lambda store: store.discard_jobs([id]))

    @rule(topic=st.sampled_from([*TOPICS, "*"]), paused=st.sampled_from([True, False, False]))
    def pause(self, topic: str, *, paused: bool) -> None:
        self.both(lambda store: store.set_paused(topic, paused=paused))

    @invariant()
    def every_job_looks_the_same(self) -> None:
        newest = list({job.id: claimed(job) for job in self.claims}.values())
        oldest = list({job.id: claimed(job) for job in reversed(self.claims)}.values())
        self.both(lambda store: store.verify_claims(newest, self.workers[0].name))
        self.both(lambda store: store.verify_leases(oldest, self.workers[0].name))
        self.both(lambda store: store.find_unique(KEYS))
        self.both(_depths)
        real, model = (self.stage.run(_records(world)) for world in (self.real, self.model))
        assert [_seen(one) for one in real] == [_seen(one) for one in model]
        now = self.stage.run(self.real.back_door.fetchval("select now()"))
        for one, other in zip(real, model, strict=True):
            for field in ("run_at", "enqueued_at", "lease_until", "finished_at"):
                real_age_s = _age_s(getattr(one, field), now.timestamp())
                model_age_s = _age_s(getattr(other, field), self.model.now)
                assert real_age_s == pytest.approx(model_age_s, abs=SLACK_S), field


async def _answer(act: Callable[[Store], Awaitable[Any]], store: Store) -> Any:
    try:
        return await act(store)
    except StoreError:
        return StoreError


async def _records(world: World) -> list[JobRecord]:
    records = await world.store.list_jobs(
        states=None, topic=None, kind=None, before=None, limit=1_000
    )
    # An id may be used again after its job ended.
    return sorted(
        records, key=lambda one: (one.id, one.finished_at or datetime.max.replace(tzinfo=UTC))
    )


async def _depths(store: Store) -> list[tuple[object, ...]]:
    depths = await store.survey_topics(3)
    return sorted((one.topic, one.state, one.jobs, one.is_bound) for one in depths)


def _seen(record: JobRecord) -> tuple[object, ...]:
    """All that is to be seen of a job but its instants."""
    errors = [{**error, "at": "at" in error} for error in record.errors]
    return (
        record.id,
        record.state,
        record.topic,
        record.kind,
        record.priority,
        record.attempt,
        record.max_attempts,
        record.timeout_s,
        record.unique_key,
        record.payload,
        record.result,
        errors,
        record.lease_token,
        record.cancel_requested,
        record.run_s,
    )


def _age_s(instant: datetime | None, now: float) -> float | None:
    return None if instant is None else now - instant.timestamp()


@pytest.fixture
def setting() -> str:
    """Not one store or the other: both."""
    return "both"


def test_the_model_and_the_real_store_cannot_be_told_apart(dsn: str) -> None:
    with open_stage(dsn) as stage:

        class TwinsOnStage(Twins):
            def __init__(self) -> None:
                super().__init__(stage)

        run_state_machine_as_test(
            TwinsOnStage,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
