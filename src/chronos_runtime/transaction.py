"""The fenced transaction: a handler's own writes and the end of its job, together or not at all.

What a handler writes into the jobs' own database can so be done exactly once: the end of the job
matches no row unless this very claim still stands, and then nothing is committed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING

from chronos_runtime.errors import InputError

if TYPE_CHECKING:
    import asyncpg


class Transaction(ABC):
    """What `job.transaction()` gives: a block whose end is the end of the job.

    Leaving the block commits; an exception rolls back and goes on, and the job is as unended as
    before. If the claim was lost meanwhile, all is rolled back and `ClaimLost` raised. Once it is
    committed, nothing that the handler returns or raises changes how the job ended.

    >>> from chronos_runtime import Chronos, Job
    >>> app = Chronos()
    >>> @app.handler("transfer")
    ... async def transfer(job: Job, payload: dict[str, int]) -> None:
    ...     transaction = job.transaction()
    ...     async with transaction as connection:
    ...         await connection.execute("update account set cents = cents - $1", payload["cents"])
    ...         transaction.end_with({"sent": payload["cents"]})
    """

    def __init__(self) -> None:
        self._end: object = None

    def end_with(self, end: object) -> None:
        """How the job ends, as if the handler returned it, or raised it if it is an exception.

        Without this it succeeds without a result.
        """
        self._end = end

    @abstractmethod
    async def __aenter__(self) -> "asyncpg.Connection":
        """Begin, on a connection that nobody else uses meanwhile."""

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back."""


opener: ContextVar[Callable[[object], Transaction]] = ContextVar("opener")
"""How a transaction begins where a handler runs: set once by each slot of the executor."""


def refuse_transaction(job: object, ending: object) -> Transaction:  # noqa: ARG001
    """Where the jobs are not in Postgres."""
    raise InputError("job.transaction(): this worker's store has no transactions; Postgres has")


def open_transaction(job: object) -> Transaction:
    """The transaction of a job that runs right here."""
    try:
        begin = opener.get()
    except LookupError:
        raise InputError("job.transaction(): only in a handler that a worker runs") from None
    return begin(job)
