"""The dashboard to open first: is work flowing, late or failing, and is Postgres the reason?

What the surveyors measure is the whole database as each process sees it, so those panels take
the maximum over processes; what processes count is theirs alone, so those panels sum.
"""

from grafana.panels import (
    BY_JOB,
    BY_TOPIC,
    COUNT,
    HERE,
    JOBS,
    RATE,
    RATIO,
    SECONDS,
    Json,
    dashboard,
    events,
    graph,
    quantile,
    query,
    rate,
    stat,
)
from grafana.processors import do_processors_succeed
from grafana.schedules import do_schedules_fire
from grafana.supervision import what_do_supervisors_decide

WAIT, RUN = "chronos_executor_wait_seconds", "chronos_executor_run_seconds"
STATEMENT = "chronos_store_statement_seconds"
WAKES, WAKE = "chronos_wake_deliveries_total", "chronos_wake_delivery_seconds"
FAILED, DEAD = "chronos_reporter_failed_jobs_total", "chronos_reporter_dead_jobs_total"
STARTED = "chronos_executor_started_jobs_total"
SUCCEEDED = "chronos_reporter_succeeded_jobs_total"


def depth(state: str, by: str) -> str:
    """Live jobs in a state, as the surveyor that counted most saw them."""
    where = f'{BY_TOPIC}, state=~"{state}"'
    return f"sum by ({by}) (max by (topic, state) (chronos_surveyor_depth_jobs{{{where}}}))"


def oldest(state: str, by: str = "") -> str:
    """The age of what has waited longest in a state."""
    grouping = f" by ({by})" if by else ""
    return f'max{grouping} (chronos_surveyor_oldest_seconds{{{BY_TOPIC}, state="{state}"}})'


def overview() -> Json:
    """The dashboard."""
    return dashboard(
        "chronos-overview",
        "Chronos / Overview",
        "Is work flowing, late or failing, and is Postgres the reason?",
        {
            "At a glance": at_a_glance(),
            "Is work flowing?": is_it_flowing(),
            "Is it late?": is_it_late(),
            "Is it failing?": is_it_failing(),
            "Is Postgres the reason?": is_it_postgres(),
            "Do schedules fire?": do_schedules_fire(),
            "Do wakes arrive?": do_wakes_arrive(),
            "Do processors succeed?": do_processors_succeed(),
            "What do supervisors decide?": what_do_supervisors_decide(),
        },
        choices={"instance": "chronos_build_info", "topic": STARTED, "kind": STARTED},
    )


def at_a_glance() -> list[Json]:
    """Six numbers: all green means that you may go home."""
    return [
        stat(
            "Processes",
            "Chronos processes that answer scrapes. Fewer than you started: look at `up` and at"
            " the log of the missing one; its jobs are reaped and run elsewhere.",
            query(f"count(chronos_build_info{{{HERE}}})", "processes"),
            unit=COUNT,
            limits=[1],
            is_good_above=True,
        ),
        stat(
            "Succeeding",
            "Jobs that succeed per second. Zero while jobs wait: read the row 'Is it late?'.",
            query(rate(SUCCEEDED, BY_JOB), "succeeded"),
            unit=RATE,
        ),
        stat(
            "Waiting",
            "Ready jobs that nobody has claimed yet. Counting stops at `surveyor.bound` a topic"
            " (10,000), so read that number as 'at least'. Growing: add processes, or raise"
            " `executor.concurrency` where handlers mostly wait.",
            query(depth("ready", "state"), "ready"),
            unit=JOBS,
            limits=[5_000, 10_000],
        ),
        stat(
            "Oldest waiting job",
            "How long the oldest ready job has waited. A paused topic ages too: see"
            " `chronos-runtime topics list`. Otherwise see 'Is it late?'.",
            query(oldest("ready"), "age"),
            unit=SECONDS,
            limits=[60, 300],
        ),
        stat(
            "Dead in the last hour",
            "Jobs that failed their last attempt. Read why with `chronos-runtime jobs list --state"
            " dead`, mend the handler, then `chronos-runtime jobs retry`.",
            query(events(DEAD, BY_JOB, window="1h"), "dead"),
            unit=JOBS,
            limits=[1, 10],
        ),
        stat(
            "Listening",
            "Processes that hear notifications. Fewer than processes: new jobs are picked up at"
            " the poll floor (`claimer.poll_s`) instead of at once. Expected behind a pooler in"
            " transaction mode; otherwise look for 'listen' in the log.",
            query(f"sum(chronos_listener_up_state{{{HERE}}})", "listening"),
            unit=COUNT,
            limits=[1],
            is_good_above=True,
        ),
    ]


def is_it_flowing() -> list[Json]:
    """Rates from the claim to the end, and who uses the slots."""
    ends = {
        "claimed": "chronos_claimer_claimed_jobs_total",
        "started": STARTED,
        "succeeded": SUCCEEDED,
        "failed": FAILED,
        "cancelled": "chronos_reporter_cancelled_jobs_total",
        "snoozed": "chronos_reporter_snoozed_jobs_total",
        "released": "chronos_reporter_released_jobs_total",
    }
    return [
        graph(
            "Started by topic",
            "Handlers started per second. A topic that fell to zero while its jobs wait: is it"
            " paused, is its `executor.topic_concurrency` used up, does any process serve it?",
            query(rate(STARTED, BY_JOB, "topic"), "{{topic}}"),
            unit=RATE,
        ),
        graph(
            "Succeeded by topic",
            "Jobs that ended well per second. Well below 'Started by topic' for long: look at"
            " 'Is it failing?', or the handlers take longer than the time range shown.",
            query(rate(SUCCEEDED, BY_JOB, "topic"), "{{topic}}"),
            unit=RATE,
        ),
        graph(
            "From claim to end",
            "Everything that happens to jobs, per second. Claimed above started: jobs queue in"
            " the processes. Released all the time: processes are stopped again and again, or"
            " claim more than they start (`claimer.ahead_s`).",
            *[query(rate(name, BY_JOB), end) for end, name in ends.items()],
            unit=RATE,
        ),
        graph(
            "Run time by kind, p50",
            "Half of the handlers of a kind take less than this. A step up at a deploy: that"
            " deploy. A slow climb: what the handlers call is slowing down.",
            query(quantile(0.5, RUN, BY_JOB, "kind"), "{{kind}}"),
            unit=SECONDS,
        ),
        graph(
            "Run time by kind, p99",
            "One handler in a hundred takes longer than this. Close to the kind's timeout: find"
            " out what it waits for before raising the timeout.",
            query(quantile(0.99, RUN, BY_JOB, "kind"), "{{kind}}"),
            unit=SECONDS,
        ),
        graph(
            "Slots used by kind",
            "How many slots each kind keeps busy on average: seconds of handlers that ended, per"
            " second. One kind takes them all: give its topic a limit in"
            " `executor.topic_concurrency`, or processes of its own.",
            query(rate(f"{RUN}_sum", BY_JOB, "kind"), "{{kind}}"),
            unit=COUNT,
            is_stacked=True,
        ),
    ]


def is_it_late() -> list[Json]:
    """How long jobs wait, and how many."""
    return [
        graph(
            "Wait",
            "From the moment a job was due to the start of its handler. p99 high, p50 low: bursts,"
            " or one slow topic. Both high: not enough slots, or slow claims (see Postgres).",
            query(quantile(0.5, WAIT, BY_JOB), "p50"),
            query(quantile(0.99, WAIT, BY_JOB), "p99"),
            unit=SECONDS,
            limits=[10, 60],
        ),
        graph(
            "Wait by topic, p99",
            "The topic that lags. If its own handlers are slow, more processes help; if another"
            " topic takes all slots, limit that one in `executor.topic_concurrency`.",
            query(quantile(0.99, WAIT, BY_JOB, "topic"), "{{topic}}"),
            unit=SECONDS,
            limits=[10, 60],
        ),
        graph(
            "Oldest ready job by topic",
            "The age of the job that has waited longest. One topic climbs second by second:"
            " nothing of it is claimed at all. Is it paused, or served by nobody (see 'Kinds"
            " nobody serves' on the actors' dashboard)?",
            query(oldest("ready", "topic"), "{{topic}}"),
            unit=SECONDS,
            limits=[60, 300],
        ),
        graph(
            "Live jobs by state",
            "Scheduled jobs wait for their time, ready ones for a slot, running ones are at work."
            " Ready climbs while running is flat: all slots are taken. Running falls while ready"
            " climbs: claims fail, or processes are missing.",
            query(depth("ready|scheduled|running", "state"), "{{state}}"),
            unit=JOBS,
            is_stacked=True,
        ),
        graph(
            "Ready jobs by topic",
            "The backlog, topic by topic; no count goes beyond `surveyor.bound` (10,000). Growing"
            " for hours: more comes in than your processes can do.",
            query(depth("ready", "topic"), "{{topic}}"),
            unit=JOBS,
            limits=[5_000, 10_000],
        ),
        graph(
            "Most overdue scheduled job",
            "How long ago a job was due that is still not ready. More than seconds: no scheduler"
            " makes progress (see the actors' dashboard), or very many came due at once.",
            query(oldest("scheduled", "topic"), "{{topic}}"),
            unit=SECONDS,
            limits=[15, 60],
        ),
    ]


def is_it_failing() -> list[Json]:
    """Failures of handlers, then failures of leases."""
    leases = {
        "reaped: lease expired": "chronos_watchdog_reaped_jobs_total",
        "lost: stopped, no longer ours": "chronos_heartbeater_lost_jobs_total",
        "stale: outcome came too late": "chronos_reporter_stale_jobs_total",
        "unwritable: outcome refused": "chronos_reporter_unwritable_jobs_total",
    }
    share = (
        f"{rate(FAILED, BY_JOB, 'kind')} / ({rate(FAILED, BY_JOB, 'kind')}"
        f" + ({rate(SUCCEEDED, BY_JOB, 'kind')} or {rate(FAILED, BY_JOB, 'kind')} * 0))"
    )
    return [
        graph(
            "Failed attempts by kind",
            "Attempts that raised, timed out or were interrupted, per second. The errors stand in"
            " the job (`chronos-runtime jobs show`) and in the log as 'attempt failed'.",
            query(rate(FAILED, BY_JOB, "kind"), "{{kind}}"),
            unit=RATE,
        ),
        graph(
            "Share of attempts that fail",
            "Failed attempts of all that ended. All kinds at once: something they share is down."
            " One kind: its handler, or what it calls.",
            query(share, "{{kind}}"),
            unit=RATIO,
            limits=[0.05, 0.5],
            highest=1,
        ),
        graph(
            "Retried by kind",
            "Failed attempts that will be tried again, per second. As many as start: the retries"
            " are the load; lengthen the backoff or pause the topic until the cause is mended.",
            query(rate("chronos_reporter_retried_jobs_total", BY_JOB, "kind"), "{{kind}}"),
            unit=RATE,
        ),
        graph(
            "Dead by kind",
            "Jobs given up within the last ten minutes. Nobody tries them again by itself: mend"
            " the cause, then `chronos-runtime jobs retry`.",
            query(events(DEAD, BY_JOB, "kind", window="10m"), "{{kind}}"),
            unit=JOBS,
            limits=[1],
        ),
        graph(
            "Leases and fences",
            "Within ten minutes; all of these should be zero. Reaped: a process died or hung; look"
            " for the one that vanished. Lost and stale: a process was cut off for longer than"
            " `heartbeater.lease_s`; its work was done again elsewhere. Unwritable: the database"
            " refuses an outcome; the log says why.",
            *[
                query(events(name, BY_JOB, "kind", window="10m"), f"{{{{kind}}}} {end}")
                for end, name in leases.items()
            ],
            unit=JOBS,
            limits=[1],
        ),
        graph(
            "Rows that cannot be reaped",
            "Expired jobs the watchdog had to step over, within ten minutes. Any at all: the log"
            " names the row ('row skipped') and the error; mend the row by hand.",
            query(
                f"sum by (instance) (increase(chronos_watchdog_skipped_rows_total{{{HERE}}}[10m]))",
                "{{instance}}",
            ),
            unit=COUNT,
            limits=[1],
        ),
    ]


def is_it_postgres() -> list[Json]:
    """What the database answers, how fast, and through how many connections."""
    errors = "chronos_store_statement_errors_total"
    return [
        graph(
            "Statement time, p50",
            "The usual time of each statement, waiting for a connection included. All up together:"
            " the server or the network. claim_jobs alone: look for an old snapshot in"
            " pg_stat_activity (backend_xmin) that keeps vacuum from the queue.",
            query(quantile(0.5, STATEMENT, HERE, "statement"), "{{statement}}"),
            unit=SECONDS,
            limits=[0.1, 1],
        ),
        graph(
            "Statement time, p99",
            "One statement in a hundred takes longer than this. finish_jobs high: commits are slow"
            " (disk, synchronous replica). extend_leases near `database.statement_s`: leases are"
            " in danger.",
            query(quantile(0.99, STATEMENT, HERE, "statement"), "{{statement}}"),
            unit=SECONDS,
            limits=[0.5, 5],
        ),
        graph(
            "Statements",
            "Statements per second. Thousands a second on few jobs: batches do not form; compare"
            " with the jobs per second above.",
            query(rate(f"{STATEMENT}_count", HERE, "statement"), "{{statement}}"),
            unit=RATE,
        ),
        graph(
            "Statement errors",
            "Statements without an answer, or refused, per second. A short burst is a failover or"
            " restart, and everything is tried again. Lasting: the log of the process names the"
            " error, the log of Postgres the reason.",
            query(rate(errors, HERE, "statement"), "{{statement}}"),
            unit=RATE,
            limits=[0.1],
        ),
        graph(
            "Connections by lane",
            "Used and idle connections. claim, report, beat and upkeep have one each; client is"
            " shared and as large as `database.client_connections`. client used up to that size:"
            " your handlers enqueue faster than it can take; raise it, or enqueue in batches.",
            query(
                f"sum by (lane, state) (chronos_store_connections{{{HERE}}})", "{{lane}} {{state}}"
            ),
            unit=COUNT,
        ),
        graph(
            "Looks behind the frontier",
            "Claims that looked behind the last job claimed, per second. They are limited to a"
            " fiftieth of the time; many and slow claims together mean dead rows that vacuum cannot"
            " remove: end the oldest transaction.",
            query(rate("chronos_claimer_rescans_total", HERE, "instance"), "{{instance}}"),
            unit=RATE,
        ),
        graph(
            "Listener up",
            "1 while a process hears notifications. Flapping: connections are cut, by an idle"
            " timeout in between or by failovers. 0 for good: a pooler in transaction mode"
            " (set `database.pgbouncer`), or `listener.enabled` is off.",
            query(f"chronos_listener_up_state{{{HERE}}}", "{{instance}}"),
            unit=COUNT,
            highest=1,
        ),
    ]


def do_wakes_arrive() -> list[Json]:
    """What `chronos.wake` posts to URLs, and what the receivers answer."""
    failing = 'outcome!~"succeeded|deferred"'
    return [
        graph(
            "Wakes by outcome",
            "Deliveries to URLs per second. Deferred: a host had `wake.per_host` deliveries"
            " standing at it, and the wake waits without losing an attempt. Only deferred grows:"
            " that receiver is too slow for what it is sent.",
            query(rate(WAKES, HERE, "outcome"), "{{outcome}}"),
            unit=RATE,
        ),
        graph(
            "Wakes that failed",
            "Within ten minutes, by why; the log has 'wake not delivered' with the host. Refused:"
            " the URL leads inside; if it may, list it in `wake.allow`. Unsigned: a payload names"
            " a secret that `wake.secrets` does not have. Timeout, unreachable, server_error: the"
            " receiver.",
            query(events(WAKES, f"{HERE}, {failing}", "outcome", window="10m"), "{{outcome}}"),
            unit=COUNT,
            limits=[1],
        ),
        graph(
            "Time to an answer",
            "From the start of a delivery to its answer or failure. p99 at `wake.timeout_s`: some"
            " receivers do not answer at all.",
            query(quantile(0.5, WAKE, HERE), "p50"),
            query(quantile(0.99, WAKE, HERE), "p99"),
            unit=SECONDS,
            limits=[5, 15],
        ),
    ]
