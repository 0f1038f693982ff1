"""What can go wrong, and the exit code a process ends with.

    ChronosError
    ├── ConfigError            a setting is wrong: names the key and the fix        exit 2
    ├── InputError             a caller's argument is wrong: names the field
    │   ├── PayloadError       the payload does not fit the handler's type
    │   ├── TargetRefused      a URL leads where nothing may be sent
    │   └── UnknownKind        nobody registered a handler under that kind
    ├── JobNotFound            no live job and no history has that id               exit 5
    ├── ScheduleNotFound       no schedule and no alarm has that name               exit 5
    ├── JobStateError          the job is in a state that forbids the operation     exit 5
    ├── ClaimLost              a handler's transaction came too late: all was rolled back
    ├── StoreError             the database refused a statement for good
    │   ├── StoreUnavailable   the database is away or busy: try again later        exit 4
    │   ├── SchemaOutdated     the schema is older than this program: migrate       exit 3
    │   └── SchemaTooNew       the schema is newer than this program: upgrade       exit 3
    ├── DeliveryFailed         a URL was not reached, or did not answer with 2xx
    ├── ProcessorFailure       what a processor was asked for did not happen
    │   ├── TemporaryFailure   trying again may help, perhaps after a time the provider named
    │   │   └── FunctionFailed a SQL function was refused, broke, or said that it failed
    │   └── PermanentFailure   trying again would not help
    └── CrashLoop              an actor failed more often than its budget allows    exit 6

Exit codes of `chronos-runtime`: 0 done or drained · 1 a bug (traceback) · 2 bad usage or
config · 3 schema version · 4 database unavailable · 5 the job, schedule or alarm asked
about is not there or not in a state for it · 6 crash loop · 130 stopped by a second signal.

A bug is an `assert`, an outage is `StoreUnavailable` and goes to the supervisor, and what a
handler decides is a value (see `chronos_runtime.job`). Of this tree, user code raises the
processor failures and no other.
"""

from typing import ClassVar

EXIT_BUG = 1
EXIT_SECOND_SIGNAL = 130


class ChronosError(Exception):
    """The root of every error this package raises on purpose."""

    exit_code: ClassVar[int] = EXIT_BUG


class ConfigError(ChronosError):
    """A setting is wrong. The message names the key and says how to mend it."""

    exit_code = 2


class InputError(ChronosError, ValueError):
    """An argument is wrong. The message names the field and says how to mend it."""

    exit_code = 2


class PayloadError(InputError):
    """A payload does not fit the type its handler declares, or cannot be stored as JSON."""


class TargetRefused(InputError):
    """A URL, or an address its name has, may not be reached. The message says how to allow it."""


class UnknownKind(InputError):
    """No handler is registered under this kind."""


class JobNotFound(ChronosError, LookupError):
    """Neither the live jobs nor the history know this id."""

    exit_code = 5


class ScheduleNotFound(ChronosError, LookupError):
    """No schedule, or no alarm, has this name."""

    exit_code = 5


class JobStateError(ChronosError):
    """The job exists, but in a state that forbids what was asked."""

    exit_code = 5


class ClaimLost(ChronosError):
    """The job went to another attempt while its handler ran; its transaction was rolled back."""


class StoreError(ChronosError):
    """The database refused a statement, and asking again would not help."""


class StoreUnavailable(StoreError):
    """The database is away, restarting, read-only or overloaded. Asking again later may help."""

    exit_code = 4


class SchemaOutdated(StoreError):
    """The schema is older than this program needs. Run `chronos-runtime migrate`."""

    exit_code = 3


class SchemaTooNew(StoreError):
    """The schema is newer than this program knows. Upgrade the program; nothing was touched."""

    exit_code = 3


class DeliveryFailed(ChronosError):
    """A delivery failed. The message names the host and why, never the URL or a secret."""


class ProcessorFailure(ChronosError):
    """What a processor was asked for did not happen; `outcome` is the word its metric counts.

    >>> ProcessorFailure("no", outcome="rejected").outcome
    'rejected'
    """

    def __init__(self, reason: str, *, outcome: str = "failed") -> None:
        super().__init__(reason)
        self.outcome = outcome


class TemporaryFailure(ProcessorFailure):
    """A failed attempt, tried again by the backoff of its kind, or after the time given.

    Any other exception means the same; this one has a word for the metric, and may have a delay.

    >>> TemporaryFailure("the provider is busy", outcome="throttled", after_s=30).after_s
    30
    """

    def __init__(
        self, reason: str, *, outcome: str = "failed", after_s: float | None = None
    ) -> None:
        super().__init__(reason, outcome=outcome)
        self.after_s = after_s


class FunctionFailed(TemporaryFailure):
    """A SQL function was refused, broke, or said that it failed. The message names it and the fix.

    >>> FunctionFailed("shop.charge: no funds", outcome="unsuccessful").outcome
    'unsuccessful'
    """


class PermanentFailure(ProcessorFailure):
    """Trying again would not help: the job is `dead` at once, whatever attempts it has left.

    >>> PermanentFailure("no such mailbox", outcome="rejected").outcome
    'rejected'
    """


class CrashLoop(ChronosError):
    """An actor failed more often than its restart budget allows."""

    exit_code = 6
