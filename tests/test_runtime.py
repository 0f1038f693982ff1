"""A whole worker on a real database: every promise from the enqueue to the history."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Sized
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import UUID

import anyio
import asyncpg
import httpx
import msgspec
import pytest

from chronos_runtime import Chronos, Client, Config, Runtime
from chronos_runtime.actors.taker import Taker
from chronos_runtime.backoff import Fixed
from chronos_runtime.job import Cancel, Discard, Job, Retry, Snooze
from chronos_runtime.store import JobRecord
from chronos_runtime.store.migrations import Connection
from tests.actors.bench import restarts, sample
from tests.eventually import eventually
from tests.leases import lease

DEADLINE_S = 20.0  # A claim that met a hiccup may keep the claimer from looking back for ten.
NEVER_S = 3_600.0
ENDED = ("succeeded", "dead", "cancelled")
WELL_WITHIN_A_BEAT_S = 5.0  # Half of the default interval; it takes a few milliseconds.


def has_run(ran: Sized, count: int) -> bool:
    """Whether so many have run."""
    return len(ran) == count


def make_config(dsn: str, **sections: dict[str, Any]) -> Config:
    """The defaults, but for the sections; nobody scrapes."""
    tree: dict[str, Any] = {"exporter": {"enabled": False, "port": 0}, **sections}
    return Config.of({"database": {"dsn": dsn}, **tree})


@asynccontextmanager
async def working(runtime: Runtime) -> AsyncIterator[anyio.Event]:
    """A runtime at work beside the block; drained when the block ends or sets what it gets."""
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.run, stop)
        try:
            yield stop
        finally:
            stop.set()
    assert runtime.inflight.claimed == runtime.inflight.settled


@pytest.fixture
def app() -> Chronos:
    """An application without handlers yet."""
    return Chronos()


@pytest.fixture
async def client(dsn: str, app: Chronos) -> AsyncIterator[Client]:
    """A client of the application."""
    async with Client.connect(dsn, app) as client:
        yield client


async def ended(client: Client, id: UUID) -> JobRecord:
    """The job, once it has ended."""

    async def look() -> JobRecord | None:
        record = await client.get(id)
        return record if record.state in ENDED else None

    record = await eventually(look, DEADLINE_S)
    assert record is not None
    return record


async def state_of(client: Client, id: UUID) -> str:
    return (await client.get(id)).state


async def test_an_app_without_handlers_serves_the_built_in_kinds(app: Chronos) -> None:
    assert Runtime(app, Config()).topics == ["chronos"]


@pytest.mark.parametrize(
    ("result", "end"),
    [
        (None, ("succeeded", None, [])),
        ({"sent": 3}, ("succeeded", {"sent": 3}, [])),
        (Cancel("withdrawn"), ("cancelled", None, ["withdrawn"])),
        (Discard("no such customer"), ("dead", None, ["no such customer"])),
        (ValueError("broken"), ("dead", None, ["broken"] * 2)),
        (SystemExit(3), ("dead", None, ["3"] * 2)),
        (Retry(0.0, "again"), ("dead", None, ["again"] * 2)),
    ],
    ids=["nothing", "result", "cancel", "discard", "error", "exit", "retry"],
)
async def test_what_a_handler_ends_with_stands_in_the_history(
    dsn: str, app: Chronos, client: Client, result: object, end: tuple[str, object, list[str]]
) -> None:
    @app.handler("work", max_attempts=2, backoff=Fixed(0.0))
    async def work(job: Job, payload: object) -> object:
        if isinstance(result, BaseException):
            raise result
        return result

    async with working(Runtime(app, make_config(dsn))):
        job = await client.enqueue("work", {"number": 7})
        record = await ended(client, job.id)
    messages = [one["message"] for one in record.errors]
    assert (record.state, record.result, messages) == end
    assert (record.attempt, record.payload) == (max(len(messages), 1), {"number": 7})
    assert record.run_s is not None


async def test_what_cannot_be_stored_does_not_keep_a_job_from_ending(
    dsn: str, app: Chronos, client: Client
) -> None:
    @app.handler("result")
    async def give(job: Job, payload: object) -> object:
        return {"text": "a\x00b", "many": "x" * 100}

    @app.handler("refused")
    async def give_what_is_no_json(job: Job, payload: object) -> object:
        return msgspec.Raw(b"{broken")

    @app.handler("error", max_attempts=1)
    async def fail(job: Job, payload: object) -> None:
        raise ValueError("a\x00b \ud800 " + "x" * 1_000_000)

    async with working(Runtime(app, make_config(dsn))):
        jobs = await client.enqueue_many(map(client.job, ("result", "refused", "error")))
        replaced, refused, failed = [await ended(client, job.id) for job in jobs]
    assert replaced.result == {"text": "a\ufffdb", "many": "x" * 100}
    assert (refused.state, refused.errors[-1]["type"]) == ("succeeded", "Unwritable")
    assert (failed.state, failed.errors[-1]["type"]) == ("dead", "ValueError")


async def test_the_first_outcome_waits_for_no_connection(dsn: str, app: Chronos) -> None:
    @app.handler("work")
    async def work(job: Job, payload: object) -> None: ...

    runtime = Runtime(app, make_config(dsn))
    async with working(runtime):
        await eventually(lambda: runtime._store.lanes["report"].idle, DEADLINE_S)


async def test_a_failed_attempt_comes_back_when_its_time_has_come(
    dsn: str, app: Chronos, client: Client
) -> None:
    starts: list[float] = []

    @app.handler("work")
    async def work(job: Job, payload: object) -> object:
        starts.append(time.monotonic())
        return Retry(0.3, "not yet") if job.attempt == 1 else "done"

    # The scheduler wakes because it was told, and at the instant it was told, or never.
    config = make_config(dsn, scheduler={"interval_s": NEVER_S, "idle_interval_s": NEVER_S})
    async with working(Runtime(app, config)):
        job = await client.enqueue("work")
        record = await ended(client, job.id)
    assert (record.result, record.attempt) == ("done", 2)
    assert starts[1] - starts[0] >= 0.3


async def test_a_snoozed_job_comes_back_with_its_attempt(
    dsn: str, app: Chronos, client: Client
) -> None:
    runs: list[int] = []

    @app.handler("work", max_attempts=1)
    async def work(job: Job, payload: object) -> object:
        runs.append(job.attempt)
        return Snooze(0.05) if len(runs) < 4 else "done"

    async with working(Runtime(app, make_config(dsn))):
        job = await client.enqueue("work")
        record = await ended(client, job.id)
    assert (record.result, record.attempt, record.errors) == ("done", 1, [])
    assert runs == [1, 1, 1, 1]


async def test_a_job_for_later_runs_later(dsn: str, app: Chronos, client: Client) -> None:
    @app.handler("work")
    async def work(job: Job, payload: object) -> None: ...

    config = make_config(dsn, scheduler={"interval_s": NEVER_S, "idle_interval_s": NEVER_S})
    runtime = Runtime(app, config)
    async with working(runtime):
        await eventually(lambda: runtime._claimer.is_marked)
        job = await client.enqueue("work", delay_s=0.3)
        record = await ended(client, job.id)
    assert record.finished_at is not None
    assert (record.finished_at - record.enqueued_at).total_seconds() >= 0.3


async def test_a_job_that_takes_too_long_is_stopped(dsn: str, app: Chronos, client: Client) -> None:
    @app.handler("work", max_attempts=1, timeout_s=0.05)
    async def work(job: Job, payload: object) -> None:
        await anyio.sleep_forever()

    async with working(Runtime(app, make_config(dsn))):
        job = await client.enqueue("work")
        record = await ended(client, job.id)
    assert record.state == "dead"
    assert record.errors[-1]["type"] == "TimeoutError"


class Crowd:
    """A handler that tells who runs, and lets nobody go before `leave` is set."""

    def __init__(self, app: Chronos, **options: Any) -> None:
        self.running: list[UUID] = []
        self.leave = anyio.Event()
        app.handler("wait", **options)(self._wait)

    async def _wait(self, job: Job, payload: object) -> str:
        self.running.append(job.id)
        try:
            await self.leave.wait()
        finally:
            self.running.remove(job.id)
        return "left"


async def test_a_stop_lets_what_runs_finish_and_gives_the_rest_back(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    crowd = Crowd(app)
    runtime = Runtime(app, make_config(dsn, executor={"concurrency": 2}))
    async with working(runtime) as stop:
        jobs = await client.enqueue_many([client.job("wait") for _ in range(6)])
        await eventually(lambda: len(crowd.running) == 2)
        running = set(crowd.running)
        stop.set()
        later = await client.enqueue("wait")
        await eventually(lambda: runtime.inflight.queued == 0)
        crowd.leave.set()
    for job in [*jobs, later]:
        record = await client.get(job.id)
        expected = ("succeeded", 1) if job.id in running else ("ready", 0)
        assert (record.state, record.attempt) == expected
    assert await connection.fetchval("select count(*) from chronos.workers") == 0
    assert await connection.fetchval("select count(*) from chronos.idle_marks") == 0


async def test_what_runs_beyond_the_drain_deadline_is_interrupted(
    dsn: str, app: Chronos, client: Client
) -> None:
    crowd = Crowd(app, max_attempts=1)
    runtime = Runtime(app, make_config(dsn, executor={"drain_s": 0.05}))
    async with working(runtime):
        job = await client.enqueue("wait")
        await eventually(lambda: crowd.running)
    record = await client.get(job.id)
    assert (record.state, record.attempt) == ("ready", 1)  # A deploy makes no job dead.
    assert record.errors[-1]["type"] == "Interrupted"


async def test_what_is_claimed_while_everything_stops_is_given_back(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    """The claim is on its way when the stop comes, and returns after the last deadline."""
    Crowd(app)
    runtime = Runtime(app, make_config(dsn, executor={"drain_s": 0.0}))
    transaction = connection.transaction()
    async with working(runtime) as stop:
        await eventually(lambda: runtime.metrics.answered_at)
        await transaction.start()
        await connection.execute("lock table chronos.topics in access exclusive mode")
        async with Client.connect(dsn, app) as other:
            jobs = await other.enqueue_many([other.job("wait") for _ in range(3)])
        await eventually(lambda: _is_claim_waiting(dsn))
        stop.set()
        await eventually(lambda: not runtime._executor._slots or _are_idle(runtime))
        await transaction.rollback()
    for job in jobs:
        record = await client.get(job.id)
        assert (record.state, record.attempt) == ("ready", 0)


def _are_idle(runtime: Runtime) -> bool:
    return all(slot.job is None for slot in runtime._executor._slots)


async def _is_claim_waiting(dsn: str) -> bool:
    connection = await asyncpg.connect(dsn)
    try:
        waiting = await connection.fetchval(
            "select count(*) from pg_stat_activity"
            " where wait_event_type = 'Lock' and query like '%Leases ready jobs%'"
        )
    finally:
        await connection.close()
    return bool(waiting)


async def test_a_running_job_is_cancelled_by_notification(
    dsn: str, app: Chronos, client: Client
) -> None:
    crowd = Crowd(app)
    runtime = Runtime(app, make_config(dsn))
    async with working(runtime):
        job = await client.enqueue("wait")
        await eventually(lambda: crowd.running and runtime._hears())
        asked_at = time.monotonic()
        assert await client.cancel(job.id) == "requested"
        record = await ended(client, job.id)
        assert time.monotonic() - asked_at < WELL_WITHIN_A_BEAT_S
    assert (record.state, record.errors[-1]["type"]) == ("cancelled", "Cancelled")


async def test_a_running_job_is_cancelled_by_the_next_beat_where_nobody_listens(
    dsn: str, app: Chronos, client: Client
) -> None:
    crowd = Crowd(app)
    config = make_config(
        dsn, listener={"enabled": False}, heartbeater={"interval_s": 0.1, "lease_s": 5.0}
    )
    async with working(Runtime(app, config)):
        job = await client.enqueue("wait")
        await eventually(lambda: crowd.running)
        assert await client.cancel(job.id) == "requested"
        assert (await ended(client, job.id)).state == "cancelled"


async def test_a_waiting_job_is_cancelled_at_once(dsn: str, app: Chronos, client: Client) -> None:
    crowd = Crowd(app)
    async with working(Runtime(app, make_config(dsn, executor={"concurrency": 1}))):
        first = await client.enqueue("wait")
        await eventually(lambda: crowd.running)
        waiting = await client.enqueue("wait", delay_s=3_600.0)
        assert await client.cancel(waiting.id) == "cancelled"
        crowd.leave.set()
        assert (await ended(client, first.id)).state == "succeeded"
    assert await state_of(client, waiting.id) == "cancelled"


async def test_a_pause_holds_for_every_worker_and_so_does_the_resume(
    dsn: str, app: Chronos, client: Client
) -> None:
    @app.handler("held", topic="held")
    async def held(job: Job, payload: object) -> None: ...

    @app.handler("free", topic="free")
    async def free(job: Job, payload: object) -> None: ...

    async with working(Runtime(app, make_config(dsn))), working(Runtime(app, make_config(dsn))):
        await client.pause("held")
        jobs = await client.enqueue_many([client.job("held") for _ in range(4)])
        others = await client.enqueue_many([client.job("free") for _ in range(20)])
        for other in others:
            await ended(client, other.id)
        assert {await state_of(client, job.id) for job in jobs} == {"ready"}
        await client.resume("held")
        for job in jobs:
            await ended(client, job.id)


async def test_two_workers_run_every_job_once(dsn: str, app: Chronos, client: Client) -> None:
    runs: Counter[UUID] = Counter()

    @app.handler("work")
    async def work(job: Job, payload: object) -> None:
        runs[job.id] += 1
        await anyio.lowlevel.checkpoint()

    async def are_done() -> bool:
        return not (await client.counts()).live

    async with working(Runtime(app, make_config(dsn))), working(Runtime(app, make_config(dsn))):
        jobs = await client.enqueue_many([client.job("work") for _ in range(1_000)])
        await eventually(are_done)
    assert runs == dict.fromkeys((job.id for job in jobs), 1)


async def test_a_kind_nobody_knows_is_left_alone_and_shown(
    dsn: str, app: Chronos, client: Client
) -> None:
    @app.handler("known")
    async def known(job: Job, payload: object) -> None: ...

    runtime = Runtime(app, make_config(dsn, surveyor={"interval_s": 0.05}))
    async with Client.connect(dsn) as stranger, working(runtime):
        unknown = await stranger.enqueue("of another deploy")
        await ended(client, (await client.enqueue("known")).id)
        await eventually(
            lambda: sample(
                runtime.metrics, "chronos_surveyor_unserved_jobs", kind="of another deploy"
            )
        )
        record = await stranger.get(unknown.id)
    assert (record.state, record.attempt) == ("ready", 0)
    assert sample(runtime.metrics, "chronos_surveyor_unserved_jobs", kind="known") == 0


async def test_a_topic_is_served_where_the_config_lists_it(
    dsn: str, app: Chronos, client: Client
) -> None:
    @app.handler("work")
    async def work(job: Job, payload: object) -> None: ...

    tree = {"topics": ["default", "special"]}
    config = Config.of({"database": {"dsn": dsn}, "exporter": {"enabled": False}, **tree})
    async with working(Runtime(app, config)):
        special = await client.enqueue("work", topic="special")
        other = await client.enqueue("work", topic="other")
        await ended(client, special.id)
        await ended(client, (await client.enqueue("work")).id)
        assert await state_of(client, other.id) == "ready"


async def test_metrics_and_readiness_are_served(dsn: str, app: Chronos, client: Client) -> None:
    @app.handler("work", topic="mail")
    async def work(job: Job, payload: object) -> None: ...

    runtime = Runtime(app, make_config(dsn, exporter={"enabled": True, "port": 0}))
    async with working(runtime), httpx.AsyncClient(trust_env=False) as http:
        await ended(client, (await client.enqueue("work")).id)
        await eventually(lambda: runtime.exporter.url)
        counted = 'chronos_reporter_succeeded_jobs_total{kind="work",topic="mail"} 1.0'

        async def metrics() -> str:
            # The history has the job a moment before the reporter hears that, and counts.
            text = (await http.get(f"{runtime.exporter.url}/metrics")).text
            return text if counted in text else ""

        scraped = await eventually(metrics)
        assert (await http.get(f"{runtime.exporter.url}/healthz")).status_code == 200

        async def is_ready() -> bool:
            return (await http.get(f"{runtime.exporter.url}/readyz")).status_code == 200

        await eventually(is_ready)
    assert "chronos_executor_conservation_error_jobs 0.0" in scraped


async def test_a_lost_lease_stops_the_handler_and_the_job_runs_again(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    cancelled: list[int] = []

    @app.handler("work")
    async def work(job: Job, payload: object) -> int:
        if job.attempt == 1:
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.append(job.attempt)
        return job.attempt

    config = make_config(
        dsn,
        heartbeater={"interval_s": 0.1, "lease_s": 5.0},
        claimer={"poll_s": 0.05, "idle_poll_s": 0.05},
        scheduler={"interval_s": 0.05, "idle_interval_s": 0.05},
    )
    runtime = Runtime(app, config)
    async with working(runtime):
        job = await client.enqueue("work")
        await eventually(lambda: runtime.inflight.running)
        # As the watchdog of another process would have done after a long pause of this one.
        await connection.execute(
            "update chronos.jobs"
            " set state = 'ready', lease_token = null, lease_until = null where id = $1",
            job.id,
        )
        record = await ended(client, job.id)
    assert (record.result, cancelled) == (2, [1])
    assert runtime.metrics.stale.value("default", "work") == 1
    assert runtime.metrics.lost.value("default", "work") == 1


async def test_lost_connections_lose_no_job(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    runs: Counter[UUID] = Counter()

    @app.handler("work", backoff=Fixed(0.0))
    async def work(job: Job, payload: object) -> None:
        runs[job.id] += 1
        await anyio.sleep(0.001)

    runtime = Runtime(app, make_config(dsn, executor={"concurrency": 5}))
    async with working(runtime):
        jobs = await client.enqueue_many([client.job("work") for _ in range(200)])
        for done in (20, 60, 100):
            await eventually(lambda done=done: len(runs) >= done)  # type: ignore[misc]
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
                " and application_name = 'chronos-runtime'"
            )
        await eventually(lambda: len(runs) == 200)
    async with Client.connect(dsn, app) as fresh:
        states = [await state_of(fresh, job.id) for job in jobs]
    assert states == ["succeeded"] * 200


async def test_a_row_that_cannot_be_reaped_does_not_hold_up_the_others(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    @app.handler("work")
    async def work(job: Job, payload: object) -> None: ...

    jobs = await client.enqueue_many([client.job("work") for _ in range(5)])
    await lease(connection, [job.id for job in jobs], UUID(int=7), -60.0)
    await connection.execute(
        "create function refuse() returns trigger language plpgsql"
        " as $$ begin raise exception 'this row cannot be written'; end $$"
    )
    await connection.execute(
        "create trigger refuse before update on chronos.jobs"
        f" for each row when (old.id = '{jobs[2].id}') execute function refuse()"
    )
    runtime = Runtime(app, make_config(dsn, watchdog={"interval_s": 0.05}))
    async with working(runtime):
        for job in jobs[:2] + jobs[3:]:
            assert (await ended(client, job.id)).attempt == 2
    assert await state_of(client, jobs[2].id) == "running"
    assert sample(runtime.metrics, "chronos_watchdog_skipped_rows_total") >= 1
    assert restarts(runtime.metrics, "watchdog") == 0


async def test_a_database_that_is_away_is_waited_for(app: Chronos) -> None:
    Crowd(app)
    config = Config.of(
        {
            "database": {"dsn": "postgresql://127.0.0.1:1/nowhere"},
            "exporter": {"enabled": False},
            "supervisor": {"restarts_max": 1, "backoff_s": 0.001, "backoff_max_s": 0.01},
        }
    )
    runtime = Runtime(app, config)
    async with working(runtime):
        actors = ("claimer", "listener", "scheduler", "watchdog", "janitor", "surveyor")
        await eventually(lambda: all(restarts(runtime.metrics, actor) > 5 for actor in actors))


async def test_a_runtime_that_is_cancelled_leaves_at_once(
    dsn: str, app: Chronos, client: Client
) -> None:
    """As after a second signal: what ran is left to its lease."""
    crowd = Crowd(app)
    runtime = Runtime(app, make_config(dsn))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.run, anyio.Event())
        job = await client.enqueue("wait")
        await eventually(lambda: crowd.running)
        tasks.cancel_scope.cancel()
    assert crowd.running == []
    assert await state_of(client, job.id) == "running"


async def test_jobs_that_come_one_by_one_to_an_idle_process_need_no_claim(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    ran: list[tuple[UUID, int]] = []

    @app.handler("greet")
    async def greet(job: Job, payload: dict[str, int]) -> None:
        ran.append((job.id, job.attempt))

    async def is_offered() -> bool:
        return bool(await connection.fetchval("select count(*) from chronos.offers"))

    runtime = Runtime(app, make_config(dsn))
    ids = []
    async with working(runtime):
        for count in range(1, 21):
            await eventually(is_offered)
            ids.append((await client.enqueue(greet, {})).id)
            await eventually(partial(has_run, ran, count))
        await eventually(lambda: runtime.inflight.settled == 20)
        await eventually(is_offered)
    assert ran == [(id, 1) for id in ids]
    metrics = runtime.metrics
    assert sample(metrics, "chronos_taker_rows_total") == 20
    assert sample(metrics, "chronos_claimer_rows_total") == 0
    assert (await client.get(ids[0])).state == "succeeded"
    assert await connection.fetchval("select count(*) from chronos.offers") == 0, "it left"
    # All but what was not over yet when the last offer was made.
    assert await connection.fetchval("select count(*) from chronos.claims") <= 2


async def test_a_full_process_is_handed_nothing(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    started, gate = list[UUID](), anyio.Event()

    @app.handler("hold")
    async def hold(job: Job, payload: dict[str, int]) -> None:
        started.append(job.id)
        await gate.wait()

    async def offers() -> int:
        return int(await connection.fetchval("select count(*) from chronos.offers"))

    async with working(Runtime(app, make_config(dsn, executor={"concurrency": 1}))):

        async def is_offered() -> bool:
            return await offers() == 1

        async def is_withdrawn() -> bool:
            return await offers() == 0

        await eventually(is_offered)
        jobs = [client.job(hold, {}) for _ in range(2)]
        await client.enqueue_many(jobs)  # Two at once come by a claim, and leave the offer out.
        await eventually(lambda: len(started) == 1)
        await eventually(is_withdrawn)
        waiting = (await client.enqueue(hold, {})).id
        assert (await client.get(waiting)).state == "ready"
        gate.set()
        await eventually(lambda: len(started) == 3)


async def test_a_job_handed_to_a_process_that_could_not_withdraw_goes_back_when_it_leaves(
    dsn: str, app: Chronos, client: Client, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.handler("greet")
    async def greet(job: Job, payload: dict[str, int]) -> None: ...

    handed: list[UUID] = []

    async def cannot_withdraw(taker: Taker) -> None:
        handed.append((await client.enqueue(greet, {})).id)
        assert (await client.get(handed[0])).state == "running"

    async def is_offered() -> bool:
        return bool(await connection.fetchval("select count(*) from chronos.offers"))

    monkeypatch.setattr(Taker, "_leave", cannot_withdraw)
    async with working(Runtime(app, make_config(dsn, heartbeater={"lease_s": NEVER_S}))):
        await eventually(is_offered)
    record = await client.get(handed[0])
    assert (record.state, record.attempt) == ("ready", 0)


async def test_a_job_is_found_though_the_listener_was_cut_off(
    dsn: str, app: Chronos, client: Client, connection: Connection
) -> None:
    ran: list[UUID] = []

    @app.handler("greet")
    async def greet(job: Job, payload: dict[str, int]) -> None:
        ran.append(job.id)

    async def is_offered() -> bool:
        return bool(await connection.fetchval("select count(*) from chronos.offers"))

    cut = (
        "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and database ="
        " (select oid from pg_database where datname = current_database())"
    )
    async with working(Runtime(app, make_config(dsn, heartbeater={"lease_s": NEVER_S}))):
        for count in range(1, 6):
            await eventually(is_offered)
            await connection.execute(cut)
            id = (await client.enqueue(greet, {})).id
            await eventually(partial(has_run, ran, count))
            assert ran[-1] == id
