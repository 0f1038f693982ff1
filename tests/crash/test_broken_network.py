"""Replies get lost, connections hang or die: every write happens once, and workers recover."""

from collections.abc import AsyncIterator

import anyio
import pytest

from chronos_runtime.client import Client
from chronos_runtime.errors import StoreUnavailable
from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.crash.fleet import PATIENT, Fleet, Gate, WorkerProcess
from tests.crash.producer import enqueue
from tests.crash.proxy import Proxy, open_proxy
from tests.eventually import eventually

pytestmark = pytest.mark.crash

CLAIM = "-- Leases ready jobs"
OFFER = "-- Offers to take one job"  # By the same connection, when the claims are done.
FINISH = "-- Moves ended jobs to the history"
RETURN = "-- Gives claimed jobs back to the queue"
ENQUEUE = "-- Inserts jobs"
VERIFY = "-- Says what became of claims"

LISTENERS = """
select pid from pg_stat_activity
where datname = current_database() and application_name = 'chronos-runtime'
  and query ~* '^(listen|select pg_notify)'
"""
CLAIMED_AGO_S = f"""
select extract(epoch from clock_timestamp() - max(query_start))::double precision
from pg_stat_activity
where datname = current_database() and (query like '{CLAIM}%' or query like '{OFFER}%')
"""

RESCANS = "chronos_claimer_rescans_total"
UP = "chronos_listener_up_state"

# Nothing but the poll floor may explain that an idle worker found a job.
POLL_S = 0.5
DEAF_POLL = {"poll_s": POLL_S, "idle_poll_s": 3_600.0, "rescan_s": 3_600.0}


@pytest.fixture
async def proxy(dsn: str, anyio_backend: object) -> AsyncIterator[Proxy]:
    """Between the workers and the database of `dsn`; the checker goes past it."""
    async with open_proxy(dsn) as proxy:
        yield proxy


@pytest.mark.parametrize("mark", [CLAIM, FINISH, RETURN], ids=["claim", "finish", "return"])
async def test_a_write_whose_reply_was_lost_happened_once_and_costs_no_attempt(
    client: Client, checker: Checker, fleet: Fleet, proxy: Proxy, mark: str
) -> None:
    trap = proxy.swallow(mark, {1, 2, 3, 5, 8})
    ids = await enqueue(client, "quick", 60, {"for_s": 0.05})
    ids += await enqueue(client, "snooze", 20)
    # A lease of a minute: what waited for its lease to run out would have used an attempt up.
    worker = fleet.start(dsn=proxy.dsn, executor={"concurrency": 5}, heartbeater=PATIENT)
    await checker.wait_drained()

    assert trap.sprung >= 3, "how many runs there are is a matter of batching"
    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": len(ids)}
    for row in report.history.values():
        assert (row["attempt"], row["errors"]) == (1, [])
    assert worker.is_alive
    if mark == FINISH:
        metrics = await worker.metrics()
        assert metrics["chronos_reporter_stale_jobs_total"] == 0, "it knew its own handwriting"
        assert metrics["chronos_reporter_succeeded_jobs_total"] == len(ids)


async def test_an_enqueue_whose_reply_was_lost_can_be_sent_again(
    checker: Checker, fleet: Fleet, proxy: Proxy
) -> None:
    proxy.swallow(ENQUEUE, {1})
    async with Client.connect(proxy.dsn) as client:
        jobs = [client.job("quick", {}) for _ in range(10)]
        with pytest.raises(StoreUnavailable):
            await client.enqueue_many(jobs)
        ids = [enqueued.id for enqueued in await client.enqueue_many(jobs)]
    assert await checker.live() == 10
    fleet.start()
    await checker.wait_drained()
    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": 10}


async def test_late_news_of_a_lost_lease_does_not_stop_the_next_attempt(
    client: Client, checker: Checker, fleet: Fleet, proxy: Proxy, gate: Gate
) -> None:
    news = proxy.delay(VERIFY, {1})
    (id,) = await enqueue(client, "hold", 1, gate.payload)
    fleet.start(dsn=proxy.dsn, watchdog={"interval_s": 0.02})
    await checker.wait_started(1)
    await checker.queue.execute("update chronos.jobs set lease_until = now() - interval '1 s'")
    await checker.queue.execute("update chronos.claims set look_at = now() - interval '1 s'")
    await eventually(lambda: news.sprung, DEADLINE_S)  # The heartbeater is about to hear it.
    gate.open(attempt=1)
    await checker.wait_started(1, attempt=2)
    news.let_go()
    await wait_beat(checker)  # It has heard, and gone on.
    gate.open()
    await checker.wait_drained()

    report = await checker.report([id])
    assert report.faults == {}
    assert report.attempts_started(id) == [1, 2]


async def test_a_network_that_falls_silent_and_comes_back_needs_no_restart(
    client: Client, checker: Checker, fleet: Fleet, proxy: Proxy, gate: Gate
) -> None:
    ids = await enqueue(client, "hold", 20, gate.payload)
    worker = fleet.start(
        dsn=proxy.dsn,
        database={"statement_s": 2.0, "connect_s": 2.0},
        listener={"probe_s": 2.0, "probe_deadline_s": 2.0},
        heartbeater=PATIENT,
    )
    await checker.wait_started(20)
    await wait_listener(worker, is_up=True)
    proxy.fall_silent()
    gate.open()
    ids += await enqueue(client, "quick", 20)
    await anyio.sleep(10.0)  # The silence itself: nothing is waited for.
    proxy.speak_again()
    await checker.wait_drained()
    await wait_listener(worker, is_up=True)

    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": 40}
    assert worker.is_alive


async def test_outcomes_that_an_outage_holds_up_are_written_once_when_it_is_over(
    client: Client, checker: Checker, fleet: Fleet, proxy: Proxy, gate: Gate
) -> None:
    ids = await enqueue(client, "hold", 50, gate.payload)
    worker = fleet.start(dsn=proxy.dsn, heartbeater=PATIENT)
    await checker.wait_started(50)
    proxy.go_away()
    gate.open()
    await eventually(lambda: has_ended_all(checker, 50), DEADLINE_S, poll_s=LOOK_S)
    assert await checker.live("running") == 50, "handlers have ended, and nobody knows yet"
    proxy.come_back()
    await checker.wait_drained()

    report = await checker.report(ids)
    assert report.faults == {}
    assert report.states == {"succeeded": 50}
    for id in ids:
        assert report.attempts_started(id) == [1]
        assert report.history[id]["errors"] == []
    assert worker.is_alive


async def test_a_listener_whose_connection_is_killed_listens_again(
    client: Client, checker: Checker, fleet: Fleet
) -> None:
    worker = fleet.start(claimer=DEAF_POLL)
    await wait_listener(worker, is_up=True)
    (first,) = await enqueue(client, "quick")
    await checker.wait_drained()
    killed = await kill_listener(checker)

    async def another_listens() -> bool:
        return bool(await listeners(checker) - {killed})

    await eventually(another_listens, DEADLINE_S, poll_s=LOOK_S)
    await wait_listener(worker, is_up=True)
    (second,) = await enqueue(client, "quick")
    await checker.wait_drained()
    assert (await checker.report([first, second])).faults == {}


async def test_without_a_listener_jobs_are_found_at_the_poll_floor(
    client: Client, checker: Checker, fleet: Fleet, proxy: Proxy
) -> None:
    worker = fleet.start(dsn=proxy.dsn, claimer=DEAF_POLL)
    await wait_listener(worker, is_up=True)
    (first,) = await enqueue(client, "quick")
    await checker.wait_drained()
    await worker.wait_metric(RESCANS, lambda looks: looks >= 2)  # The first one was a slow one.
    await wait_long_rest(checker)
    proxy.refuse_new()
    await kill_listener(checker)
    await wait_listener(worker, is_up=False)
    (second,) = await enqueue(client, "quick")
    await checker.wait_drained()
    assert (await worker.metrics())[UP] == 0
    proxy.come_back()
    await wait_listener(worker, is_up=True)
    assert (await checker.report([first, second])).faults == {}


async def has_ended_all(checker: Checker, count: int) -> bool:
    ends: int = await checker.evidence.fetchval("select count(*) from evidence where what = 'end'")
    return ends == count


async def wait_listener(worker: WorkerProcess, *, is_up: bool) -> None:
    await worker.wait_metric(UP, lambda value: value == is_up)


async def wait_beat(checker: Checker) -> None:
    """Wait until the lease of the one running job has been extended."""
    read = "select max(lease_until) from chronos.jobs"
    before = await checker.queue.fetchval(read)

    async def is_extended() -> bool:
        lease_until = await checker.queue.fetchval(read)
        return lease_until is not None and lease_until != before

    await eventually(is_extended, DEADLINE_S, poll_s=LOOK_S)


async def wait_long_rest(checker: Checker) -> None:
    """Wait until the claimer has not looked for longer than its poll floor."""

    async def rests() -> bool:
        claimed_ago_s: float = await checker.queue.fetchval(CLAIMED_AGO_S)
        return claimed_ago_s > 4 * POLL_S

    await eventually(rests, DEADLINE_S, poll_s=LOOK_S)


async def listeners(checker: Checker) -> set[int]:
    """The process ids of the sessions that listen, on the server."""
    return {row["pid"] for row in await checker.queue.fetch(LISTENERS)}


async def kill_listener(checker: Checker) -> int:
    """End the one session that listens; its process id."""
    (pid,) = await listeners(checker)
    assert await checker.queue.fetchval("select pg_terminate_backend($1)", pid)
    return pid
