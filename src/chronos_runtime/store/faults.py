"""Which database errors pass by themselves, and which are for good."""

import asyncpg
from asyncpg import exceptions as pg

from chronos_runtime.errors import StoreError, StoreUnavailable

# By SQLSTATE class or code. Class 08 connection lost, 53 out of resources (disk, memory,
# connections), 57P0x shutdown or starting up.
_TRANSIENT_CODES = frozenset(
    {
        "25006",  # read-only: the old primary after a failover
        "25P03",  # idle in transaction timeout
        "26000",  # prepared statement is gone: a pooler swapped the server
        "40001",  # serialization failure
        "40P01",  # deadlock
        "42P10",  # on-conflict plan bound to an index that was made anew
        "55P03",  # lock not available
        "57014",  # statement timeout
    }
)
_TRANSIENT_CLASSES = ("08", "53", "57P")

FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, pg.InternalClientError, OSError)
"""Whatever asyncpg raises when the database, the network or the driver fails."""


def is_transient(error: BaseException) -> bool:
    """Whether asking again later may help."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        return (
            code in _TRANSIENT_CODES
            or code.startswith(_TRANSIENT_CLASSES)
            # The cached plan must not change its result type: DDL under a prepared statement.
            or isinstance(error, pg.InvalidCachedStatementError)
            or _is_partition_attached_meanwhile(error)
        )
    # InternalClientError: no host is writable just now, because a failover is under way, or the
    # protocol is out of step. InterfaceError: "connection is closed". OSError covers TimeoutError.
    return isinstance(error, asyncpg.InterfaceError | pg.InternalClientError | OSError)


def _is_partition_attached_meanwhile(error: asyncpg.PostgresError) -> bool:
    """An insert was on its way into the default partition when the day's own was attached.

    Postgres reports that as a check violation (23514) without a constraint's name; the next try
    is routed to the new partition.
    """
    return (
        isinstance(error, pg.CheckViolationError)
        and error.constraint_name is None
        and str(error.table_name).startswith("job_history")
    )


def breaks_connection(error: BaseException) -> bool:
    """Whether the connection the error came from must not be used again."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        return code in {"25006", "26000", "25P03"} or code.startswith(("08", "57P"))
    return True


def translate(error: BaseException, statement: str) -> StoreError:
    """The error as the rest of the program knows it."""
    if isinstance(error, pg.CheckViolationError | pg.NotNullViolationError):
        error.detail = None  # It quotes the row, payload and all.
    text = f"{statement}: {type(error).__name__}: {error}"
    return StoreUnavailable(text) if is_transient(error) else StoreError(text)
