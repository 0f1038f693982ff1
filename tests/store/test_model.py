"""The model and the real store, side by side: whatever is done to both, they look the same.

`CHRONOS_MODEL_EXAMPLES` asks for more histories than the few of every run.
"""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from chronos_runtime.errors import StoreError
from chronos_runtime.ids import Worker
from chronos_runtime.job import Finish, Job, Return, State
from chronos_runtime.store import JobRecord, NewJob, Store, Wanted
from chronos_runtime.store.offers import Offer
from tests.store.world import (
    FIRST,
    PRESENCE,
    MemoryWorld,
    PostgresWorld,
    World,
    claimed,
    error_of,
    new_job,
)

EXAMPLES = int(os.environ.get("CHRONOS_MODEL_EXAMPLES", "20"))
STEPS = 60

# Time passes by hundreds of seconds and every delay and lease ends half-way between, so that
# the seconds a slow machine takes never decide which came first.
PASSES_S = st.sampled_from([100.0, 200.0])
DELAYS_S = st.sampled_from([None, None, 0.0, 50.0, 150.0])
LONG_LEASE_S = 150.0
LEASES_S = st.sampled_from([50.0, LONG_LEASE_S])
SLACK_S = 45.0

TOPICS = ("mail", "sms", "chronos")
KINDS = ("greet", "other", "chronos.supervise.s")
SUPERVISORS = (None, None, "", "s", "s")
KEYS = ("k", "l")
END_OF_TIME = datetime.max.replace(tzinfo=UTC)

_EMPTY = """
truncate chronos.jobs, chronos.job_history, chronos.claims, chronos.topics, chronos.idle_marks,
    chronos.offers
restart identity
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
        # Somebody listens there, as far as whoever enqueues can tell.
        runner.run(back_door.execute("select pg_advisory_lock($1)", PRESENCE))
        try:
            yield Stage(runner, world)
        finally:
            runner.run(world.store.close())
            runner.run(back_door.close())


class Twins:
    """Does the same to both stores and compares all that can be seen."""

    def __init__(self, stage: Stage, data: st.DataObject) -> None:
        self.run = stage.run
        self.draw = data.draw
        self.real, self.model = stage.world, MemoryWorld()
        self.model.store._bell._presences[PRESENCE] = lambda *_: None  # type: ignore[attr-defined]
        self.workers = (Worker(b"worker-1"), Worker(b"worker-2"))
        self.ids: list[UUID] = []
        # As ids are made, but the same in every run of a history: they are an order, too, in which
        # jobs are reaped, and the ids of facts follow from them.
        self._mint = (UUID(int=ms << 80 | 7 << 76 | 2 << 62) for ms in itertools.count(1 << 40))
        self.claims: list[Job] = []
        self.run(self.real.back_door.execute(_EMPTY))

    def both(self, act: Callable[[Store], Awaitable[Any]]) -> Any:
        """What both stores answer; the same, or the history ends here."""
        self.model.now += 0.001  # As in the real one, no two steps at the same instant.
        answers = [self.run(_answer(act, one.store)) for one in (self.real, self.model)]
        assert answers[0] == answers[1]
        return answers[0]

    def ids_in(self, *states: State) -> list[UUID]:
        """The jobs in these states; all jobs, where there are none."""
        records = self.run(_records(self.model))
        return [one.id for one in records if one.state in states] or self.ids

    def some_claims(self) -> list[Job]:
        """A few claims of different jobs, most of which still stand."""
        tokens = {one.lease_token for one in self.run(_records(self.model))}
        held = [job for job in self.claims if job.lease_token in tokens]
        pool = st.sampled_from(held * 3 + self.claims[-5:])
        return self.draw(st.lists(pool, min_size=1, max_size=3, unique_by=lambda job: job.id))

    def rest(self) -> None:
        """Do nothing: what a step shrinks to."""

    def enqueue(self) -> None:
        count = self.draw(st.integers(1, 3))
        fields = {
            "topic": self.draw(st.sampled_from(TOPICS[:2])),
            "kind": self.draw(st.sampled_from([*KINDS[:1], *KINDS[:2]])),
            "priority": self.draw(st.sampled_from([0, 5, 9])),
            "delay_s": self.draw(DELAYS_S),
            "max_attempts": self.draw(st.integers(1, 3)),
            "supervisor": self.draw(st.sampled_from(SUPERVISORS)),
        }
        keys = st.sampled_from([None, None, None, *KEYS])
        jobs = [
            new_job(id=id, unique_key=self.draw(keys), **fields)
            for id in itertools.islice(self._mint, count)
        ]
        self.both(lambda store: _enqueue(store, jobs))
        self.ids += [job.id for job in jobs]

    def enqueue_again(self) -> None:
        id = self.draw(st.sampled_from(self.ids))
        self.both(lambda store: _enqueue(store, [new_job(id=id, topic="mail")]))

    def claim(self) -> None:
        token = self.draw(st.sampled_from(self.workers)).next_token()
        frontier = self.draw(st.sampled_from([0, 0, 0, 0, 3]))
        wanted = [
            Wanted(topic, self.draw(st.integers(0, 4)), [frontier] * 10)
            for topic in self.draw(st.permutations(TOPICS))
        ]
        kinds = self.draw(st.sampled_from([KINDS, KINDS, KINDS[:1]]))
        room, lease_s = self.draw(st.integers(1, 5)), self.draw(LEASES_S)

        async def claim(store: Store) -> list[Job]:
            jobs = await store.claim_jobs(
                token, wanted, kinds=kinds, room=room, lease_s=lease_s, claimed_at=0.0
            )
            # How long it waited is for the clock to say.
            return [msgspec.structs.replace(job, wait_s=0.0) for job in jobs]

        self.claims += self.both(claim)

    def claim_behind_a_gate(self) -> None:
        topic = self.draw(st.sampled_from([*TOPICS, "*"]))
        self.both(lambda store: store.set_paused(topic, paused=True))
        self.claim()
        self.both(lambda store: store.set_paused(topic, paused=False))

    def hand_over(self) -> None:
        worker, topic = self.draw(st.sampled_from(self.workers)), self.draw(st.sampled_from(TOPICS))
        offer = Offer(
            worker.id, worker.next_token(), PRESENCE, self.draw(LEASES_S), TOPICS[:2], KINDS[:1]
        )
        kind, supervisor = (self.draw(st.sampled_from(some)) for some in (KINDS[:2], SUPERVISORS))
        job = new_job(id=next(self._mint), topic=topic, kind=kind, supervisor=supervisor)

        async def hand_over(store: Store) -> tuple[Job | None, bool]:
            await store.mark_idle(worker.id, [topic])
            await store.offers.place_offer(offer)
            await store.enqueue_jobs([job])
            taken = await store.offers.take_job(
                job.id, offer.token, lease_s=offer.lease_s, asked_at=0.0
            )
            is_withdrawn = await store.offers.withdraw_offer(worker.id, offer.token)
            await store.unmark_idle(worker.id)
            # How long it was held is for the clock to say.
            return taken and msgspec.structs.replace(taken, claimed_at=0.0), is_withdrawn

        taken, is_withdrawn = self.both(hand_over)
        assert (taken is None) == is_withdrawn
        self.ids.append(job.id)
        self.claims += [taken] if taken else []

    def hand_over_behind_a_gate(self) -> None:
        gate = self.draw(st.sampled_from([*TOPICS, "*"]))
        self.both(lambda store: store.set_paused(gate, paused=True))
        self.hand_over()
        self.both(lambda store: store.set_paused(gate, paused=False))

    def finish(self) -> None:
        batch = self.some_claims()
        state: Any = self.draw(
            st.sampled_from(["succeeded", "dead", "failed", "failed", "cancelled"])
        )
        error = None if state == "succeeded" else error_of(self.workers[0], batch[0])
        finishes = [Finish(job, state, 0.5, result="1", error=error) for job in batch]

        async def finish(store: Store) -> list[UUID]:
            return sorted(await store.finish_jobs(finishes))  # They come in any order.

        self.both(finish)

    def give_back(self) -> None:
        batch, delay_s = self.some_claims(), self.draw(DELAYS_S)
        why: Any = self.draw(st.sampled_from(["retry", "snooze", "release", "interrupt"]))
        error = self.draw(st.sampled_from([None, error_of(self.workers[0], batch[0])]))
        returns = [Return(job, why, delay_s=delay_s, error=error) for job in batch]
        self.both(lambda store: store.return_jobs(returns))

    def extend(self) -> None:
        claims = [claimed(job) for job in self.some_claims()]
        # A beat never shortens a lease: expired ones are looked for from when the claim said on.
        self.both(lambda store: store.extend_leases(claims, LONG_LEASE_S))

    def release_claim(self) -> None:
        token = self.some_claims()[0].lease_token
        self.both(lambda store: store.release_claim(token))

    def pass_time(self) -> None:
        seconds = self.draw(PASSES_S)
        for world in (self.real, self.model):
            self.run(world.pass_time(seconds))

    def reap(self) -> None:
        limit = self.draw(st.sampled_from([1, 2, 100]))
        after = self.draw(st.sampled_from([FIRST, FIRST, self.ids[0], self.ids[-1]]))
        dead = self.draw(st.sampled_from([None, *self.workers]))
        tokens = None if dead is None else (dead.id, dead.last_token)
        self.both(lambda store: store.list_expired(limit=limit, after=after))
        self.both(lambda store: store.reap_jobs(limit=limit, after=after, dead_worker=tokens))

    def review(self) -> None:
        limit = self.draw(st.sampled_from([1, 100]))

        async def review(store: Store) -> None:
            await store.review_claims(limit)

        self.both(review)

    def promote(self) -> None:
        async def promote(store: Store) -> tuple[int, bool]:
            promotion = await store.promote_jobs(1_000)
            return promotion.promoted, promotion.next_due_s is None

        self.both(promote)

    def cancel(self) -> None:
        states: list[State] = ["running", "running", "scheduled", "ready"]
        pool = self.ids_in(self.draw(st.sampled_from(states)))
        batch = self.draw(st.lists(st.sampled_from(pool), max_size=2))
        self.both(lambda store: store.cancel_jobs(batch))

    def retry(self) -> None:
        id = self.draw(st.sampled_from(self.ids_in("dead")))
        self.both(lambda store: store.retry_jobs([id]))

    def discard(self) -> None:
        id = self.draw(st.sampled_from(self.ids_in("dead", "cancelled")))
        self.both(lambda store: store.discard_jobs([id]))

    def start_attempt(self) -> None:
        task = self.draw(st.sampled_from(self.ids_in("failed")))
        id = next(self._mint)
        payload, delay_s = self.draw(st.sampled_from([None, "[1]"])), self.draw(DELAYS_S) or 0.0
        started = self.both(
            lambda store: store.start_attempt(task, id=id, payload=payload, delay_s=delay_s)
        )
        self.ids += [id] if started is True else []

    def escalate(self) -> None:
        id = self.draw(st.sampled_from(self.ids_in("failed")))
        self.both(lambda store: store.escalate_jobs([id]))

    def compare(self) -> None:
        """Look at everything there is to see."""
        self.both(lambda store: store.find_unique(KEYS))
        self.both(_depths)
        self.both(_lines(self.ids))
        newest = list({job.id: claimed(job) for job in self.claims}.values())
        oldest = list({job.id: claimed(job) for job in reversed(self.claims)}.values())
        self.both(lambda store: store.verify_claims(newest, self.workers[0].name))
        self.both(lambda store: store.verify_leases(oldest, self.workers[0].name))
        real, model = (self.run(_records(world)) for world in (self.real, self.model))
        assert [_seen(one) for one in real] == [_seen(one) for one in model]
        now = self.run(self.real.back_door.fetchval("select now()"))
        for one, other in zip(real, model, strict=True):
            for field in ("run_at", "enqueued_at", "lease_until", "finished_at"):
                real_age_s = _age_s(getattr(one, field), now.timestamp())
                model_age_s = _age_s(getattr(other, field), self.model.now)
                assert real_age_s == pytest.approx(model_age_s, abs=SLACK_S), field


async def _enqueue(store: Store, jobs: list[NewJob]) -> set[UUID]:
    return set(await store.enqueue_jobs(jobs))


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
    return sorted(records, key=lambda one: (one.id, one.finished_at or END_OF_TIME))


def _lines(ids: list[UUID]) -> Callable[[Store], Awaitable[list[list[UUID]]]]:
    async def lines(store: Store) -> list[list[UUID]]:
        return [[one.id for one in await store.list_lineage(id, 100)] for id in ids[-5:]]

    return lines


async def _depths(store: Store) -> list[tuple[object, ...]]:
    depths = await store.survey_topics(3)
    return sorted((one.topic, one.state, one.jobs, one.is_bound) for one in depths)


def _seen(record: JobRecord) -> tuple[object, ...]:
    """All that is to be seen of a job but its instants."""
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
        [{**error, "at": "at" in error} for error in record.errors],
        record.lease_token,
        record.cancel_requested,
        record.run_s,
        record.supervisor,
        record.retry_of,
        record.lineage_id,
        record.lineage_no,
    )


def _age_s(instant: datetime | None, now: float) -> float | None:
    return None if instant is None else now - instant.timestamp()


# The first is what a step shrinks to; those that move jobs along come more often.
ACTS = [
    Twins.rest,
    Twins.enqueue,
    Twins.enqueue,
    Twins.enqueue_again,
    Twins.claim,
    Twins.claim,
    Twins.claim,
    Twins.claim_behind_a_gate,
    Twins.hand_over,
    Twins.hand_over,
    Twins.hand_over_behind_a_gate,
    Twins.finish,
    Twins.give_back,
    Twins.give_back,
    Twins.extend,
    Twins.release_claim,
    Twins.pass_time,
    Twins.reap,
    Twins.reap,
    Twins.review,
    Twins.promote,
    Twins.cancel,
    Twins.retry,
    Twins.discard,
    Twins.start_attempt,
    Twins.start_attempt,
    Twins.escalate,
]
NEED_CLAIMS = {Twins.finish, Twins.give_back, Twins.extend, Twins.release_claim}


@pytest.fixture
def setting() -> str:
    """Not one store or the other: both."""
    return "both"


def test_the_model_and_the_real_store_cannot_be_told_apart(dsn: str) -> None:
    with open_stage(dsn) as stage:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data(), st.lists(st.sampled_from(ACTS), min_size=STEPS, max_size=STEPS))
        def play(data: st.DataObject, acts: list[Callable[[Twins], None]]) -> None:
            twins = Twins(stage, data)
            twins.enqueue()
            for act in acts:
                if act is Twins.rest or (act in NEED_CLAIMS and not twins.claims):
                    continue
                note(act.__name__)
                act(twins)
                twins.compare()

        play()
