"""Schedules and alarms on a real database, by whole workers."""

import ast
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import chronos_runtime
from chronos_runtime import Chronos, Client, Job, Runtime
from chronos_runtime.schedule import Schedule
from chronos_runtime.store.migrations import Connection
from tests.eventually import eventually
from tests.processors.conftest import receiver
from tests.processors.receiver import Receiver, answer
from tests.test_runtime import make_config, working

__all__ = ["receiver"]  # A fixture of theirs, used here too.

DEADLINE_S = 20.0


async def past(connection: Connection, name: str, by: timedelta) -> None:
    """Let the cursor of a schedule lie in the past, as after an outage."""
    await connection.execute(
        "update chronos.schedules set next_run_at = date_trunc('second', now()) - $2::interval"
        " where name = $1",
        name,
        by,
    )


async def test_a_schedule_in_code_fires_and_its_handler_learns_the_occurrence(dsn: str) -> None:
    app = Chronos("shop")
    seen: list[Job] = []

    @app.schedule("each second", every_s=1, payload={"at": "{{occurrence}}"})
    @app.handler("tick")
    async def tick(job: Job, payload: dict[str, Any]) -> None:
        assert job.occurrence is not None
        assert payload["at"] == job.occurrence.isoformat()
        seen.append(job)

    async with Client.connect(dsn, app) as client:
        async with working(Runtime(app, make_config(dsn))):
            await eventually(lambda: len(seen) >= 3, DEADLINE_S)
        schedule = await client.schedules.get("each second")
        fires = await client.schedules.fires("each second")
    assert schedule.last_outcome == "succeeded"
    assert [fire.state for fire in fires] == ["succeeded"] * len(fires)
    occurrences = [job.occurrence for job in seen]
    assert len(set(occurrences)) == len(occurrences)
    assert {fire.occurrence for fire in fires} >= set(occurrences)


async def test_many_processes_fire_each_occurrence_once(dsn: str, connection: Connection) -> None:
    app = Chronos("shop")
    runs: Counter[Any] = Counter()

    @app.handler("tick")
    async def tick(job: Job, payload: object) -> None:
        runs[job.schedule_id, job.occurrence] += 1

    async with Client.connect(dsn, app) as client:
        for number in range(20):
            await client.schedules.add(f"schedule {number}", tick, every_s=1, catch_up="all")
            await past(connection, f"schedule {number}", timedelta(seconds=10))
        async with AsyncExitStack() as stack:
            for _ in range(4):
                await stack.enter_async_context(working(Runtime(app, make_config(dsn))))
            await eventually(lambda: len(runs) >= 20 * 11, DEADLINE_S)
    assert set(runs.values()) == {1}


DECIDES_WHEN = (
    "actors/scheduler alarms cron cron_fields definitions every fires schedules synchronise"
    " timetable zones store/postgres_schedules"
)


@pytest.mark.parametrize("module", DECIDES_WHEN.split())
def test_whoever_decides_when_to_fire_reads_no_clock_of_its_own(module: str) -> None:
    path = Path(chronos_runtime.__file__).parent / f"{module}.py"
    calls = [
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert not {"now", "utcnow", "today", "time", "time_ns"} & set(calls)


@pytest.fixture
def wake_config(dsn: str, receiver: Receiver) -> Any:
    return make_config(dsn, wake={"allow": [f"localhost:{receiver.port}"]})


async def alarm_of(client: Client, name: str, status: str) -> Schedule:
    """The alarm, once it has that status."""

    async def look() -> Schedule | None:
        alarm = await client.alarms.get(name)
        return alarm if alarm.status == status else None

    alarm = await eventually(look, DEADLINE_S)
    assert alarm is not None
    return alarm


async def test_an_alarm_wakes_its_url_once(dsn: str, receiver: Receiver, wake_config: Any) -> None:
    app = Chronos()

    @app.handler("other")
    async def other(job: Job, payload: object) -> None: ...

    url = f"http://localhost:{receiver.port}/hook"
    async with Client.connect(dsn) as client, working(Runtime(app, wake_config)):
        await client.alarms.set(url, {"order": 7}, name="a", at=datetime.now(UTC))
        alarm = await alarm_of(client, "a", "fired")
    assert alarm.last_success_at is not None
    [got] = receiver.received
    assert b'"alarm":"a"' in got.body
    assert b'"payload":{"order": 7}' in got.body or b'"payload":{"order":7}' in got.body


async def test_a_receiver_that_is_gone_ends_a_series(
    dsn: str, receiver: Receiver, wake_config: Any, connection: Connection
) -> None:
    app = Chronos()

    @app.handler("other")
    async def other(job: Job, payload: object) -> None: ...

    receiver.answers = [answer(410)]
    url = f"http://localhost:{receiver.port}/hook"
    async with Client.connect(dsn) as client, working(Runtime(app, wake_config)):
        await client.alarms.set(url, name="a", cron="0 0 1 1 *")
        await past(connection, "a", timedelta(seconds=1))
        alarm = await alarm_of(client, "a", "failed")
    assert alarm.next_run_at is None
    assert "gone" in str(alarm.last_error)
