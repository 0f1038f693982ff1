"""What the scheduler tells about schedules, beside the jobs it fired."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from chronos_runtime.actor_metrics import JOB_BOUNDS


class ScheduleMetrics:
    """How late fires are, what did not fire, and what is in trouble."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.late = Histogram(
            "chronos_scheduler_fire_late_seconds",
            "From an occurrence to its fire",
            buckets=JOB_BOUNDS,
            registry=registry,
        )
        self.skips = Counter(
            "chronos_scheduler_skipped_occurrences",
            "Occurrences that did not fire, by overlap or because nobody was there to fire them",
            ["why"],
            registry=registry,
        )
        self.races = Counter(
            "chronos_scheduler_lost_races",
            "Schedules another process fired, or somebody edited, between read and fire",
            registry=registry,
        )
        self.broken = Counter(
            "chronos_scheduler_broken_schedules",
            "Schedules marked as broken because they could not be evaluated or fired",
            registry=registry,
        )
        self.absences = Counter(
            "chronos_scheduler_absences",
            "Schedules that went without a success for longer than they may",
            registry=registry,
        )
        self.absent = Gauge(
            "chronos_scheduler_absent_schedules",
            "Schedules that are without a success for longer than they may",
            registry=registry,
        )
        self.synchronised = Counter(
            "chronos_scheduler_synchronised_schedules",
            "Schedules of the app's code, by what became of them when this process started",
            ["outcome"],
            registry=registry,
        )
        for why in ("overlap", "catch_up"):
            self.skips.labels(why)  # A rate needs two points: begin at zero.
