"""The dispatcher runs a processor for a task, and the SQL functions that the task names around it.

`before_handler` runs in a transaction of its own, then the processor, then `success_handler` or
`error_handler` in one fenced transaction with the end of the job: the fact and the end are
committed together, or not at all. What can happen twice is the processor's own work, where the
process dies, loses its claim, or meets its drain deadline in the middle of it, between the
moment the provider takes the message and that commit.

So whatever keeps that transaction from being committed and may pass is waited out right here, and
a stop of the process waits for it, too, though not for long: to give the job back now would be to
send again. If it cannot be recorded at all, the job is `dead`, and `error_handler` is told.
"""

import logging
import time

import anyio
import msgspec

from chronos_runtime.errors import (
    FunctionFailed,
    PermanentFailure,
    ProcessorFailure,
    StoreUnavailable,
    TemporaryFailure,
)
from chronos_runtime.function_name import FunctionName
from chronos_runtime.handlers import Handler
from chronos_runtime.job import Job
from chronos_runtime.processor import Task
from chronos_runtime.processor_metrics import ProcessorMetrics
from chronos_runtime.processors.functions import Functions
from chronos_runtime.processors.run import Run
from chronos_runtime.processors.task_payload import TaskPayload, read_message
from chronos_runtime.slot import is_being_stopped

_STOP_S = 10.0  # How long a stop waits for what was done to be recorded.
_TIMEOUTS_MAX = 3  # A function that took too long may do better, but not for ever.
_PAUSE_S, _PAUSE_MAX_S = 0.05, 2.0

_log = logging.getLogger(__name__)


class Dispatcher:
    """Runs the tasks of one kind."""

    def __init__(self, rules: Handler, functions: Functions, metrics: ProcessorMetrics) -> None:
        self._rules = rules
        self._functions = functions
        self._metrics = metrics

    async def __call__(self, job: Job, payload: TaskPayload) -> object:
        """One attempt: what the job ends with, unless a SQL function has ended it already."""
        run = Run(Task.of(job), payload)
        outcome = "stopped"
        try:
            await self._attempt(job, run)
            outcome = run.outcome
            end = await self._record(job, run)
            outcome = run.outcome
        finally:
            self._metrics.note(self._rules.kind, outcome)
        if isinstance(end, BaseException):
            raise end
        return end

    async def _attempt(self, job: Job, run: Run) -> None:
        """Run the processor, and note in `run` what came of it."""
        try:
            before = run.payload.before_handler
            if before is None:
                run.message = run.payload.message
            else:
                told = run.document()
                run.message = (
                    await self._functions.demand_alone(before, told, run.task)
                ).payload or {}
            run.stage = "message"
            message = _typed(run, self._rules)
            run.stage = "processor"
            run.answer = await self._process(job, run.task, message)
        except (KeyboardInterrupt, GeneratorExit):
            raise  # Meant for the process, whatever it was doing.
        except BaseException as error:  # The user's code: anything may come.
            if is_being_stopped():
                raise
            run.error = error

    async def _process(self, job: Job, task: Task, message: object) -> object:
        timeout_s = self._rules.timeout_s if job.timeout_s is None else job.timeout_s
        answer: object = None
        with (
            self._metrics.seconds.labels(task.kind).time(),
            anyio.move_on_after(timeout_s) as scope,
        ):
            answer = await self._rules.function(task, message)  # type: ignore[arg-type]
        if scope.cancelled_caught:
            raise TimeoutError(f"stopped after {timeout_s:g} s")
        return answer

    async def _record(self, job: Job, run: Run) -> object:
        """Let SQL record how the run ended, together with the end; None, once it is ended."""
        if run.is_success:
            if run.payload.success_handler is None:
                return run.answer
            try:
                await self._end(job, run, run.payload.success_handler)
            except ProcessorFailure as trouble:
                # Never again: it was sent.
                run.stage = "success_handler"
                run.error = PermanentFailure(
                    f"done, but not recorded: {trouble}", outcome="unrecorded"
                )
                run.error.__cause__ = trouble
            else:
                return None
        if run.payload.error_handler is None or run.outcome == "snoozed":
            return run.end
        try:
            await self._end(job, run, run.payload.error_handler)
        except ProcessorFailure as trouble:
            return run.also(trouble)
        return None

    async def _end(self, job: Job, run: Run, name: FunctionName) -> None:
        """Call a function and end the job in one transaction; again, while that may help."""
        shielded_until = time.monotonic() + _STOP_S
        pause_s, timeouts = _PAUSE_S, 0
        with anyio.CancelScope(shield=True) as scope:
            while True:
                try:
                    return await self._end_once(job, run, name)
                except StoreUnavailable as trouble:
                    reason = str(trouble)
                except FunctionFailed as failure:
                    timeouts += failure.outcome == "timeout"
                    if failure.outcome != "timeout" or timeouts == _TIMEOUTS_MAX:
                        raise
                    reason = str(failure)
                _log.warning(
                    "not recorded yet, trying again: %s",
                    reason,
                    extra={"job": str(job.id), "kind": job.kind, "attempt": job.attempt},
                )
                scope.shield = time.monotonic() < shielded_until
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _end_once(self, job: Job, run: Run, name: FunctionName) -> None:
        function = await self._functions.resolve(name)
        transaction = job.transaction()
        async with transaction as connection:
            await self._functions.demand(connection, function, run.document(), run.task)
            transaction.end_with(run.end)


def _typed(run: Run, rules: Handler) -> object:
    assert run.message is not None
    try:
        message: object = read_message(run.message, rules.payload_type)
    except msgspec.ValidationError as error:
        raise TemporaryFailure(f"message of {rules.kind!r}: {error}", outcome="invalid") from error
    return message
