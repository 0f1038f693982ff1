"""What people and gauges see."""

import pytest

from chronos_runtime.ids import Worker, new_job_id
from chronos_runtime.job import State
from chronos_runtime.store import HistoryCounts, TopicDepth, WorkerInfo
from tests.store.world import World


async def test_jobs_are_read_by_id_wherever_they_stand(world: World) -> None:
    done = await world.claim_one()
    await world.finish(done)
    [ready] = await world.enqueue()
    records = await world.store.get_jobs([done.id, ready, new_job_id()])
    assert {id: record.state for id, record in records.items()} == {
        done.id: "succeeded",
        ready: "ready",
    }
    assert await world.store.get_jobs([]) == {}


async def _pages(
    world: World,
    *,
    states: list[State] | None = None,
    topic: str | None = None,
    kind: str | None = None,
    limit: int = 2,
) -> list[State]:
    """The states of all jobs that fit, newest first, read page by page."""
    found, before = [], None
    while True:
        page = await world.store.list_jobs(
            states=states, topic=topic, kind=kind, before=before, limit=limit
        )
        found += page
        assert len(found) < 100, "the pages do not end"
        if len(page) < limit:
            break
        before = page[-1].id
    ids = [one.id for one in found]
    assert ids == sorted(set(ids), reverse=True), "each once, newest first"
    return [one.state for one in found]


async def _one_of_each(world: World) -> None:
    for state in ("succeeded", "dead", "cancelled"):
        await world.finish(await world.claim_one(topic="mail"), state)
    await world.claim_one(topic="mail")
    await world.enqueue(topic="mail", priority=9)
    await world.enqueue(topic="mail", delay_s=60.0)


ALL: list[State] = ["scheduled", "ready", "running", "cancelled", "dead", "succeeded"]


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_paging_shows_each_job_once_newest_first(world: World, limit: int) -> None:
    assert await _pages(world, limit=limit) == []
    await _one_of_each(world)
    await _one_of_each(world)
    assert await _pages(world, limit=limit) == ALL * 2


@pytest.mark.parametrize("state", ALL)
async def test_a_list_can_be_narrowed_to_a_state(world: World, state: State) -> None:
    await _one_of_each(world)
    await _one_of_each(world)
    assert await _pages(world, states=[state]) == [state] * 2
    assert await _pages(world, states=[]) == []


async def test_a_list_can_be_narrowed_to_states_topic_and_kind(world: World) -> None:
    await _one_of_each(world)
    await world.enqueue(3, kind="other", topic="mail")
    await world.enqueue(3, kind="other")
    assert await _pages(world, topic="mail") == ["ready"] * 3 + ALL
    assert await _pages(world, kind="greet") == ALL
    assert await _pages(world, kind="other", topic="mail") == ["ready"] * 3
    assert await _pages(world, states=["ready", "dead"], topic="mail") == ["ready"] * 4 + ["dead"]
    assert await _pages(world, states=["running"], topic="default") == []
    assert await _pages(world, topic="nobody's") == []


async def test_depths_are_exact_up_to_their_bound(world: World) -> None:
    await world.enqueue(4, topic="mail")
    await world.enqueue(2, topic="sms")
    await world.enqueue(3, topic="mail", delay_s=60.0)
    await world.claim(topics=["sms"], room=1)
    depths = {(one.topic, one.state): one for one in await world.store.survey_topics(4)}
    jobs = {key: (one.jobs, one.is_bound) for key, one in depths.items()}
    assert jobs == {
        ("mail", "ready"): (4, False),
        ("mail", "scheduled"): (3, False),
        ("sms", "ready"): (1, False),
        ("sms", "running"): (1, False),
    }
    depths = {(one.topic, one.state): one for one in await world.store.survey_topics(2)}
    assert depths["mail", "ready"].jobs == 2
    assert depths["mail", "ready"].is_bound
    assert not depths["sms", "ready"].is_bound
    assert (depths["mail", "scheduled"].jobs, depths["mail", "scheduled"].is_bound) == (2, True)


async def test_a_bound_reached_by_scheduled_jobs_makes_all_their_counts_bounds(
    world: World,
) -> None:
    await world.enqueue(2, topic="mail", delay_s=60.0)
    await world.enqueue(2, topic="sms", delay_s=90.0)
    depths = sorted(await world.store.survey_topics(3), key=lambda one: one.topic)
    assert [(one.topic, one.jobs, one.is_bound) for one in depths] == [
        ("mail", 2, True),
        ("sms", 2, True),
    ]
    assert [one.is_bound for one in await world.store.survey_topics(4)] == [False, False]


async def test_a_survey_says_how_old_the_oldest_is(world: World) -> None:
    assert await world.store.survey_topics(10) == []
    await world.enqueue(delay_s=150.0)
    await world.enqueue(priority=7)
    await world.pass_time(100)
    await world.enqueue(priority=2)
    [ready, scheduled] = sorted(await world.store.survey_topics(9), key=lambda one: one.state)
    assert (ready.state, scheduled.state) == ("ready", "scheduled")
    assert ready.oldest_s == pytest.approx(100, abs=5)
    assert scheduled.oldest_s == pytest.approx(-50, abs=5), "not due yet"
    await world.claim()
    [running, _] = sorted(await world.store.survey_topics(9), key=lambda one: one.state)
    assert running == TopicDepth("default", "running", 2, is_bound=False, oldest_s=None)


async def test_the_history_is_counted_up_to_a_bound(world: World) -> None:
    assert await world.store.count_history(9) == HistoryCounts(0, 0, 0, 0)
    for _ in range(4):
        await world.make_dead()
    [id] = await world.enqueue()
    await world.store.cancel_jobs([id])
    await world.finish(await world.claim_one())
    counts = await world.store.count_history(2)
    assert (counts.dead, counts.cancelled) == (3, 1), "3 means: more than 2"
    assert (await world.store.count_history(9)).dead == 4


def _info(worker: Worker, *kinds: str) -> WorkerInfo:
    return WorkerInfo(worker.id, "host", 7, "0.1.0", ["default"], list(kinds))


async def test_kinds_nobody_serves_are_named(world: World) -> None:
    await world.enqueue(2, kind="known")
    await world.enqueue(3, kind="unknown")
    await world.enqueue(1, kind="unknown", topic="another")
    await world.enqueue(1, kind="later", delay_s=60.0)
    await world.store.announce_worker(_info(world.worker, "known", "idle"))
    assert await world.store.survey_unserved(10) == {"unknown": 4}
    assert await world.store.survey_unserved(3) == {"unknown": 2}, "the first 3 of each topic"
    await world.pass_time(200)
    assert await world.store.survey_unserved(10) == {"known": 2, "unknown": 4}
    await world.store.announce_worker(_info(world.worker, "known"))
    assert await world.store.survey_unserved(10) == {"unknown": 4}, "seen again"
    await world.store.forget_worker(world.worker.id)
    assert await world.store.survey_unserved(10) == {"known": 2, "unknown": 4}


async def test_presence_nobody_refreshed_is_dropped(world: World) -> None:
    await world.enqueue(kind="a")
    await world.enqueue(kind="b")
    await world.store.announce_worker(_info(world.worker, "a"))
    await world.pass_time(100)
    await world.store.announce_worker(_info(world.other_worker, "b"))
    await world.store.prune_workers(50.0)
    assert await world.store.survey_unserved(10) == {"a": 1}
