"""`chronos.db_function`: a task that calls a SQL function, and is done when that is.

What the function writes, how it ended and the end of the job are one fenced transaction: its
effects inside Postgres happen exactly once. A proper envelope is committed also when its status is
no success: the facts it wrote are facts. A broken function, or one that returned no envelope, is
rolled back, and the attempt has failed.
"""

from chronos_runtime.errors import ProcessorFailure, StoreUnavailable
from chronos_runtime.job import Job
from chronos_runtime.processor import Task
from chronos_runtime.processor_metrics import ProcessorMetrics
from chronos_runtime.processors.function_payload import FUNCTION_KIND, FunctionPayload
from chronos_runtime.processors.functions import Functions


class DbFunction:
    """Calls the SQL functions that tasks name; one for a process."""

    def __init__(self, functions: Functions, metrics: ProcessorMetrics) -> None:
        self._functions = functions
        self._metrics = metrics
        metrics.begin(FUNCTION_KIND)

    async def __call__(self, job: Job, payload: FunctionPayload) -> None:
        """Call it once; the transaction ends the job, or a failure is raised."""
        outcome = "stopped"
        try:
            with self._metrics.seconds.labels(FUNCTION_KIND).time():
                outcome = await self._call(job, payload)
        except ProcessorFailure as failure:
            outcome = failure.outcome
            raise
        except StoreUnavailable:
            outcome = "unavailable"
            raise
        finally:
            self._metrics.note(FUNCTION_KIND, outcome)

    async def _call(self, job: Job, payload: FunctionPayload) -> str:
        function = await self._functions.resolve(payload.name)
        transaction = job.transaction()
        async with transaction as connection:
            arguments = bytes(payload.arguments).decode()
            envelope = await self._functions.call(connection, function, arguments, Task.of(job))
            if envelope.is_success:
                transaction.end_with(envelope.payload)
                return "succeeded"
            failure = envelope.failure(function.name)
            transaction.end_with(failure)
            return failure.outcome
