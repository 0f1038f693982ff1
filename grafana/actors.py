"""The dashboard for finding out which part of which process is in trouble.

First what the actors share: channels, the conservation law, the event loop. Then a row for each
actor, with the same four panels.
"""

from typing import NamedTuple

from grafana.panels import (
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
    table,
)

PASSES = "5m"  # Long enough for a few passes of the janitor, who comes once a minute.


class Actor(NamedTuple):
    """What people need to know about an actor to read its row."""

    verb: str
    rows: str
    late_s: float
    """An age of its last progress that should make one look; twice that is bad."""
    without: str


ACTORS = {
    "claimer": Actor(
        "leases jobs", "jobs claimed", 30, "Nothing new is claimed; other processes carry on."
    ),
    "taker": Actor(
        "takes jobs that are handed over",
        "jobs taken",
        30,
        "Jobs that come one by one to an idle process wait for a claim: a few milliseconds.",
    ),
    "executor": Actor(
        "runs handlers", "jobs admitted", 15, "The event loop is blocked: see 'Loop lag'."
    ),
    "heartbeater": Actor(
        "extends leases",
        "leases extended",
        20,
        "After `heartbeater.lease_s` the jobs held here are reaped and run elsewhere.",
    ),
    "reporter": Actor(
        "writes outcomes",
        "outcomes written",
        30,
        "Outcomes wait in memory and slots fill up: see 'Jobs held, by place'.",
    ),
    "watchdog": Actor(
        "reaps expired leases", "jobs reaped", 15, "Others reap; if all are late, nobody does."
    ),
    "scheduler": Actor(
        "promotes due jobs and fires due schedules",
        "jobs promoted, schedules fired",
        15,
        "Others do it; if all are late, due jobs and schedules wait.",
    ),
    "listener": Actor(
        "hears notifications",
        "notifications heard",
        30,
        "Jobs are picked up at the poll floor. A listener that is switched off always looks late.",
    ),
    "janitor": Actor(
        "makes and drops partitions", "partitions touched", 120, "History piles up in the default."
    ),
    "surveyor": Actor(
        "measures depths and ages", "topics and states seen", 45, "Depths and ages stand still."
    ),
    "exporter": Actor(
        "serves these metrics", "scrapes answered", 15, "No metrics: you would not see this."
    ),
}


def actors() -> Json:
    """The dashboard."""
    rows = {"Jobs in the process": jobs_held(), "The process itself": the_process()}
    rows |= {f"{name}: {actor.verb}": row(name, actor) for name, actor in ACTORS.items()}
    return dashboard(
        "chronos-actors",
        "Chronos / Actors",
        "Which part of which process is in trouble?",
        rows,
        choices={"instance": "chronos_build_info"},
    )


def jobs_held() -> list[Json]:
    """From the claim to the commit, inside the processes."""
    return [
        graph(
            "Jobs held, by place",
            "Jobs under lease: queued for a slot, running, or waiting for their outcome to be"
            " written. Queued climbs: handlers are slow or few. Reporting climbs: Postgres writes"
            " slowly or not at all; look at finish_jobs on the overview.",
            query(
                f"sum by (place) (chronos_executor_inflight_jobs{{{HERE}}})",
                "{{place}}",
            ),
            unit=JOBS,
            width=6,
            is_stacked=True,
        ),
        graph(
            "Channel fill",
            "How full the ways from claimer to executor (inbox) and from executor to reporter"
            " (outbox) are. Inbox full: all slots busy, claiming pauses. Outbox full: the reporter"
            " is the bottleneck; see its pass duration below.",
            query(f"chronos_executor_inbox_fill_ratio{{{HERE}}}", "inbox {{instance}}"),
            query(f"chronos_reporter_outbox_fill_ratio{{{HERE}}}", "outbox {{instance}}"),
            unit=RATIO,
            width=6,
            limits=[0.7, 0.9],
            highest=1,
        ),
        graph(
            "Claimed ahead",
            "Jobs claimed beyond free slots, by the rate just seen (`claimer.ahead_s`). High with"
            " slow handlers: other processes could have run them; lower `claimer.ahead_s`.",
            query(f"chronos_claimer_ahead_jobs{{{HERE}}}", "{{instance}}"),
            unit=JOBS,
            width=6,
        ),
        graph(
            "Conservation error",
            "claimed - (queued + running + reporting + settled). Anything but 0 that stays is a"
            " bug: keep the log, restart that process (its jobs are reaped), report it.",
            query(f"abs(chronos_executor_conservation_error_jobs{{{HERE}}})", "{{instance}}"),
            unit=JOBS,
            width=6,
            limits=[1],
        ),
    ]


def the_process() -> list[Json]:
    """The event loop, the notifications, the upkeep, and what runs here."""
    labels = ["Time", "Value", "__name__", "job"]
    return [
        graph(
            "Loop lag",
            "How long the event loop took to answer. Above `heartbeater.lag_warn_s` the log names"
            " the stack that blocks it: move that work to a thread, or a process.",
            query(f"chronos_heartbeater_loop_lag_seconds{{{HERE}}}", "{{instance}}"),
            unit=SECONDS,
            limits=[0.1, 1],
        ),
        graph(
            "Loop blocks",
            "Times within ten minutes that the loop was blocked for longer than"
            " `heartbeater.lag_warn_s`. Leases are safe meanwhile, everything else waits. Find"
            " 'the event loop has been blocked' in the log.",
            query(
                f"increase(chronos_heartbeater_loop_blocks_total{{{HERE}}}[10m])", "{{instance}}"
            ),
            unit=COUNT,
            limits=[1, 5],
        ),
        graph(
            "Notifications by channel",
            "Notifications heard per second. None but probes under heavy load is normal: nobody"
            " needs one then. Not even probes: the listener is down.",
            query(rate("chronos_listener_notifications_total", HERE, "channel"), "{{channel}}"),
            unit=RATE,
        ),
        graph(
            "Kinds nobody serves",
            "Ready jobs of kinds that no live process has a handler for. They wait, unharmed:"
            " deploy a process that knows the kind, or cancel them. Expected for moments while a"
            " deploy rolls.",
            query(f"max by (kind) (chronos_surveyor_unserved_jobs{{{HERE}}})", "{{kind}}"),
            unit=JOBS,
            limits=[1],
        ),
        graph(
            "History partitions",
            "Partitions made and dropped within a day, by all processes: about one of each a day."
            " None made for a day: the janitor is in trouble, and history goes to the default"
            " partition, which retention must clear row by row.",
            query(
                events("chronos_janitor_partitions_total", HERE, "action", window="1d"),
                "{{action}}",
            ),
            unit=COUNT,
        ),
        table(
            "Builds",
            "What runs where. Two versions for longer than a deploy takes: one process was"
            " forgotten; kinds only the newer one knows wait for the newer one.",
            query(f"chronos_build_info{{{HERE}}}", "", is_table=True),
            unit=COUNT,
            width=8,
            hidden=labels,
        ),
    ]


def row(name: str, actor: Actor) -> list[Json]:
    """The same four panels for every actor."""
    prefix = f"chronos_{name}"
    passes = f"{prefix}_pass_seconds"
    return [
        stat(
            f"{name}: restarts",
            f"Restarts of the {name} within an hour. Each has a line in the log; during an outage"
            " of Postgres they are expected and cost nothing. More than `supervisor.restarts_max`"
            " crashes within `supervisor.window_s` end the process.",
            query(f"sum(increase({prefix}_restarts_total{{{HERE}}}[1h]))", "restarts"),
            unit=COUNT,
            height=6,
            limits=[1, 5],
        ),
        graph(
            f"{name}: pass duration",
            f"One pass of the {name}. Slow passes are slow statements: compare with the statements"
            " on the overview.",
            query(quantile(0.5, passes, HERE, window=PASSES), "p50"),
            query(quantile(0.99, passes, HERE, window=PASSES), "p99"),
            unit=SECONDS,
            width=7,
            height=6,
        ),
        graph(
            f"{name}: rows",
            f"{actor.rows.capitalize()} per second. Zero with nothing to do is fine; zero while"
            " there is work: look at its last progress and at the log.",
            query(rate(f"{prefix}_rows_total", HERE, "instance"), "{{instance}}"),
            unit=RATE,
            width=7,
            height=6,
        ),
        graph(
            f"{name}: since its last progress",
            f"The age of the {name}'s last finished pass; resting counts as progress."
            f" When it climbs: {actor.without} `/readyz` of the process names it too.",
            query(f"time() - {prefix}_last_progress_timestamp_seconds{{{HERE}}}", "{{instance}}"),
            unit=SECONDS,
            width=6,
            height=6,
            limits=[actor.late_s, 2 * actor.late_s],
        ),
    ]
