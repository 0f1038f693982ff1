"""What the hot statements cost with a million jobs ready and a million scheduled.

Each one is explained as it runs, in a transaction that is rolled back: before the table was ever
analysed and after, with a generic plan (as our sessions force it) and with a custom one (as
behind a pooler), in small batches and in large ones. It must find its rows by the index it
names, never read or hash the whole table, and touch a bounded number of pages for each row.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from chronos_runtime.store.migrations import Connection
from chronos_runtime.store.sql import query
from tests.postgres import Databases

pytestmark = pytest.mark.slow

BACKLOG = 2_000_000  # Half of it ready, half of it scheduled.
RUNNING = 4_000
HISTORY = 200_000
TOKEN = UUID(int=7)

TABLES = {"jobs", "schedules"}

Samples = dict[str, list[UUID]]
Node = dict[str, Any]

# Measured: 10 to 17 pages a row that is written (its look-ups, its new version, its place in
# three indexes of four levels), 1 to 9 for one that is read. Twice that is no accident.
PAGES_PER_WRITE = 35
PAGES_PER_READ = 18
PAGES_ALWAYS = 400  # Roots, gates, marks, an index's first steps; and 40 empty scans of a claim.

_LOAD = (
    # Unlogged to be fast; never vacuumed or analysed but when a test says so.
    "alter table chronos.jobs set unlogged",
    "alter table chronos.jobs set (autovacuum_enabled = false)",
    # Six topics, from three fifths of all jobs to one in five hundred; nine jobs in ten of the
    # default priority; ids in order of time, as clients make them; a hundred thousand scheduled
    # jobs overdue.
    f"""
    insert into chronos.jobs (id, topic, kind, priority, payload, state, run_at, unique_key)
    select
        (lpad(to_hex(number), 12, '0') || '70008000000000000000')::uuid,
        case
            when number % 1000 < 2 then 'rare'
            when number % 10 < 6 then 'bulk'
            when number % 10 < 8 then 'mail'
            else 'topic ' || number % 3
        end,
        'kind ' || number % 4,
        case when number % 100 < 90 then 5 else number / 2 % 10 end,
        '{{"number": 1}}',
        case when number % 2 = 0 then 'ready' else 'scheduled' end::chronos.job_state,
        now() + make_interval(secs => case when number % 2 = 0 then -number else number end / 100.0)
            - make_interval(secs => number % 2 * 2000),
        case when number % 50 = 0 then 'key ' || number end
    from generate_series(1, {BACKLOG}) as number
    """,
    f"""
    with leased as (
        update chronos.jobs
        set attempt = 1, lease_token = '{TOKEN}', lease_until = now() + interval '1 hour'
        where id = any (array(
            select id from chronos.jobs
            where state = 'ready' and topic = 'mail' and priority = 5
            order by seq limit {RUNNING}
        ))
        returning id
    )
    insert into chronos.claims (token, look_at, ids)
    select '{TOKEN}', now(), array_agg(id) from leased
    """,
    """
    select chronos.make_history_partition((now() at time zone 'UTC')::date - day)
    from generate_series(0, 3) as day
    """,
    # One job in fifty did not succeed, half of those supervised, in lines of two attempts; all of
    # them are older than what waits.
    f"""
    insert into chronos.job_history (
        id, lease_token, run_at, enqueued_at, finished_at, state, attempt, max_attempts,
        priority, topic, kind, payload, supervisor, retry_of, lineage_id, lineage_no
    )
    select
        ('0000' || lpad(to_hex(number), 8, '0') || '70008000000000000001')::uuid, '{TOKEN}',
        now(), now(), now() - make_interval(mins => number % 4000),
        case number % 100
            when 0 then 'dead' when 1 then 'cancelled' when 2 then 'failed' when 3 then 'failed'
            else 'succeeded'
        end::chronos.job_state,
        1, 5, 5, 'bulk', 'kind 0', 'null',
        case when number % 100 in (2, 3) then 's' end, first.id, first.id,
        case when first.id is not null then 2 end
    from generate_series(1, {HISTORY}) as number
    cross join lateral (
        select case when number % 100 = 3 then
            ('0000' || lpad(to_hex(number - 1), 8, '0') || '70008000000000000001')::uuid
        end as id
    ) as first
    """,
)


@pytest.fixture(scope="module")
def backlog_dsn(databases: Databases) -> Iterator[str]:
    """A database with a backlog; loading it takes most of this module's time."""
    with databases.fresh() as dsn:
        yield dsn


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
async def backlog(
    backlog_dsn: str, request: pytest.FixtureRequest, anyio_backend: object
) -> AsyncIterator[Connection]:
    """A connection to it, in the state of statistics that the parameter names."""
    connection = await asyncpg.connect(backlog_dsn, statement_cache_size=0)
    try:
        if not await connection.fetchval("select exists (select from chronos.jobs)"):
            for statement in _LOAD:
                await connection.execute(statement)
        if request.param == "analysed":
            await connection.execute("analyze chronos.jobs, chronos.job_history")
        knows = await connection.fetchval(
            "select exists (select from pg_statistic where starelid = 'chronos.jobs'::regclass)"
        )
        if knows and request.param == "never analysed":
            pytest.skip("analysed already: these tests must run first")
        yield connection
    finally:
        await connection.close()


@pytest.fixture(scope="module")
async def samples(backlog: Connection) -> Samples:
    """For each state, the ids of jobs all over the table."""
    sample = """
        select id from chronos.all_jobs
        where state = $1::text::chronos.job_state and finished_at is null
        order by md5(id::text) limit 2000
    """
    return {
        state: [row["id"] for row in await backlog.fetch(sample, state)]
        for state in ("ready", "scheduled", "running")
    }


@pytest.fixture(params=["force_generic_plan", "force_custom_plan"])
def plan_cache_mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Plan:
    """What `explain (analyze, buffers)` says a statement did."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self.nodes = list(_walk(root))

    @property
    def indexes(self) -> set[str]:
        """The indexes it went by; a partition's index by the name of its parent's."""
        names = {node["Index Name"] for node in self.nodes if "Index Name" in node}
        return {_parent_index(name) for name in names}

    @property
    def pages(self) -> int:
        """How many pages it touched, hit or read, counting one as often as it was touched."""
        # What a data-modifying CTE touched after the main query ended is in no other node.
        read = {node.get("CTE Name") for node in self.nodes}
        unread = [
            node
            for node in self.nodes
            if node.get("Subplan Name", "").startswith("CTE ")
            and node["Subplan Name"].removeprefix("CTE ") not in read
        ]
        return sum(_pages(node) for node in [self.root, *unread])

    def check(self, *, indexes: set[str], rows: int, pages_per_row: int) -> None:
        """Fail, and show the plan, unless it is the one we rely on."""
        wrong = []
        for node in self.nodes:
            # A day's partition may be small, or empty, and reading it whole the right thing to do.
            is_small = node.get("Relation Name") not in TABLES and _pages(node) < PAGES_ALWAYS
            is_whole = node["Node Type"] == "Seq Scan" and _is_ours(node) and not is_small
            is_join = node["Node Type"] in {"Hash Join", "Merge Join"}
            if is_whole or (is_join and any(_is_ours(one) for one in _walk(node))):
                wrong.append(f"{node['Node Type']} over {node.get('Relation Name', 'jobs')}")
        if not indexes <= self.indexes:
            wrong.append(f"goes by {sorted(self.indexes)} instead of {sorted(indexes)}")
        pages_max = PAGES_ALWAYS + rows * pages_per_row
        if self.pages > pages_max:
            wrong.append(f"touches {self.pages} pages for {rows} rows; {pages_max} would do")
        assert not wrong, "\n".join([*wrong, *self.lines()])

    def lines(self) -> Iterator[str]:
        """The plan, a line for each node."""
        for node in self.nodes:
            name = node.get("Index Name") or node.get("Relation Name") or node.get("CTE Name", "")
            rows = node["Actual Rows"] * node["Actual Loops"]
            yield f"  {node['Node Type']} {name}: {rows:.0f} rows, {_pages(node)} pages"


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", []):
        yield from _walk(child)


def _pages(node: Node) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _is_ours(node: Node) -> bool:
    return str(node.get("Relation Name", "")).startswith(("job", "schedules"))


def _parent_index(name: str) -> str:
    if not name.startswith("job_history_"):
        return name
    if "schedule_id" in name:
        return "job_history_schedule"
    if "lineage_id" in name:
        return "job_history_lineage"
    # Postgres names them job_history_20260101_id_idx and, for the second one, …_id_idx1.
    return "job_history_not_succeeded" if name.endswith("idx1") else "job_history_id"


async def explain(connection: Connection, mode: str, statement: str, *arguments: object) -> Plan:
    """Run a statement of ours once, undo it, and return how it went."""
    await connection.execute(f"set plan_cache_mode = {mode}; set jit = off; deallocate all")
    await connection.execute(f"prepare explained as {query(statement)}")
    transaction = connection.transaction()
    await transaction.start()
    try:
        values = ", ".join(_literal(argument) for argument in arguments)
        text = await connection.fetchval(
            f"explain (analyze, buffers, format json) execute explained ({values})"
        )
    finally:
        await transaction.rollback()
    return Plan(msgspec.json.decode(text)[0]["Plan"])


def _literal(value: object) -> str:
    """A value as SQL; `execute` takes no parameters."""
    if value is None:
        return "null"
    if isinstance(value, list):
        value = "{" + ",".join(_element(one) for one in value) + "}"
    return "'" + str(value).replace("'", "''") + "'"


def _element(value: object) -> str:
    if value is None:
        return "null"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def fences(samples: Samples, count: int) -> tuple[list[UUID], list[UUID], list[int]]:
    """Claims that stand."""
    return samples["running"][:count], [TOKEN] * count, [1] * count


small_and_large = pytest.mark.parametrize("count", [10, 2_000])


@small_and_large
async def test_a_claim_goes_by_the_ready_index(
    backlog: Connection, plan_cache_mode: str, count: int
) -> None:
    topics = ["rare", "bulk", "mail", "nobody's"]
    kinds = [f"kind {number}" for number in range(4)]
    plan = await explain(
        backlog,
        plan_cache_mode,
        "claim_jobs",
        UUID(int=8),
        30,
        topics,
        [count // 2] * 4,
        [0] * 40,
        kinds,
        count,
        [],
        None,
    )
    plan.check(indexes={"jobs_ready", "jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


@small_and_large
async def test_a_claim_steps_over_no_more_than_lies_behind_the_frontier(
    backlog: Connection, plan_cache_mode: str, count: int
) -> None:
    """Half a million jobs lie behind it: a claim that walked over them would touch as many."""
    frontier = await backlog.fetchval(
        "select seq from chronos.jobs where state = 'ready' and topic = 'bulk' and priority = 5"
        " order by seq offset 400000 limit 1"
    )
    frontiers = [2**40] * 5 + [frontier] + [2**40] * 4
    kinds = [f"kind {number}" for number in range(4)]
    plan = await explain(
        backlog,
        plan_cache_mode,
        "claim_jobs",
        UUID(int=8),
        30,
        ["bulk"],
        [count],
        frontiers,
        kinds,
        count,
        [],
        None,
    )
    plan.check(indexes={"jobs_ready", "jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


async def test_a_look_behind_the_frontier_reads_its_stretch_and_no_more(
    backlog: Connection, plan_cache_mode: str
) -> None:
    """Of half a million jobs it steps over a thousand, none of which is of its kind."""
    seqs = await backlog.fetch(
        "select seq from chronos.jobs where state = 'ready' and topic = 'bulk' and priority = 5"
        " order by seq offset 200000 limit 1001"
    )
    begins = [2**40] * 5 + [seqs[0]["seq"]] + [2**40] * 4
    ends = [2**40] * 5 + [seqs[-1]["seq"]] + [2**40] * 4
    wanted = (["bulk"], [10], begins, ["nobody's"], 10)
    plan = await explain(backlog, plan_cache_mode, "claim_jobs", UUID(int=8), 30, *wanted, [], ends)
    plan.check(indexes={"jobs_ready"}, rows=len(seqs), pages_per_row=2)


@small_and_large
async def test_a_finish_goes_by_the_primary_key(
    backlog: Connection, samples: Samples, plan_cache_mode: str, count: int
) -> None:
    ids = sorted(samples["running"][:count])
    ended = ([0.5] * count, ["succeeded"] * count, ['{"a": 1}'] * count, [None] * count, True)
    plan = await explain(backlog, plan_cache_mode, "finish_jobs", ids, [TOKEN], [1], *ended)
    plan.check(indexes={"jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


@pytest.mark.parametrize("count", [10, 250])  # reporter.return_batch_max
async def test_a_return_goes_by_the_primary_key(
    backlog: Connection, samples: Samples, plan_cache_mode: str, count: int
) -> None:
    values = ([60.0] * count, ['{"message": "boom"}'] * count, [False] * count)
    plan = await explain(backlog, plan_cache_mode, "return_jobs", *fences(samples, count), *values)
    plan.check(indexes={"jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


@small_and_large
async def test_a_beat_goes_by_the_primary_key(
    backlog: Connection, samples: Samples, plan_cache_mode: str, count: int
) -> None:
    plan = await explain(backlog, plan_cache_mode, "extend_leases", *fences(samples, count), 30)
    plan.check(indexes={"jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


@small_and_large
async def test_a_second_look_goes_by_the_primary_key_and_the_history_by_id(
    backlog: Connection, samples: Samples, plan_cache_mode: str, count: int
) -> None:
    plan = await explain(
        backlog, plan_cache_mode, "verify_claims", *fences(samples, count), "worker"
    )
    # The history is looked into partition by partition: here there are nine.
    plan.check(
        indexes={"jobs_pkey", "job_history_id"}, rows=count, pages_per_row=PAGES_PER_READ + 9 * 4
    )


async def test_a_sweep_that_finds_nothing_costs_what_is_claimed(
    backlog: Connection, plan_cache_mode: str
) -> None:
    plan = await explain(backlog, plan_cache_mode, "reap_jobs", None, None, UUID(int=0), 500)
    plan.check(indexes={"jobs_pkey"}, rows=RUNNING, pages_per_row=PAGES_PER_READ)
    plan = await explain(backlog, plan_cache_mode, "list_expired", UUID(int=0), 500)
    plan.check(indexes={"jobs_pkey"}, rows=RUNNING, pages_per_row=PAGES_PER_READ)


async def test_a_review_of_claims_costs_what_is_claimed(
    backlog: Connection, plan_cache_mode: str
) -> None:
    plan = await explain(backlog, plan_cache_mode, "review_claims", 1_000)
    plan.check(indexes={"jobs_pkey"}, rows=RUNNING, pages_per_row=PAGES_PER_READ)


async def test_a_patrol_costs_the_stretch_it_walks(
    backlog: Connection, plan_cache_mode: str
) -> None:
    plan = await explain(backlog, plan_cache_mode, "note_claims", UUID(int=2**110), 5_000)
    plan.check(indexes={"jobs_pkey"}, rows=5_000, pages_per_row=2)


@pytest.mark.parametrize("count", [10, 500])  # watchdog.batch_max
async def test_a_sweep_goes_by_the_claims_and_the_primary_key(
    backlog: Connection, plan_cache_mode: str, count: int
) -> None:
    plan = await explain(
        backlog, plan_cache_mode, "reap_jobs", UUID(int=0), UUID(int=9), UUID(int=0), count
    )
    plan.check(indexes={"jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


async def test_giving_a_lost_claim_back_goes_by_the_claim_and_the_primary_key(
    backlog: Connection, plan_cache_mode: str
) -> None:
    plan = await explain(backlog, plan_cache_mode, "release_claim", TOKEN)
    plan.check(indexes={"jobs_pkey"}, rows=RUNNING, pages_per_row=PAGES_PER_WRITE)


@small_and_large
async def test_a_promotion_goes_by_the_scheduled_index(
    backlog: Connection, plan_cache_mode: str, count: int
) -> None:
    plan = await explain(backlog, plan_cache_mode, "promote_jobs", count)
    plan.check(indexes={"jobs_scheduled", "jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


@small_and_large
async def test_an_enqueue_reads_no_table(
    backlog: Connection, plan_cache_mode: str, count: int
) -> None:
    ids = [UUID(int=2**120 + number) for number in range(count)]
    plan = await explain(
        backlog,
        plan_cache_mode,
        "enqueue_jobs",
        ids,
        ["bulk"] * count,
        ["kind 0"] * count,
        [5] * count,
        ["{}"] * count,
        [None] * count,
        [None] * count,
        [5] * count,
        [None] * count,
        [f"new {number}" for number in range(count)],
        None,
    )
    plan.check(indexes=set(), rows=count, pages_per_row=PAGES_PER_WRITE)


async def test_an_enqueue_of_one_job_reads_no_table(
    backlog: Connection, plan_cache_mode: str
) -> None:
    id = UUID(int=2**120)
    job = (id, "bulk", "kind 0", 5, "{}", None, None, 5, None, "new", None)
    plan = await explain(backlog, plan_cache_mode, "enqueue_job", *job)
    plan.check(indexes=set(), rows=1, pages_per_row=PAGES_PER_WRITE)
    plain = (id, "bulk", "kind 0", 5, "{}", 5, None, None)
    plan = await explain(backlog, plan_cache_mode, "enqueue_plain_job", *plain)
    plan.check(indexes=set(), rows=1, pages_per_row=PAGES_PER_WRITE)


async def test_a_job_handed_over_is_read_by_the_primary_key(
    backlog: Connection, samples: Samples, plan_cache_mode: str
) -> None:
    token = await backlog.fetchval(
        "select lease_token from chronos.jobs where id = $1", samples["running"][0]
    )
    plan = await explain(backlog, plan_cache_mode, "take_job", samples["running"][0], token, 0.001)
    plan.check(indexes={"jobs_pkey"}, rows=1, pages_per_row=PAGES_PER_WRITE)


@small_and_large
@pytest.mark.parametrize("state", ["ready", "scheduled", "running"])
async def test_a_cancel_goes_by_the_primary_key(
    backlog: Connection, samples: Samples, plan_cache_mode: str, count: int, state: str
) -> None:
    plan = await explain(backlog, plan_cache_mode, "cancel_jobs", samples[state][:count])
    plan.check(indexes={"jobs_pkey"}, rows=count, pages_per_row=PAGES_PER_WRITE)


@pytest.mark.parametrize("count", [1, 10])  # What people read at a time.
async def test_reading_goes_by_the_primary_key_and_the_history_by_id(
    backlog: Connection, samples: Samples, plan_cache_mode: str, count: int
) -> None:
    plan = await explain(backlog, plan_cache_mode, "get_jobs", samples["ready"][:count])
    plan.check(
        indexes={"jobs_pkey", "job_history_id"}, rows=count, pages_per_row=PAGES_PER_READ + 9 * 4
    )


@small_and_large
async def test_a_unique_key_is_found_by_its_index(
    backlog: Connection, plan_cache_mode: str, count: int
) -> None:
    keys = [f"key {50 * number}" for number in range(count)]
    plan = await explain(backlog, plan_cache_mode, "find_unique", keys)
    plan.check(indexes={"jobs_unique_key"}, rows=count, pages_per_row=PAGES_PER_READ)


async def test_dead_letters_are_retried_and_discarded_by_their_index(
    backlog: Connection, plan_cache_mode: str
) -> None:
    rows = await backlog.fetch("select id from chronos.job_history where state = 'dead' limit 10")
    ids = [row["id"] for row in rows]
    for statement in ("retry_jobs", "discard_jobs"):
        plan = await explain(backlog, plan_cache_mode, statement, ids)
        plan.check(
            indexes={"job_history_not_succeeded"},
            rows=len(ids),
            pages_per_row=PAGES_PER_WRITE + 9 * 4,
        )


async def failed_tasks(backlog: Connection) -> list[UUID]:
    """Tasks that failed, the last ones of their lines."""
    rows = await backlog.fetch(
        "select id from chronos.job_history where state = 'failed' and lineage_no = 2 limit 10"
    )
    return [row["id"] for row in rows]


async def test_the_next_attempt_and_an_escalation_find_the_failed_task_by_its_index(
    backlog: Connection, plan_cache_mode: str
) -> None:
    ids = await failed_tasks(backlog)
    plan = await explain(backlog, plan_cache_mode, "escalate_jobs", ids)
    indexes, pages_per_row = {"job_history_not_succeeded"}, PAGES_PER_WRITE + 9 * 4
    plan.check(indexes=indexes, rows=len(ids), pages_per_row=pages_per_row)
    plan = await explain(
        backlog, plan_cache_mode, "start_attempt", ids[0], UUID(int=2**120), None, 0
    )
    plan.check(indexes=indexes, rows=1, pages_per_row=pages_per_row)


async def test_a_line_is_found_by_the_indexes_of_lines(
    backlog: Connection, plan_cache_mode: str
) -> None:
    [id, *_] = await failed_tasks(backlog)
    plan = await explain(backlog, plan_cache_mode, "list_lineage", id, 1_000)
    plan.check(
        indexes={"jobs_pkey", "jobs_lineage", "job_history_id", "job_history_lineage"},
        rows=2,
        pages_per_row=PAGES_PER_READ + 9 * 4,
    )


@pytest.mark.parametrize("before", [None, UUID("00000010-0000-7000-8000-000000000000")])
@pytest.mark.parametrize(
    ("states", "indexes"),
    [
        (None, {"jobs_pkey", "job_history_id", "job_history_not_succeeded"}),
        (["ready", "scheduled"], {"jobs_pkey"}),
        (["running"], {"jobs_pkey"}),
        (["dead"], {"job_history_not_succeeded"}),
        (["dead", "cancelled"], {"job_history_not_succeeded"}),
        (["failed"], {"job_history_not_succeeded"}),
        (["succeeded"], {"job_history_id"}),
    ],
)
async def test_a_page_of_a_list_costs_a_page_whatever_the_backlog(
    backlog: Connection,
    plan_cache_mode: str,
    before: UUID | None,
    states: list[str] | None,
    indexes: set[str],
) -> None:
    arguments = (states, None, None, before, 50)
    # What other tests rolled back lies at the newest end: the first look clears it away.
    await explain(backlog, plan_cache_mode, "list_jobs", *arguments)
    plan = await explain(backlog, plan_cache_mode, "list_jobs", *arguments)
    plan.check(indexes=indexes, rows=50, pages_per_row=PAGES_PER_READ + 9 * 4)


async def test_a_survey_stops_at_its_bound(backlog: Connection, plan_cache_mode: str) -> None:
    plan = await explain(backlog, plan_cache_mode, "survey_topics", 1_000)
    topics = 6
    plan.check(
        indexes={"jobs_ready", "jobs_scheduled", "jobs_pkey"},
        rows=(topics + 1) * 1_000 + RUNNING,
        pages_per_row=4,
    )


async def test_kinds_nobody_serves_are_looked_for_at_the_head_of_each_topic(
    backlog: Connection, plan_cache_mode: str
) -> None:
    plan = await explain(backlog, plan_cache_mode, "survey_unserved", 1_000)
    plan.check(indexes={"jobs_ready"}, rows=6 * 1_000, pages_per_row=2)


async def test_the_history_is_counted_by_the_index_of_what_did_not_succeed(
    backlog: Connection, plan_cache_mode: str
) -> None:
    plan = await explain(backlog, plan_cache_mode, "count_history", 100)
    plan.check(indexes={"job_history_not_succeeded"}, rows=3 * 100, pages_per_row=4)
