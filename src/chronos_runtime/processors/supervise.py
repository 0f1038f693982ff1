"""`chronos.supervise.<name>`: a supervisor sees a failure, and what it decides is done at once.

The job of this kind is the failure fact: the statement that ended the task enqueued it, so there is
one for each failed attempt. The decision and the end of this job are one fenced transaction, so it
is carried out exactly once, whatever dies in between; a SQL supervisor runs within it, and what it
writes is kept exactly once, too. A Python supervisor is asked before, and asked again if its worker
died before the decision was written. Only a process that knows a supervisor claims its facts.
"""

import logging
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

import msgspec

from chronos_runtime.checks import checked_delay
from chronos_runtime.errors import ConfigError
from chronos_runtime.function_name import FunctionName
from chronos_runtime.handlers import Handler
from chronos_runtime.ids import new_job_id
from chronos_runtime.job import Cancel, Job
from chronos_runtime.lineage import SUPERVISE_PREFIX, SUPERVISE_TOPIC, supervise_kind
from chronos_runtime.payload import encode_payload
from chronos_runtime.processor import Task
from chronos_runtime.processor_metrics import ProcessorMetrics
from chronos_runtime.processors.builtin_rules import builtin_rules
from chronos_runtime.processors.functions import Functions
from chronos_runtime.store import JobRecord
from chronos_runtime.store.decisions import DecisionConnection, escalate_job, start_attempt
from chronos_runtime.supervision import (
    DECISIONS,
    Decision,
    Escalate,
    Failure,
    GiveUp,
    NewAttempt,
    SupervisorRule,
    checked_decision,
    read_decision,
    word_of,
)

_log = logging.getLogger(__name__)


class FailureFact(msgspec.Struct, frozen=True):
    """What the job of a failure says: which task it was. The task itself is in the history."""

    task: UUID


class Records(Protocol):
    """What this reads of the store."""

    async def get_jobs(self, ids: list[UUID]) -> dict[UUID, JobRecord]:
        """Read jobs, live or ended."""


class Supervise:
    """Asks the supervisors that this process knows; one for a process."""

    def __init__(
        self,
        records: Records,
        functions: Functions,
        metrics: ProcessorMetrics,
        *,
        rules: Mapping[str, SupervisorRule],
        sql: Mapping[str, str],
        handlers: Mapping[str, Handler],
    ) -> None:
        if both := sorted(rules.keys() & sql.keys()):
            raise ConfigError(f"supervisors.{both[0]}: the app has one of that name; keep one")
        self._records = records
        self._functions = functions
        self._metrics = metrics
        self._rules = rules
        self._sql = {
            name: FunctionName.of(text, f"supervisors.{name}") for name, text in sql.items()
        }
        self._handlers = handlers
        for name in (*rules, *sql):
            for word in DECISIONS:
                metrics.supervised.labels(name, word)  # A rate needs two points: begin at zero.

    def handlers(self) -> dict[str, Handler]:
        """A handler for the facts of each supervisor."""
        handlers = [self._handler(name, rule.timeout_s) for name, rule in self._rules.items()]
        handlers += [self._handler(name, None) for name in self._sql]
        return {handler.kind: handler for handler in handlers}

    def _handler(self, name: str, timeout_s: float | None) -> Handler:
        kind = supervise_kind(name)
        return Handler.of(self.__call__, kind, topic=SUPERVISE_TOPIC, timeout_s=timeout_s)

    async def __call__(self, job: Job, fact: FailureFact) -> Cancel | None:
        """Ask once; the transaction ends the job, or it is tried again."""
        name = job.kind.removeprefix(SUPERVISE_PREFIX)
        record = (await self._records.get_jobs([fact.task])).get(fact.task)
        if record is None or record.state != "failed":
            found = "not in the history" if record is None else record.state
            return Cancel(f"task {fact.task} is {found}: there is nothing to decide")
        failure = failure_of(record)
        rule, decision, function = self._rules.get(name), None, None
        if rule is not None:
            decision = checked_decision(await rule.function(failure), name)
        else:
            function = await self._functions.resolve(self._sql[name])
        transaction = job.transaction()
        async with transaction as connection:
            if function is not None:
                envelope = await self._functions.demand(
                    connection, function, sql_argument(failure), task_of(record)
                )
                decision = read_decision(envelope.payload, name)
            assert decision is not None
            transaction.end_with(await self._carry_out(connection, failure, decision))
        self._metrics.supervised.labels(name, word_of(decision)).inc()
        _log.info(
            "supervised: %s",
            word_of(decision),
            extra={"job": str(failure.id), "kind": failure.kind, "attempt": failure.attempt},
        )
        return None

    async def _carry_out(
        self, connection: DecisionConnection, failure: Failure, decision: Decision
    ) -> dict[str, object]:
        """Do what was decided; what the fact keeps of it as its result."""
        done: dict[str, object] = {"decision": word_of(decision)}
        match decision:
            case NewAttempt():
                id = new_job_id()
                delay_s = checked_delay(decision.delay_s, "NewAttempt.delay_s")
                payload = self._payload(failure.kind, decision.payload)
                await start_attempt(connection, failure.id, id=id, payload=payload, delay_s=delay_s)
                return done | {"task": str(id), "delay_s": delay_s}
            case Escalate():
                await escalate_job(connection, failure.id)
            case GiveUp():
                pass
        return done | {"reason": str(decision.reason)}

    def _payload(self, kind: str, payload: object) -> str | None:
        """The new attempt's payload, if it has one of its own, checked as at any enqueue."""
        if payload is None:
            return None
        handler = self._handlers.get(kind) or builtin_rules(kind)
        return encode_payload(kind, payload, None if handler is None else handler.decode)


def failure_of(record: JobRecord) -> Failure:
    """What a supervisor is told of a task that ended as failed."""
    assert record.finished_at is not None
    return Failure(
        id=record.id,
        kind=record.kind,
        topic=record.topic,
        payload=record.payload,
        error=record.errors[-1] if record.errors else {},
        errors=record.errors,
        attempt=record.lineage_no or 1,
        run=record.attempt,
        supervisor=record.supervisor or "",
        lineage_id=record.lineage_id or record.id,
        retry_of=record.retry_of,
        enqueued_at=record.enqueued_at,
        finished_at=record.finished_at,
    )


def task_of(record: JobRecord) -> Task:
    """The failed task, for what SQL functions read of it."""
    return Task(
        id=record.id,
        kind=record.kind,
        topic=record.topic,
        attempt=record.lineage_no or 1,
        run=record.attempt,
        max_attempts=record.max_attempts,
        retry_of=record.retry_of,
        lineage_id=record.lineage_id or record.id,
    )


def sql_argument(failure: Failure) -> str:
    """The one argument of a SQL supervisor: the task, as SQL handlers are told it, and its end."""
    values = msgspec.structs.asdict(failure)
    said = {name: values.pop(name) for name in ("payload", "error", "errors")}
    return msgspec.json.encode({"task": values} | said).decode()
