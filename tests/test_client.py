"""What the client promises, on both stores, and in the caller's own transaction."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import anyio
import asyncpg
import msgspec
import pytest

from chronos_runtime import (
    Chronos,
    Client,
    Enqueued,
    InputError,
    Job,
    JobNotFound,
    JobStateError,
    MemoryStore,
    NewJob,
    PayloadError,
    StoreError,
    StoreUnavailable,
    UnknownKind,
)
from chronos_runtime.client import PAGE_MAX
from chronos_runtime.ids import new_job_id, new_job_ids
from chronos_runtime.job import State
from chronos_runtime.store.migrations import Connection
from tests.eventually import eventually
from tests.store.world import World, open_world

MANY = 100_000
STATES: tuple[State, ...] = ("scheduled", "ready", "running", "succeeded", "dead", "cancelled")

WAITING_FOR_US = """
select count(*) from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))
"""


class Greeting(msgspec.Struct):
    name: str
    times: int = 1


app = Chronos()


@app.handler("greet", priority=3, max_attempts=4, timeout_s=2.0)
async def greet(job: Job, payload: Greeting) -> None: ...


@app.handler("report", topic="slow")
async def report(job: Job, payload: Any) -> None: ...


async def stranger(job: Job, payload: Any) -> None: ...


@pytest.fixture(params=["memory", "postgres"])
def world_dsn(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("dsn") if request.param == "postgres" else None


@pytest.fixture
async def world(world_dsn: str | None, anyio_backend: object) -> AsyncIterator[World]:
    async with open_world(world_dsn) as world:
        yield world


@pytest.fixture
def client(world: World) -> Client:
    return Client(world.store, app)


@pytest.fixture
async def pg_client(dsn: str, anyio_backend: object) -> AsyncIterator[Client]:
    async with Client.connect(dsn, app) as client:
        yield client


@pytest.fixture(scope="module")
def many_jobs() -> list[NewJob]:
    return [NewJob(id, "report", '{"a": 1}', "slow", 5, 5) for id in new_job_ids(MANY)]


async def listed(client: Client, **filters: Any) -> list[UUID]:
    """Every id that the pages of a listing show, page by page."""
    ids: list[UUID] = []
    before = None
    while True:
        page = await client.list(before=before, limit=7, **filters)
        ids += [job.id for job in page.jobs]
        if page.next is None:
            return ids
        before = page.next


async def make_job_in_each_state(world: World, client: Client) -> dict[State, UUID]:
    running, done = await world.claim_one(priority=0), await world.claim_one(priority=0)
    dead = await world.make_dead(priority=0)
    await world.finish(done)
    cancelled = await client.enqueue("greet", Greeting("x"))
    await client.cancel(cancelled.id)
    scheduled = await client.enqueue("greet", Greeting("x"), delay_s=60)
    ready = await client.enqueue("greet", Greeting("x"))
    return {
        "scheduled": scheduled.id,
        "ready": ready.id,
        "running": running.id,
        "succeeded": done.id,
        "dead": dead,
        "cancelled": cancelled.id,
    }


async def count_jobs(connection: Connection) -> int:
    return int(await connection.fetchval("select count(*) from chronos.jobs"))


# What is said about a job.


async def test_a_job_is_enqueued_by_its_kind_or_by_its_function(
    world: World, client: Client
) -> None:
    by_kind = await client.enqueue("greet", Greeting("Ada"))
    by_function = await client.enqueue(greet, {"name": "Bob", "times": 2})
    assert by_kind.is_new
    assert by_function.is_new
    first, second = await client.get(by_kind.id), await client.get(by_function.id)
    assert (first.kind, first.payload) == ("greet", {"name": "Ada", "times": 1})
    assert (second.kind, second.payload) == ("greet", {"name": "Bob", "times": 2})


async def test_what_is_left_out_comes_from_the_handler(world: World, client: Client) -> None:
    job = await client.get((await client.enqueue(greet, Greeting("x"))).id)
    assert (job.topic, job.priority, job.max_attempts) == ("default", 3, 4)
    assert (await client.get((await client.enqueue(report)).id)).topic == "slow"


async def test_what_is_said_wins_over_the_handler(world: World, client: Client) -> None:
    enqueued = await client.enqueue(
        greet, Greeting("x"), topic="mail", priority=0, max_attempts=1, timeout_s=0.5, key="k"
    )
    job = await client.get(enqueued.id)
    assert (job.topic, job.priority, job.max_attempts) == ("mail", 0, 1)
    assert (job.timeout_s, job.unique_key) == (0.5, "k")


async def test_a_client_without_an_app_takes_any_kind_and_payload(world: World) -> None:
    client = Client(world.store)
    job = await client.get((await client.enqueue("anything", [1, None, "é"])).id)
    assert (job.kind, job.payload, job.topic, job.priority) == (
        "anything",
        [1, None, "é"],
        "default",
        5,
    )
    with pytest.raises(UnknownKind, match=r"^kind: "):
        await client.enqueue(greet)
    with pytest.raises(InputError, match=r"^kind: "):
        await client.enqueue("no\nname")


@pytest.mark.parametrize(
    ("kind", "payload", "options", "error", "text"),
    [
        ("nobodys", None, {}, UnknownKind, "kind: no handler for 'nobodys'"),
        (stranger, None, {}, UnknownKind, "kind: no handler for 'stranger'"),
        ("greet", None, {}, PayloadError, "payload of 'greet': Expected `object`, got `null`"),
        ("greet", {"name": 7}, {}, PayloadError, "$.name"),
        (greet, Greeting("\x00"), {}, PayloadError, "NUL character in the string at $.name"),
        ("report", float("nan"), {}, PayloadError, "nan at $"),
        ("report", None, {"run_at": datetime(2030, 1, 1)}, InputError, "run_at: "),  # noqa: DTZ001
        ("report", None, {"run_at": datetime(1999, 1, 1, tzinfo=UTC)}, InputError, "run_at: "),
        ("report", None, {"run_at": datetime(9999, 6, 1, tzinfo=UTC)}, InputError, "run_at: "),
        ("report", None, {"run_at": "tomorrow"}, InputError, "run_at: "),
        (
            "report",
            None,
            {"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay_s": 0},
            InputError,
            "run_at, delay_s: give one of them",
        ),
        ("report", None, {"delay_s": -1}, InputError, "delay_s: "),
        ("report", None, {"delay_s": "5"}, InputError, "delay_s: "),
        ("report", None, {"delay_s": 2 * 366 * 86_400}, InputError, "delay_s: "),
        ("report", None, {"priority": 10}, InputError, "priority: "),
        ("report", None, {"max_attempts": 0}, InputError, "max_attempts: "),
        ("report", None, {"timeout_s": 0}, InputError, "timeout_s: "),
        ("report", None, {"timeout_s": 1e-50}, InputError, "timeout_s: "),
        ("report", None, {"topic": "*"}, InputError, "topic: "),
        ("report", None, {"key": ""}, InputError, "key: "),
        ("report", None, {"key": "\ud800"}, InputError, "key: "),
    ],
    ids=lambda value: ascii(value)[:40] if isinstance(value, dict | str) else "",
)
async def test_what_cannot_be_a_job_is_refused_before_anything_is_written(
    kind: Any, payload: object, options: Any, error: type[Exception], text: str
) -> None:
    client = Client(Nothing(), app)  # Whatever is asked of this store fails the test.
    with pytest.raises(error) as caught:
        await client.enqueue(kind, payload, **options)
    assert text in str(caught.value)


class Nothing(MemoryStore):
    def __init__(self) -> None:
        pass  # Even making a store asks it for its parts.

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked of the store")


async def test_a_job_is_postponed_by_an_instant_or_by_a_delay(world: World, client: Client) -> None:
    tomorrow = datetime(2100, 1, 1, 12, tzinfo=UTC)
    by_instant = await client.get((await client.enqueue(report, run_at=tomorrow)).id)
    assert (by_instant.state, by_instant.run_at) == ("scheduled", tomorrow)
    by_delay = await client.get((await client.enqueue(report, delay_s=90)).id)
    assert by_delay.run_at - by_delay.enqueued_at == timedelta(seconds=90)
    for at_once in (
        await client.enqueue(report, delay_s=0),
        await client.enqueue(report, run_at=datetime(2001, 1, 1, tzinfo=UTC)),
    ):
        assert (await client.get(at_once.id)).state == "ready"


# Keys.


async def test_the_second_job_of_a_key_is_the_first_one(world: World, client: Client) -> None:
    first = await client.enqueue(greet, Greeting("a"), key="k")
    second = await client.enqueue(greet, Greeting("b"), key="k")
    assert (first.is_new, second.is_new) == (True, False)
    assert second.id == first.id
    assert (await client.get(first.id)).payload == {"name": "a", "times": 1}
    assert (await client.enqueue(greet, Greeting("c"), key="other")).is_new


@pytest.mark.parametrize("end", ["succeeded", "dead", "cancelled"])
async def test_a_key_is_free_again_once_its_job_has_ended(
    world: World, client: Client, end: State
) -> None:
    first = await client.enqueue(greet, Greeting("a"), key="k")
    if end == "cancelled":
        await client.cancel(first.id)
    else:
        [job] = await world.claim()
        assert not (await client.enqueue(greet, Greeting("a"), key="k")).is_new, "it still runs"
        await world.finish(job, end)
    second = await client.enqueue(greet, Greeting("b"), key="k")
    assert second.is_new
    assert second.id != first.id


async def test_jobs_of_one_key_in_one_call_become_one(world: World, client: Client) -> None:
    await client.enqueue(report, key="taken")
    jobs = [client.job(report, key=key) for key in ("a", "b", "a", "taken", None, None, "b", "a")]
    enqueued = await client.enqueue_many(jobs)
    assert [one.is_new for one in enqueued] == [True, True, False, False, True, True, False, False]
    assert enqueued[2].id == enqueued[7].id == jobs[0].id
    assert enqueued[6].id == jobs[1].id
    assert len(await listed(client)) == 5


async def test_a_key_that_comes_free_between_the_clash_and_the_look_is_taken(
    world: World, client: Client
) -> None:
    holder = await client.enqueue(greet, Greeting("a"), key="k")
    find_unique = world.store.find_unique

    async def end_first(keys: Sequence[str]) -> dict[str, UUID]:
        await world.store.cancel_jobs([holder.id])
        return await find_unique(keys)

    world.store.find_unique = end_first  # type: ignore[method-assign]
    assert (await client.enqueue(greet, Greeting("b"), key="k")).is_new


async def test_a_key_that_never_settles_is_no_success(world: World, client: Client) -> None:
    await client.enqueue(greet, Greeting("a"), key="k")

    async def find_nothing(keys: Sequence[str]) -> dict[str, UUID]:
        return {}

    world.store.find_unique = find_nothing  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="'k'"):
        await client.enqueue(greet, Greeting("b"), key="k")


async def test_of_two_who_race_for_a_key_exactly_one_is_new(world: World, client: Client) -> None:
    for round_number in range(20):
        answers: list[Enqueued] = []

        async def enqueue(key: str, answers: list[Enqueued] = answers) -> None:
            answers.append(await client.enqueue(report, key=key))

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(enqueue, f"key {round_number}")
        assert sorted(answer.is_new for answer in answers) == [False, True]
        assert answers[0].id == answers[1].id


@pytest.mark.parametrize("commits", [True, False])
async def test_who_meets_a_key_that_is_not_committed_waits_for_the_decision(
    pg_client: Client, connection: Connection, commits: bool
) -> None:
    transaction = connection.transaction()
    await transaction.start()
    first = await pg_client.enqueue(report, key="k", connection=connection)
    answers: list[Enqueued] = []
    async with anyio.create_task_group() as tasks:

        async def enqueue() -> None:
            answers.append(await pg_client.enqueue(report, key="k"))

        tasks.start_soon(enqueue)
        await eventually(lambda: connection.fetchval(WAITING_FOR_US))
        await (transaction.commit() if commits else transaction.rollback())
    assert answers[0].is_new is not commits
    assert (answers[0].id == first.id) is commits


# Sent again.


@pytest.mark.parametrize("count", [1, 600])
async def test_the_same_jobs_sent_again_are_there_once_and_said_to_be_old(
    world: World, client: Client, count: int
) -> None:
    jobs = [client.job(report, number) for number in range(count)]
    assert all(one.is_new for one in await client.enqueue_many(jobs))
    again = await client.enqueue_many(jobs)
    assert [one.id for one in again] == [job.id for job in jobs]
    assert not any(one.is_new for one in again)
    [depth] = (await client.counts()).live
    assert depth.jobs == count


async def test_a_batch_that_was_half_there_gains_what_was_missing(
    world: World, client: Client
) -> None:
    jobs = [client.job(report, key=f"k{n}" if n % 7 == 0 else None) for n in range(1_200)]
    await client.enqueue_many(jobs[::2])
    answers = await client.enqueue_many(jobs)
    assert [one.is_new for one in answers] == [number % 2 == 1 for number in range(1_200)]
    assert [one.id for one in answers] == [job.id for job in jobs]


async def test_the_same_job_twice_in_one_call_is_there_once(world: World, client: Client) -> None:
    for count in (2, 700):
        job = client.job(report)
        answers = await client.enqueue_many([job] * count)
        assert {one.id for one in answers} == {job.id}
    assert len(await listed(client)) == 2


async def test_no_jobs_are_no_work(world: World, client: Client) -> None:
    assert await client.enqueue_many([]) == []
    assert await client.enqueue_many(iter([])) == []


# In the caller's transaction.


@pytest.mark.parametrize("count", [1, 600])
async def test_jobs_are_there_when_and_only_when_the_callers_transaction_commits(
    pg_client: Client, connection: Connection, count: int
) -> None:
    jobs = [pg_client.job(report, number) for number in range(count)]
    transaction = connection.transaction()
    await transaction.start()
    assert all(one.is_new for one in await pg_client.enqueue_many(jobs, connection=connection))
    assert await count_jobs(connection) == count
    assert await listed(pg_client) == [], "nobody else sees them yet"
    await transaction.rollback()
    assert await count_jobs(connection) == 0
    async with connection.transaction():
        await pg_client.enqueue_many(jobs, connection=connection)
    assert len(await listed(pg_client)) == count


async def test_a_clash_leaves_the_callers_transaction_whole(
    pg_client: Client, connection: Connection
) -> None:
    holder = await pg_client.enqueue(report, key="k")
    jobs = [pg_client.job(report) for _ in range(600)]
    await pg_client.enqueue_many(jobs[:300])
    async with connection.transaction():
        await connection.execute("create table public.orders (id int)")
        again = await pg_client.enqueue(report, key="k", connection=connection)
        answers = await pg_client.enqueue_many(jobs, connection=connection)
    assert (again.id, again.is_new) == (holder.id, False)
    assert [one.is_new for one in answers] == [False] * 300 + [True] * 300
    assert await connection.fetchval("select count(*) from public.orders") == 0


async def test_one_plain_job_sent_again_leaves_the_callers_transaction_whole(
    pg_client: Client, connection: Connection
) -> None:
    job = pg_client.job(report)
    await pg_client.enqueue_many([job])
    async with connection.transaction():
        await connection.execute("create table public.orders (id int)")
        [again] = await pg_client.enqueue_many([job], connection=connection)
    assert (again.id, again.is_new) == (job.id, False)
    [outside] = await pg_client.enqueue_many([job], connection=connection)
    assert (outside.id, outside.is_new) == (job.id, False)
    assert await connection.fetchval("select count(*) from public.orders") == 0


@pytest.mark.parametrize("count", [1, 2])
async def test_a_job_is_of_the_moment_it_was_sent_and_not_of_the_callers_beginning(
    pg_client: Client, connection: Connection, count: int
) -> None:
    async with connection.transaction():
        jobs = [pg_client.job(report) for _ in range(count)]
        await pg_client.enqueue_many(jobs, connection=connection)
        assert await connection.fetchval(
            "select bool_and(enqueued_at > now() and run_at = enqueued_at) from chronos.jobs"
        )


@pytest.mark.parametrize("count", [1, 600])
async def test_a_jsonb_codec_of_the_callers_does_not_change_payloads(
    pg_client: Client, connection: Connection, count: int
) -> None:
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )
    jobs = [pg_client.job(report, {"a": "\\ \t\n\r\\N é\u2028"}, timeout_s=1.5)] + [
        pg_client.job(report, [number]) for number in range(count - 1)
    ]
    await pg_client.enqueue_many(jobs, connection=connection)
    job = await pg_client.get(jobs[0].id)
    assert job.payload == {"a": "\\ \t\n\r\\N é\u2028"}
    assert (job.timeout_s, job.topic, job.kind) == (1.5, "slow", "report")


async def test_bulk_and_single_jobs_are_stored_alike(world: World, client: Client) -> None:
    payload = {"\\N": ["\\", "\\\\n", "\t\n\r\x08\x0c", '"', "é\u2028😀", "\\u0000", None, 1.5]}
    options: Any = {"topic": "a\\tb", "priority": 9, "max_attempts": 7, "timeout_s": 0.25}
    [single] = await client.enqueue_many([client.job(report, payload, **options)])
    bulk = await client.enqueue_many([client.job(report, payload, **options) for _ in range(500)])
    one, other = await client.get(single.id), await client.get(bulk[-1].id)
    for field in ("state", "topic", "kind", "priority", "max_attempts", "timeout_s", "payload"):
        assert getattr(one, field) == getattr(other, field)
    assert one.payload == payload


async def test_the_callers_pool_will_do(dsn: str, pg_client: Client) -> None:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            enqueued = await pg_client.enqueue(report, connection=connection)  # type: ignore[arg-type]
        jobs = [pg_client.job(report) for _ in range(500)]
        async with pool.acquire() as connection:
            await pg_client.enqueue_many(jobs, connection=connection)  # type: ignore[arg-type]
    assert (await pg_client.get(enqueued.id)).state == "ready"


@pytest.mark.parametrize("is_callers", [False, True])
async def test_a_hundred_thousand_jobs_go_in_with_one_call(
    pg_client: Client, connection: Connection, many_jobs: list[NewJob], is_callers: bool
) -> None:
    answers = await pg_client.enqueue_many(many_jobs, connection=connection if is_callers else None)
    assert [one.id for one in answers] == [job.id for job in many_jobs]
    assert all(one.is_new for one in answers)
    in_order = await connection.fetchval("select array(select id from chronos.jobs order by seq)")
    assert in_order == [job.id for job in many_jobs]


# Looking.


async def test_a_job_nobody_knows_is_not_found(world: World, client: Client) -> None:
    id = new_job_id()
    for ask in (client.get, client.cancel, client.retry, client.discard):
        with pytest.raises(JobNotFound, match=str(id)):
            await ask(id)


async def test_a_job_is_found_in_every_state(world: World, client: Client) -> None:
    for state, id in (await make_job_in_each_state(world, client)).items():
        assert (await client.get(id)).state == state


async def test_pages_show_every_job_once_and_the_newest_first(world: World, client: Client) -> None:
    ids = [(await client.enqueue("greet", Greeting("x"))).id for _ in range(23)]
    ended = ids[::3]
    for job in await world.claim(room=12):
        await world.finish(job)
    for id in ended[-2:]:
        await client.cancel(id)
    assert await listed(client) == sorted(ids, reverse=True)


async def test_a_page_says_whether_there_is_more(world: World, client: Client) -> None:
    assert await client.list() == await client.list(before=new_job_id())
    ids = [(await client.enqueue(report)).id for _ in range(3)]
    page = await client.list(limit=2)
    assert ([job.id for job in page.jobs], page.next) == ([ids[2], ids[1]], ids[1])
    last = await client.list(limit=2, before=page.next)
    assert ([job.id for job in last.jobs], last.next) == ([ids[0]], None)
    assert (await client.list(limit=4)).next is None


async def test_filters_divide_the_jobs_without_losing_any(world: World, client: Client) -> None:
    for _ in range(5):
        await make_job_in_each_state(world, client)
        await client.enqueue(report)
        await client.enqueue("greet", Greeting("x"), topic="slow")
    everything = await listed(client)
    by_state = [id for state in STATES for id in await listed(client, states=[state])]
    assert sorted(by_state, reverse=True) == everything
    by_topic = [id for topic in ("default", "slow") for id in await listed(client, topic=topic)]
    assert sorted(by_topic, reverse=True) == everything
    by_kind = [id for kind in ("greet", "report") for id in await listed(client, kind=kind)]
    assert sorted(by_kind, reverse=True) == everything
    assert set(await listed(client, topic="slow", kind="greet")) < set(everything)
    assert len(await listed(client, states=["ready", "dead"], topic="slow")) == 10
    assert await listed(client, states=[]) == []
    assert await listed(client, topic="nobody's") == []


@pytest.mark.parametrize("limit", [0, -1, PAGE_MAX + 1])
async def test_a_page_has_a_size(limit: int) -> None:
    with pytest.raises(InputError, match=r"^limit: "):
        await Client(MemoryStore()).list(limit=limit)


async def test_counts_are_exact_while_they_are_small(world: World, client: Client) -> None:
    assert (await client.counts()).live == []
    await make_job_in_each_state(world, client)
    await client.enqueue(report)
    counts = await client.counts()
    assert {(depth.topic, depth.state): (depth.jobs, depth.is_bound) for depth in counts.live} == {
        ("default", "scheduled"): (1, False),
        ("default", "ready"): (1, False),
        ("default", "running"): (1, False),
        ("slow", "ready"): (1, False),
    }
    assert (counts.history.dead, counts.history.cancelled) == (1, 1)


async def test_counts_past_their_bound_say_so(
    world: World, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronos_runtime.client.COUNT_BOUND", 3)
    for _ in range(2):
        await world.make_dead()
    await client.enqueue_many([client.job(report) for _ in range(3)])
    await client.enqueue_many([client.job(greet, Greeting("x")) for _ in range(4)])
    counts = await client.counts()
    assert {depth.topic: (depth.jobs, depth.is_bound) for depth in counts.live} == {
        "slow": (3, False),
        "default": (3, True),
    }
    assert counts.history.dead == 2


# Deciding.


async def test_a_waiting_job_is_cancelled_and_a_running_one_is_asked(
    world: World, client: Client
) -> None:
    jobs = await make_job_in_each_state(world, client)
    assert await client.cancel(jobs["scheduled"]) == "cancelled"
    assert await client.cancel(jobs["ready"]) == "cancelled"
    assert await client.cancel(jobs["running"]) == "requested"
    assert (await client.get(jobs["running"])).cancel_requested
    assert await world.states([jobs["scheduled"], jobs["ready"]]) == ["cancelled"] * 2
    ended: tuple[State, ...] = ("succeeded", "dead", "cancelled")
    for state in ended:
        with pytest.raises(JobStateError, match=f"has ended already: {state}"):
            await client.cancel(jobs[state])


async def test_a_dead_job_is_retried_and_its_attempts_count_on(
    world: World, client: Client
) -> None:
    id = await world.make_dead(max_attempts=3)
    await client.retry(id)
    job = await client.get(id)
    assert (job.state, job.attempt, job.max_attempts) == ("ready", 1, 3)
    [claimed] = await world.claim()
    assert (claimed.id, claimed.attempt) == (id, 2)
    assert len(job.errors) == 1


async def test_only_a_dead_job_is_retried_or_discarded(world: World, client: Client) -> None:
    jobs = await make_job_in_each_state(world, client)
    for state, id in jobs.items():
        if state != "dead":
            with pytest.raises(JobStateError, match=f"is {state}: only a dead job can be retried"):
                await client.retry(id)
            with pytest.raises(JobStateError, match="only a dead job can be discarded"):
                await client.discard(id)
    await client.discard(jobs["dead"])
    assert (await client.get(jobs["dead"])).state == "cancelled"
    with pytest.raises(JobStateError, match="is cancelled"):
        await client.retry(jobs["dead"])


async def test_a_dead_job_whose_key_is_taken_stays_dead(world: World, client: Client) -> None:
    id = await world.make_dead(unique_key="k")
    await client.enqueue("greet", Greeting("x"), key="k")
    with pytest.raises(StoreError, match="k"):
        await client.retry(id)
    assert (await client.get(id)).state == "dead"


async def test_a_paused_topic_yields_nothing_until_it_is_resumed(
    world: World, client: Client
) -> None:
    assert await client.gates() == []
    await client.enqueue("greet", Greeting("x"))
    await client.pause("default")
    await client.pause("mail")
    assert [(gate.topic, gate.paused) for gate in await client.gates()] == [
        ("default", True),
        ("mail", True),
    ]
    assert await world.claim() == []
    await client.resume("default")
    assert len(await world.claim()) == 1
    assert [gate.paused for gate in await client.gates()] == [False, True]


async def test_the_gate_of_all_topics_closes_them_all(world: World, client: Client) -> None:
    await client.enqueue("greet", Greeting("x"))
    await client.pause()
    assert [(gate.topic, gate.paused) for gate in await client.gates()] == [("*", True)]
    assert await world.claim() == []
    await client.resume()
    assert len(await world.claim()) == 1


@pytest.mark.parametrize("topic", ["", "a\nb", "x" * 201], ids=ascii)
async def test_a_gate_has_the_name_of_a_topic(topic: str) -> None:
    client = Client(MemoryStore())
    for decide in (client.pause, client.resume):
        with pytest.raises(InputError, match=r"^topic: "):
            await decide(topic)


async def test_a_client_can_be_used_again_after_it_was_closed(dsn: str) -> None:
    client = Client.connect(dsn, app)
    async with client:
        first = await client.enqueue(report)
    async with client:
        assert (await client.get(first.id)).state == "ready"
