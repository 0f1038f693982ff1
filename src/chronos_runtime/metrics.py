"""Every metric, declared once, in an object with a registry of its own.

Names are `chronos_<actor>_<what>_<unit>`; labels never hold ids. Per actor there are restarts,
pass duration, rows and last progress; jobs are counted by topic and kind, summed per batch.
"""

import platform
import threading
import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from chronos_runtime.actor_metrics import JOB_BOUNDS, PASS_BOUNDS, ActorMetrics
from chronos_runtime.inflight import Inflight
from chronos_runtime.processor_metrics import ProcessorMetrics
from chronos_runtime.schedule_metrics import ScheduleMetrics
from chronos_runtime.tally import Spread, Tally
from chronos_runtime.version import VERSION

ACTORS = (
    "claimer",
    "taker",
    "executor",
    "heartbeater",
    "reporter",
    "watchdog",
    "scheduler",
    "listener",
    "janitor",
    "surveyor",
    "exporter",
)
_BY_JOB = ("topic", "kind")


class JobMeter:
    """How long jobs of one topic and kind waited and ran, gathered until the next fold.

    Two appends a job; a fold sums them up at a fraction of what each would cost by itself.
    """

    __slots__ = ("runs", "waits")

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.runs: list[float] = []


class Metrics:
    """All metrics of one process.

    >>> Metrics().actors["claimer"].restarts._name
    'chronos_claimer_restarts'
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.actors = {actor: ActorMetrics(registry, actor) for actor in ACTORS}

        self._by_job: list[Tally] = []
        self._meters: dict[tuple[str, str], JobMeter] = {}
        self._fold_lock = threading.Lock()  # A scrape folds on its own thread.
        registry.register(_Folds(self))  # First, so that every family after it is up to date.

        def jobs(actor: str, what: str, help: str) -> Tally:
            tally = Tally(registry, f"chronos_{actor}_{what}_jobs", help, _BY_JOB)
            self._by_job.append(tally)
            return tally

        self.claimed = jobs("claimer", "claimed", "Jobs leased by this process")
        self.rescans = Counter(
            "chronos_claimer_rescans", "Claims that looked behind the frontier", registry=registry
        )
        self.claim_ahead = Gauge(
            "chronos_claimer_ahead_jobs", "Jobs claimed ahead of free slots", registry=registry
        )
        self.started = jobs("executor", "started", "Handlers started")
        self.wait_seconds = Spread(
            registry,
            "chronos_executor_wait_seconds",
            "From ready to the start of the handler",
            _BY_JOB,
            JOB_BOUNDS,
        )
        self.run_seconds = Spread(
            registry,
            "chronos_executor_run_seconds",
            "From the start of the handler to its end",
            _BY_JOB,
            JOB_BOUNDS,
        )
        self.inbox_fill = Gauge(
            "chronos_executor_inbox_fill_ratio",
            "How full the channel from claimer to executor is",
            registry=registry,
        )
        self.inflight = Gauge(
            "chronos_executor_inflight_jobs",
            "Jobs this process holds a lease on, by place",
            ["place"],
            registry=registry,
        )
        self.conservation = Gauge(
            "chronos_executor_conservation_error_jobs",
            "claimed - (queued + running + reporting + settled); anything but 0 is a bug",
            registry=registry,
        )
        self.succeeded = jobs("reporter", "succeeded", "Jobs that ended succeeded")
        self.failed = jobs("reporter", "failed", "Attempts that failed")
        self.retried = jobs("reporter", "retried", "Failed attempts that will be tried again")
        self.dead = jobs("reporter", "dead", "Jobs that ended dead")
        self.cancelled = jobs("reporter", "cancelled", "Jobs that ended cancelled")
        self.snoozed = jobs("reporter", "snoozed", "Attempts given back by their handler")
        self.released = jobs("reporter", "released", "Claimed jobs given back unstarted")
        self.stale = jobs("reporter", "stale", "Outcomes rejected because the claim was lost")
        self.unwritable = jobs("reporter", "unwritable", "Outcomes the database refuses for good")
        self.outbox_fill = Gauge(
            "chronos_reporter_outbox_fill_ratio",
            "How full the channel from executor to reporter is",
            registry=registry,
        )
        self.lost = jobs("heartbeater", "lost", "Running jobs whose lease was lost")
        self.loop_lag = Gauge(
            "chronos_heartbeater_loop_lag_seconds",
            "How long the event loop last took to answer",
            registry=registry,
        )
        self.loop_blocks = Counter(
            "chronos_heartbeater_loop_blocks",
            "Times the event loop was blocked for longer than lag_warn_s",
            registry=registry,
        )
        self.reaped = jobs("watchdog", "reaped", "Jobs taken back from expired leases")
        self.reap_skips = Counter(
            "chronos_watchdog_skipped_rows", "Rows that could not be reaped", registry=registry
        )
        self.fired = jobs("scheduler", "fired", "Jobs that schedules fired")
        self.schedules = ScheduleMetrics(registry)
        self.listener_up = Gauge(
            "chronos_listener_up_state", "1 while notifications are heard", registry=registry
        )
        self.notifications = Counter(
            "chronos_listener_notifications",
            "Notifications heard, by channel",
            ["channel"],
            registry=registry,
        )
        self.partitions = Counter(
            "chronos_janitor_partitions",
            "History partitions made and dropped",
            ["action"],
            registry=registry,
        )
        self.depth = Gauge(
            "chronos_surveyor_depth_jobs",
            "Live jobs by topic and state, counted up to a bound",
            ["topic", "state"],
            registry=registry,
        )
        self.oldest = Gauge(
            "chronos_surveyor_oldest_seconds",
            "Age of the oldest ready job, and of the most overdue scheduled one",
            ["topic", "state"],
            registry=registry,
        )
        self.unserved = Gauge(
            "chronos_surveyor_unserved_jobs",
            "Ready jobs of kinds no live worker serves",
            ["kind"],
            registry=registry,
        )
        self.processors = ProcessorMetrics(registry)
        self.connections = Gauge(
            "chronos_store_connections",
            "Database connections by lane, used and idle",
            ["lane", "state"],
            registry=registry,
        )
        self.statement_seconds = Histogram(
            "chronos_store_statement_seconds",
            "Duration of database statements",
            ["statement"],
            buckets=PASS_BOUNDS,
            registry=registry,
        )
        self.statement_errors = Counter(
            "chronos_store_statement_errors",
            "Statements the database did not answer or refused",
            ["statement"],
            registry=registry,
        )
        self.build = Info("chronos_build", "What runs here", registry=registry)
        self.build.info({"version": VERSION, "python": platform.python_version()})
        self.answered_at = 0.0
        """When the database last answered, by the monotonic clock; 0: never."""

    def meter(self, topic: str, kind: str) -> JobMeter:
        """Where the executor notes how long jobs waited and ran."""
        return self._meters.setdefault((topic, kind), JobMeter())

    def fold(self) -> None:
        """Sum up what the meters gathered."""
        with self._fold_lock:
            for labels, meter in self._meters.copy().items():
                if waits := _take(meter.waits):
                    self.started.add(labels, len(waits))
                    self.wait_seconds.observe(labels, *waits)
                if runs := _take(meter.runs):
                    self.run_seconds.observe(labels, *runs)

    def begin(self, topic: str, kind: str) -> None:
        """Let the counters of a handler begin at zero: a rate needs two points."""
        for tally in self._by_job:
            tally.add((topic, kind), 0)

    def show_inflight(self, inflight: Inflight) -> None:
        """Say where the claimed jobs are, and whether any is missing."""
        places = {
            "queued": inflight.queued,
            "running": inflight.running,
            "reporting": inflight.reporting,
        }
        self.conservation.set(inflight.claimed - inflight.settled - sum(places.values()))
        for place, jobs in places.items():
            self.inflight.labels(place).set(jobs)

    def show_connections(self, lane: str, *, used: int, idle: int) -> None:
        """Say how many connections a lane has."""
        self.connections.labels(lane, "used").set(used)
        self.connections.labels(lane, "idle").set(idle)

    def observe_statement(self, statement: str, seconds: float, answered: bool) -> None:
        """Note one database statement; the store calls this."""
        self.statement_seconds.labels(statement).observe(seconds)
        if answered:
            self.answered_at = time.monotonic()
        else:
            self.statement_errors.labels(statement).inc()


class _Folds(Collector):
    """Folds before a scrape; has no family of its own."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        self._metrics.fold()
        return ()

    def describe(self) -> Iterable[Metric]:
        return ()


def _take(values: list[float]) -> list[float]:
    """What is in the list by now; another thread may go on appending to it."""
    taken = values[:]
    del values[: len(taken)]
    return taken
