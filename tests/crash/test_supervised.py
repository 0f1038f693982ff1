"""Supervised attempts under kill -9: one fact for each failure, each decision carried out once."""

import functools
from collections import Counter
from typing import Any
from uuid import UUID

import anyio
import pytest

from chronos_runtime.client import Client
from chronos_runtime.lineage import fact_id
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.errands import ATTEMPTS_MAX, does_fail
from tests.crash.fleet import Fleet, Gate
from tests.crash.producer import enqueue
from tests.crash.say import Say
from tests.eventually import eventually

pytestmark = pytest.mark.crash

SUPERVISED: dict[str, Any] = {"attempts": "supervised", "supervisor": "errand"}
FAILS = 0.3
STORM_TASKS = 1_500  # Enough for the storm to last on a fast disk.
HELD_TASKS = 6  # These run when the first kill comes, and are held until the last.
WORKERS = 3
KILLS = 6
KILL_EVERY_S = 0.7

LOCK = 7
SQL_SUPERVISOR = f"""
create schema shop;
create table shop.decided (task uuid, attempt integer);
create function shop.decide(failure jsonb) returns jsonb language plpgsql as $$
begin
    insert into shop.decided
    select (failure -> 'task' ->> 'id')::uuid, (failure -> 'task' ->> 'attempt')::integer;
    perform pg_advisory_xact_lock({LOCK});
    return case (failure -> 'task' ->> 'attempt')::integer
        when 1 then '{{"status": "succeeded", "payload": {{"decision": "new_attempt"}}}}'
        else '{{"status": "succeeded", "payload": {{"decision": "escalate", "reason": "enough"}}}}'
    end::jsonb;
end
$$;
insert into chronos.allowed_functions (schema_name) values ('shop');
"""


async def asked(checker: Checker) -> Counter[UUID]:
    """How often a supervisor was asked about each task."""
    rows = await checker.evidence.fetch("select job_id from evidence where what = 'asked'")
    return Counter(row["job_id"] for row in rows)


async def wait_asked(checker: Checker, count: int) -> None:
    async def enough() -> bool:
        return (await asked(checker)).total() >= count

    await eventually(enough, DEADLINE_S, poll_s=LOOK_S)


async def facts(checker: Checker) -> list[UUID]:
    """Every failure fact there ever was."""
    rows = await checker.queue.fetch(
        "select id from chronos.all_jobs where kind like 'chronos.supervise.%'"
    )
    return [row["id"] for row in rows]


async def test_a_killed_attempt_runs_again_under_its_number_and_leaves_one_fact(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    payload = gate.payload | {"fails": 1.0}
    [id] = await enqueue(client, "errand", payload=payload, max_attempts=3, **SUPERVISED)
    victim = fleet.start()
    await checker.wait_started(1)
    victim.kill()
    fleet.start()
    await checker.wait_started(1, attempt=2)
    gate.open()
    await checker.wait_drained()

    line = await client.lineage(id)
    assert [(one.state, one.attempt, one.lineage_no) for one in line] == [
        ("failed", 2, None),
        ("failed", 1, 2),
        ("failed", 1, 3),
    ]
    assert [error["type"] for error in line[0].errors] == ["LeaseExpired", "ConnectionError"]
    assert sorted(await facts(checker)) == sorted(fact_id(one.id, one.attempt) for one in line)


async def test_a_task_that_kills_every_worker_fails_and_its_supervisor_is_told_once(
    client: Client, checker: Checker, fleet: Fleet
) -> None:
    [id] = await enqueue(client, "suicide", max_attempts=2, **SUPERVISED)

    async def is_decided() -> bool:
        while not fleet.alive:
            fleet.start()
        return len(await client.lineage(id)) == 2

    await eventually(is_decided, DEADLINE_S, poll_s=LOOK_S)
    first, second = await client.lineage(id)
    assert (first.state, first.attempt) == ("failed", 2)
    assert (second.retry_of, second.lineage_no) == (id, 2)
    assert (await asked(checker))[id] == 1


async def test_a_decision_that_dies_with_its_worker_is_carried_out_once(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    payload = {"ask_gate": gate.payload["gate"]}
    [id] = await enqueue(client, "errand", payload=payload, **SUPERVISED)
    victim = fleet.start()
    await wait_asked(checker, 1)
    victim.kill()
    fleet.start()
    await wait_asked(checker, 2)
    assert await asked(checker) == {id: 2}, "asked again, for nothing was decided"
    gate.open()
    await checker.wait_drained()

    line = await client.lineage(id)
    assert [one.lineage_no for one in line] == [None, 2, 3]
    assert [one.retry_of for one in line] == [None, line[0].id, line[1].id]
    assert len(await facts(checker)) == len(line)


async def is_waiting_for_a_lock(checker: Checker) -> bool:
    return await checker.queue.fetchval(  # type: ignore[no-any-return]
        "select exists (select from pg_locks where not granted)"
    )


async def test_a_decision_killed_between_the_new_task_and_its_own_end_leaves_neither(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    payload = {"ask_gate": gate.payload["gate"]}
    [id] = await enqueue(client, "errand", payload=payload, **SUPERVISED)
    victim = fleet.start()
    await wait_asked(checker, 1)
    async with checker.queue.acquire() as holder, holder.transaction():
        # The end of the fact's job must wait for us, with the new task inserted already.
        await holder.execute("select from chronos.jobs where id = $1 for update", fact_id(id, 1))
        gate.open()
        await eventually(
            functools.partial(is_waiting_for_a_lock, checker), DEADLINE_S, poll_s=LOOK_S
        )
        victim.kill()
    fleet.start()
    await checker.wait_drained()

    line = await client.lineage(id)
    assert [one.lineage_no for one in line] == [None, 2, 3], "one new task for each decision"
    assert (await asked(checker))[id] == 2


async def test_a_frozen_decision_comes_too_late(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate
) -> None:
    payload = {"ask_gate": gate.payload["gate"]}
    [id] = await enqueue(client, "errand", payload=payload, **SUPERVISED)
    victim = fleet.start()
    await wait_asked(checker, 1)
    victim.freeze()
    fleet.start()
    await wait_asked(checker, 2)
    gate.open()
    await checker.wait_drained()
    victim.thaw()
    await victim.wait_metric("chronos_executor_inflight_jobs", lambda jobs: jobs == 0)

    assert [one.lineage_no for one in await client.lineage(id)] == [None, 2, 3]
    assert len(await facts(checker)) == 3


async def test_a_sql_decision_killed_before_its_commit_leaves_nothing_and_is_made_again(
    client: Client, checker: Checker, fleet: Fleet
) -> None:
    await checker.queue.execute(SQL_SUPERVISOR)
    config: dict[str, Any] = {"supervisors": {"bank": "shop.decide"}}
    async with checker.queue.acquire() as holder:
        await holder.execute(f"select pg_advisory_lock({LOCK})")
        [id] = await enqueue(client, "errand", **(SUPERVISED | {"supervisor": "bank"}))
        victim = fleet.start(**config)
        await eventually(
            functools.partial(is_waiting_for_a_lock, checker), DEADLINE_S, poll_s=LOOK_S
        )
        victim.kill()
        await holder.execute(f"select pg_advisory_unlock({LOCK})")
    fleet.start(**config)
    await checker.wait_drained()

    line = await client.lineage(id)
    assert [(one.state, one.lineage_no) for one in line] == [("failed", None), ("dead", 2)]
    decided = await checker.queue.fetch("select task, attempt from shop.decided order by attempt")
    assert [tuple(row) for row in decided] == [(line[0].id, 1), (line[1].id, 2)]
    fact = await client.get(fact_id(id, 1))
    assert (fact.state, fact.attempt) == ("succeeded", 2), "the first run died, the second decided"


async def test_totals_add_up_while_workers_are_killed(
    client: Client, checker: Checker, fleet: Fleet, gate: Gate, say: Say
) -> None:
    options = SUPERVISED | {"max_attempts": 1_000}
    held = gate.payload | {"fails": FAILS}
    ids = await enqueue(client, "errand", HELD_TASKS, held, **options)
    sections: dict[str, Any] = {"executor": {"concurrency": 8}, "claimer": {"batch_max": 20}}
    for _ in range(WORKERS):
        fleet.start(**sections)
    await checker.wait_started(HELD_TASKS)
    ids += await enqueue(client, "errand", STORM_TASKS, {"fails": FAILS}, **options)
    for _ in range(KILLS):
        await anyio.sleep(KILL_EVERY_S)  # The storm's own time, not a wait for something.
        fleet.alive[0].kill()
        fleet.start(**sections)
    gate.open()
    await checker.wait_drained()

    rows = await checker.queue.fetch("select * from chronos.job_history where kind = 'errand'")
    by_line: dict[UUID, dict[int, Any]] = {}
    for row in rows:
        by_line.setdefault(row["lineage_id"] or row["id"], {})[row["lineage_no"] or 1] = row
    assert by_line.keys() == set(ids), "no line is lost, none is made up"
    assert sum(len(line) for line in by_line.values()) == len(rows), "no attempt is there twice"
    failed = []
    for id, line in by_line.items():
        ends = expected_ends(id)
        assert [line[number]["state"] for number in sorted(line)] == ends
        assert sorted(line) == list(range(1, len(ends) + 1))
        for number in range(2, len(ends) + 1):
            assert line[number]["retry_of"] == line[number - 1]["id"]
        failed += [row for row in line.values() if row["state"] == "failed"]
    told = sorted(fact_id(row["id"], row["attempt"]) for row in failed)
    assert sorted(await facts(checker)) == told, "one fact for each failure"
    assert (await asked(checker)).keys() == {row["id"] for row in failed}
    reruns = sum(row["attempt"] - 1 for row in rows)
    say(f"{len(rows)} tasks, {len(failed)} failures, {reruns} runs again after {KILLS} kills")
    assert reruns >= HELD_TASKS, "whoever held one at first is among those that were killed"


def expected_ends(line: UUID) -> list[str]:
    """How the attempts of a line must end, by the rule of the handler."""
    ends: list[str] = []
    while len(ends) < ATTEMPTS_MAX:
        if not does_fail(line, len(ends) + 1, FAILS):
            return [*ends, "succeeded"]
        ends.append("failed")
    return ends
