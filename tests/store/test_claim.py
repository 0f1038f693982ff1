"""Who gets which job, and in which order."""

import anyio
import pytest

from chronos_runtime.job import Job
from chronos_runtime.store import Wanted
from tests.store.world import NO_FRONTIER, World


async def test_jobs_are_claimed_by_priority_and_then_in_the_order_they_came(world: World) -> None:
    low = await world.enqueue(2, priority=9)
    high = await world.enqueue(2, priority=0)
    middle = await world.enqueue(2, priority=5)
    assert [job.id for job in await world.claim(room=3)] == [*high, middle[0]]
    assert [job.id for job in await world.claim()] == [middle[1], *low]


async def test_a_claim_leases_the_job_and_counts_the_attempt(world: World) -> None:
    [id] = await world.enqueue(payload='{"a": 1}', priority=2, max_attempts=3, timeout_s=1.5)
    await world.pass_time(100)
    token = world.worker.next_token()
    [job] = await world.claim(token=token, lease_s=50.0)
    assert (job.id, job.lease_token, job.attempt, job.max_attempts) == (id, token, 1, 3)
    assert (job.topic, job.kind, job.priority, job.timeout_s) == ("default", "greet", 2, 1.5)
    assert job.payload == '{"a": 1}'
    assert job.claimed_at == 7.0
    assert job.wait_s == pytest.approx(100, abs=5)
    record = await world.get(id)
    assert (record.state, record.attempt, record.lease_token) == ("running", 1, token)
    assert record.lease_until is not None
    assert (record.lease_until - record.run_at).total_seconds() == pytest.approx(150, abs=5)


async def test_no_job_has_two_owners(world: World) -> None:
    ids = await world.enqueue(100)
    claims: list[list[Job]] = []

    async def claim() -> None:
        claims.append(await world.claim(room=30))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(claim)
    owned = [job.id for jobs in claims for job in jobs]
    assert sorted(owned) == ids
    assert len({job.lease_token for jobs in claims for job in jobs}) <= 5


async def test_a_claim_takes_no_more_than_a_topic_has_room_for(world: World) -> None:
    for topic in ("a", "b", "c"):
        await world.enqueue(5, topic=topic)
    wanted = [Wanted("b", 2, NO_FRONTIER), Wanted("a", 0, NO_FRONTIER), Wanted("c", 9, NO_FRONTIER)]
    jobs = await world.store.claim_jobs(
        world.worker.next_token(), wanted, kinds=["greet"], room=100, lease_s=30.0, claimed_at=0.0
    )
    assert sorted(job.topic for job in jobs) == ["b"] * 2 + ["c"] * 5


async def test_a_claim_takes_no_more_than_there_is_room_for_in_all(world: World) -> None:
    for topic in ("a", "b"):
        await world.enqueue(5, topic=topic)
    wanted = [Wanted("b", 3, NO_FRONTIER), Wanted("a", 3, NO_FRONTIER)]
    jobs = await world.store.claim_jobs(
        world.worker.next_token(), wanted, kinds=["greet"], room=4, lease_s=30.0, claimed_at=0.0
    )
    assert [job.topic for job in jobs].count("b") == 3, "the first topic is served first"
    assert len(jobs) == 4


async def test_topics_nobody_asked_for_are_left_alone(world: World) -> None:
    await world.enqueue(topic="mail")
    assert await world.claim(topics=["default", "sms"]) == []
    assert await world.claim(topics=[]) == []


async def test_a_frontier_hides_what_stands_at_or_behind_it_in_its_priority(world: World) -> None:
    await world.enqueue(3, priority=5)
    urgent = await world.enqueue(1, priority=1)
    jobs = await world.claim()
    await world.store.release_claim(jobs[0].lease_token)
    middle = sorted(job.seq for job in jobs if job.priority == 5)
    frontiers = [0] * 10
    frontiers[5] = middle[1]
    ahead = await world.claim(frontiers=frontiers)
    assert [job.id for job in ahead if job.priority == 1] == urgent
    assert [job.seq for job in ahead if job.priority == 5] == [middle[2]]
    assert [job.seq for job in await world.claim()] == middle[:2]


async def test_each_topic_has_frontiers_of_its_own(world: World) -> None:
    await world.enqueue(1, topic="a")
    [b] = await world.enqueue(1, topic="b")
    [first, _] = await world.claim(topics=["a", "b"])
    await world.store.release_claim(first.lease_token)
    hidden = [2**40] * 10
    jobs = await world.store.claim_jobs(
        world.worker.next_token(),
        [Wanted("a", 9, hidden), Wanted("b", 9, NO_FRONTIER)],
        kinds=["greet"],
        room=9,
        lease_s=30.0,
        claimed_at=0.0,
    )
    assert [job.id for job in jobs] == [b]


async def test_a_claim_goes_no_further_than_its_ends_in_each_priority(world: World) -> None:
    await world.enqueue(4, priority=5)
    await world.enqueue(2, priority=1)
    jobs = await world.claim()
    await world.store.release_claim(jobs[0].lease_token)
    [*urgent, _, second, third, _] = [job.seq for job in jobs]
    frontiers, ends = [0] * 10, [0] * 10
    frontiers[5], ends[5], ends[1] = second - 1, third, urgent[0]
    claimed = await world.claim(frontiers=frontiers, ends=ends)
    assert [job.seq for job in claimed] == [urgent[0], second, third]
    assert len(await world.claim()) == 3


async def test_each_topic_has_ends_of_its_own(world: World) -> None:
    a = await world.enqueue(2, topic="a")
    b = await world.enqueue(2, topic="b")
    jobs = await world.claim(topics=["a", "b"])
    await world.store.release_claim(jobs[0].lease_token)
    seqs = {job.id: job.seq for job in jobs}
    claimed = await world.store.claim_jobs(
        world.worker.next_token(),
        [
            Wanted("a", 9, NO_FRONTIER, [seqs[a[0]]] * 10),
            Wanted("b", 9, NO_FRONTIER, [seqs[b[1]]] * 10),
        ],
        kinds=["greet"],
        room=9,
        lease_s=30.0,
        claimed_at=0.0,
    )
    assert [job.id for job in claimed] == [a[0], *b]


async def test_a_claim_that_ends_where_it_begins_finds_nothing(world: World) -> None:
    await world.enqueue(2)
    [first, _] = await world.claim()
    await world.store.release_claim(first.lease_token)
    assert await world.claim(frontiers=[first.seq] * 10, ends=[first.seq] * 10) == []
    assert await world.claim(ends=[0] * 10) == []


async def test_a_job_that_comes_back_stands_where_it_stood(world: World) -> None:
    [old] = await world.enqueue()
    [job] = await world.claim()
    await world.enqueue(3)
    await world.give_back(job, "release")
    [again] = await world.claim(room=1)
    assert (again.id, again.seq) == (old, job.seq)


async def test_a_closed_gate_yields_no_job_to_anybody(world: World) -> None:
    await world.enqueue(2, topic="mail")
    await world.enqueue(2, topic="sms")
    await world.store.set_paused("mail", True)
    jobs = await world.claim(world.worker, topics=["mail", "sms"], room=3)
    assert [job.topic for job in jobs] == ["sms", "sms"]
    assert await world.claim(world.other_worker, topics=["mail"]) == []
    await world.store.set_paused("mail", False)
    assert len(await world.claim(topics=["mail"])) == 2


async def test_the_gate_of_all_topics_stops_every_claim(world: World) -> None:
    await world.enqueue(2, topic="mail")
    await world.store.set_paused("mail", False)
    await world.store.set_paused("*", True)
    assert await world.claim(topics=["mail"]) == []
    await world.store.set_paused("*", False)
    assert len(await world.claim(topics=["mail"])) == 2


async def test_gates_are_remembered(world: World) -> None:
    assert await world.store.list_gates() == []
    await world.store.set_paused("mail", True)
    await world.store.set_paused("*", True)
    await world.store.set_paused("*", False)
    gates = await world.store.list_gates()
    assert [(gate.topic, gate.paused) for gate in gates] == [("*", False), ("mail", True)]


async def test_a_closed_gate_stops_claims_and_nothing_else(world: World) -> None:
    job = await world.claim_one()
    await world.store.set_paused("*", True)
    [id] = await world.enqueue()
    assert await world.finish(job)
    assert await world.states([job.id, id]) == ["succeeded", "ready"]


async def test_a_kind_this_process_does_not_know_is_left_for_one_that_does(world: World) -> None:
    [unknown] = await world.enqueue(kind="of the next deploy")
    [known] = await world.enqueue()
    assert [job.id for job in await world.claim()] == [known]
    record = await world.get(unknown)
    assert (record.state, record.attempt, record.errors) == ("ready", 0, [])
    assert [job.id for job in await world.claim(kinds=["of the next deploy"])] == [unknown]


async def test_only_what_is_ready_is_claimed(world: World) -> None:
    await world.enqueue(delay_s=60.0)
    job = await world.claim_one()
    await world.finish(job)
    await world.claim_one()
    assert await world.claim() == []
    await world.pass_time(61)
    assert await world.claim() == [], "due, but nobody has promoted it"


async def test_an_empty_claim_is_an_empty_list(world: World) -> None:
    await world.enqueue()
    assert await world.claim(room=0) == []
    assert await world.claim(kinds=[]) == []
