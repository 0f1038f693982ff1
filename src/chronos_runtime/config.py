"""Every tunable, one section per actor, each with the reason for its default.

Sources, weakest first: these defaults, a TOML file, `CHRONOS_*` environment variables, flags.
`chronos_runtime.cli.settings` gathers them; this module only says what there is and checks it.
"""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from chronos_runtime.checks import checked_name
from chronos_runtime.errors import ConfigError, InputError
from chronos_runtime.processor_config import (
    EmailConfig,
    FunctionsConfig,
    SmsConfig,
    WakeConfig,
    check_supervisors,
)
from chronos_runtime.setting import Count, Seconds, Section


class DatabaseConfig(Section, frozen=True, kw_only=True):
    """Where the jobs are."""

    dsn: str = ""
    """Empty: an embedded Postgres in `data_dir`."""
    data_dir: str = ".chronos/postgres"
    connect_s: Seconds = 10.0
    statement_s: Seconds = 15.0
    """Deadline of every statement; half a lease, so that a beat can still be tried again."""
    client_connections: Count = 10
    transaction_connections: Count = 10
    """Transactions of handlers at once, in this process; others wait for their turn."""
    transaction_idle_s: Seconds = 60.0
    """A transaction in which nothing is sent for so long is ended by the server: the locks of a
    process that froze would stop whoever takes over its jobs."""
    pgbouncer: bool = False
    """A pooler in transaction mode stands in between: no prepared statements, no LISTEN."""
    prune_max: Count = 10_000

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Without the DSN, which holds a password: what is shown ends in logs and tracebacks."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return list((values | ({"dsn": "***"} if self.dsn else {})).items())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


class ClaimerConfig(Section, frozen=True, kw_only=True):
    """How jobs are claimed."""

    batch_max: Count = 4_000
    """Measured: 74,000 jobs/s with 1,000 a statement, 85,000 with 2,000, 91,000 with 4,000."""
    ahead_s: Seconds = 0.2
    """Claim ahead what starts within this time at the rate just seen. Measured at 25,000 jobs/s:
    0.1 leaves the claiming connection idle for a quarter of the time, 0.2 does not."""
    poll_s: Seconds = 0.5
    """The floor under a lost notification."""
    idle_poll_s: Seconds = 10.0
    """The same while the listener is known to hear."""
    rescan_s: Seconds = 5.0
    """How often to look behind the frontier with no reason to."""


class ExecutorConfig(Section, frozen=True, kw_only=True):
    """How handlers run."""

    concurrency: Count = 100
    topic_concurrency: dict[str, Count] = {}
    """At most this many at once of a topic, in this process."""
    drain_s: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    """How long running handlers may go on after the first signal."""
    result_max_bytes: Count = 65_536


class HeartbeaterConfig(Section, frozen=True, kw_only=True):
    """How leases are kept."""

    lease_s: Seconds = 30.0
    interval_s: Seconds = 10.0
    """Three beats a lease: one lost packet or pause never costs a lease."""
    lag_warn_s: Seconds = 1.0
    """A loop that does not answer for so long is named, with the stack that blocks it."""


class ReporterConfig(Section, frozen=True, kw_only=True):
    """How outcomes are written."""

    batch_max: Count = 4_000
    return_batch_max: Count = 250
    """return_jobs looks each row's values up among all of its batch: keep that square small."""


class WatchdogConfig(Section, frozen=True, kw_only=True):
    """How expired leases are taken back."""

    interval_s: Seconds = 2.0
    batch_max: Count = 500


class SchedulerConfig(Section, frozen=True, kw_only=True):
    """How due jobs become ready, and due schedules fire."""

    interval_s: Seconds = 1.0
    """The longest sleep without a listener."""
    idle_interval_s: Seconds = 15.0
    """The same with one: whoever enqueues something due within 15 s says so (enqueue_jobs.sql);
    set higher, jobs due in between may be promoted late. So late, too, is a retry whose worker
    dies before it falls due."""
    pause_s: Seconds = 0.02
    """Between two passes, so that a stream of due jobs goes by the handful: at 100 a second, 40
    passes and not 170. No job is later for it than this."""
    batch_max: Count = 1_000
    fire_pause_s: Seconds = 0.1
    """Between two looks at the schedules: a stream of due jobs leads to ten a second, not fifty. No
    fire is later for it than this."""
    fire_batch_max: Count = 250
    """fire_schedules looks each row's values up among all of its batch: keep that square small."""


class ListenerConfig(Section, frozen=True, kw_only=True):
    """How notifications are heard."""

    enabled: bool = True
    probe_s: Seconds = 20.0
    """A connection that died in silence goes unnoticed for so long, and pick-up is at the claimer's
    poll meanwhile. The server counts two transactions a probe."""
    probe_deadline_s: Seconds = 5.0


class JanitorConfig(Section, frozen=True, kw_only=True):
    """How the house is kept."""

    interval_s: Seconds = 60.0
    """Presence: a kind none of whose workers was seen for three minutes counts as unserved."""
    history_interval_s: Seconds = 600.0
    """Partitions are made days ahead and dropped by the day: no reason to look every minute."""
    days_ahead: Count = 3
    retention_days: Count = 30


class SurveyorConfig(Section, frozen=True, kw_only=True):
    """How depths are measured."""

    interval_s: Seconds = 15.0
    bound: Count = 10_000
    """No count goes further: about 3 ms at any backlog."""


class ExporterConfig(Section, frozen=True, kw_only=True):
    """Where /metrics, /healthz and /readyz are served."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 9_464
    """0: any free one. With `--processes`, the n-th process serves on the n-th port from here."""
    stale_s: Seconds = 30.0
    """An actor that made no progress for so long, beyond its own interval, is not ready."""


class SupervisorConfig(Section, frozen=True, kw_only=True):
    """What a crash means."""

    restarts_max: Count = 5
    window_s: Seconds = 60.0
    backoff_s: Seconds = 0.2
    backoff_max_s: Seconds = 5.0


class Config(Section, frozen=True, kw_only=True):
    """The whole tree.

    >>> Config().heartbeater.lease_s
    30.0
    """

    topics: list[str] = []
    """The topics this process serves; empty: those of its handlers."""
    supervisors: dict[str, str] = {}
    """By name, the SQL functions (schema.function) that decide about failed supervised tasks."""
    database: DatabaseConfig = DatabaseConfig()
    claimer: ClaimerConfig = ClaimerConfig()
    executor: ExecutorConfig = ExecutorConfig()
    heartbeater: HeartbeaterConfig = HeartbeaterConfig()
    reporter: ReporterConfig = ReporterConfig()
    watchdog: WatchdogConfig = WatchdogConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    listener: ListenerConfig = ListenerConfig()
    janitor: JanitorConfig = JanitorConfig()
    surveyor: SurveyorConfig = SurveyorConfig()
    exporter: ExporterConfig = ExporterConfig()
    wake: WakeConfig = WakeConfig()
    email: EmailConfig = EmailConfig()
    sms: SmsConfig = SmsConfig()
    functions: FunctionsConfig = FunctionsConfig()
    supervisor: SupervisorConfig = SupervisorConfig()

    @classmethod
    def of(cls, tree: dict[str, Any], *, is_text: bool = False) -> "Config":
        """The checked config of a tree of values; `is_text` reads numbers from strings too.

        >>> Config.of({"executor": {"concurrency": 0}})
        Traceback (most recent call last):
        ...
        chronos_runtime.errors.ConfigError: executor.concurrency: Expected `int` >= 1
        """
        try:
            config = msgspec.convert(tree, cls, strict=not is_text)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            where = path.rstrip("`").lstrip(".") or "config"
            raise ConfigError(f"{where}: {text}") from error
        config.check()
        return config

    def check(self) -> None:
        """Refuse settings that fit alone but not together, and topics no job can have."""
        _check_topics("topics", self.topics)
        _check_topics("executor.topic_concurrency", self.executor.topic_concurrency)
        self.wake.check()
        self.email.check()
        self.sms.check()
        check_supervisors(self.supervisors)
        beats = self.heartbeater
        if beats.lease_s < 3 * beats.interval_s:
            raise ConfigError(
                f"heartbeater.interval_s: {beats.interval_s:g} leaves fewer than three beats to a"
                f" lease of {beats.lease_s:g} s; make it at most {beats.lease_s / 3:g},"
                " or raise heartbeater.lease_s"
            )
        if self.claimer.idle_poll_s < self.claimer.poll_s:
            raise ConfigError("claimer.idle_poll_s: must not be below claimer.poll_s")


def _check_topics(key: str, topics: Iterable[str]) -> None:
    for topic in topics:
        try:
            checked_name(topic, "topic")
        except InputError as error:
            raise ConfigError(f"{key}: {error}") from error
