"""A worker process for tests to kill: its handlers leave evidence, its log is JSON lines.

    python -m tests.crash.worker <dsn> <evidence dsn> <config as JSON>

Evidence goes through connections of its own, to a database that no test takes away, and is
committed before the handler goes on: what is not there did not happen.
"""

import json
import logging
import os
import signal
import sys
import time

import anyio
import asyncpg
import msgspec
from anyio.abc import TaskStatus

from chronos_runtime import Cancel, Chronos, Config, Job, Snooze
from chronos_runtime.backoff import Fixed
from chronos_runtime.runtime import Runtime
from tests.crash.bank import register_bank
from tests.crash.errands import register_errands
from tests.crash.evidence import Evidence, wait_at
from tests.crash.held import GATE, HOLD, hold_messages

EVIDENCE_CONNECTIONS = 4
SNOOZES = 2
SECOND_SIGNAL_EXIT_CODE = 130

_STANDARD_LOG_FIELDS = frozenset(vars(logging.makeLogRecord({})))

_log = logging.getLogger(__name__)


class Work(msgspec.Struct):
    """What the handlers are told."""

    gate: str = ""
    for_s: float = 0.0


def make_app(evidence: Evidence) -> Chronos:
    """All handlers there are."""
    app = Chronos()
    register_workers(app, evidence)
    register_deciders(app, evidence)
    register_bank(app, evidence)
    register_errands(app, evidence)
    return app


def register_workers(app: Chronos, evidence: Evidence) -> None:
    """Handlers that succeed. A result names the attempt and the process it comes from."""

    async def ended(job: Job) -> dict[str, int]:
        await evidence.add(job, "end")
        return {"attempt": job.attempt, "pid": os.getpid()}

    @app.handler("quick")
    async def quick(job: Job, work: Work) -> object:
        await evidence.add(job, "start")
        await anyio.sleep(work.for_s)
        return await ended(job)

    @app.handler("hold")
    async def hold(job: Job, work: Work) -> object:
        """Wait until the test opens the gate, for everybody or for this attempt."""
        await evidence.add(job, "start")
        await wait_at(work.gate, job.attempt)
        return await ended(job)

    @app.handler("block")
    async def block(job: Job, work: Work) -> object:
        await evidence.add(job, "start")
        block_the_loop(work.for_s)
        return await ended(job)

    @app.handler("tick")
    async def tick(job: Job, payload: object) -> None:
        await evidence.add_occurrence(job)

    @app.handler("snooze")
    async def snooze(job: Job, work: Work) -> object:
        await evidence.add(job, "start")
        if await evidence.count(job, "snooze") < SNOOZES:
            await evidence.add(job, "snooze")
            return Snooze(for_s=0.05)
        return await ended(job)


def register_deciders(app: Chronos, evidence: Evidence) -> None:
    """Handlers that end their job in another way."""

    @app.handler("fail", backoff=Fixed(delay_s=0.05))
    async def fail(job: Job, work: Work) -> object:
        await evidence.add(job, "start")
        raise RuntimeError("as asked")

    @app.handler("cancel")
    async def cancel(job: Job, work: Work) -> object:
        await evidence.add(job, "start")
        return Cancel("as asked")

    @app.handler("suicide")
    async def suicide(job: Job, work: Work) -> object:
        await evidence.add(job, "start")
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def block_the_loop(for_s: float) -> None:
    time.sleep(for_s)


class JsonLines(logging.Formatter):
    """One JSON object per record, with everything given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        extra = {
            name: value for name, value in vars(record).items() if name not in _STANDARD_LOG_FIELDS
        }
        line = {
            "at": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **extra,
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


async def stop_on_signal(
    stop: anyio.Event, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    """The first signal drains, the second one does not wait."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            if stop.is_set():
                os._exit(SECOND_SIGNAL_EXIT_CODE)
            stop.set()
            _log.info("draining")


async def main(dsn: str, evidence_dsn: str, overlay: str) -> None:
    sections = json.loads(overlay)
    sections["database"]["dsn"] = dsn
    config = Config.of(sections)
    stop = anyio.Event()
    async with (
        asyncpg.create_pool(evidence_dsn, min_size=1, max_size=EVIDENCE_CONNECTIONS) as pool,
        anyio.create_task_group() as tasks,
    ):
        await tasks.start(stop_on_signal, stop)
        runtime = Runtime(make_app(Evidence(pool)), config)
        _log.info("up", extra={"worker": runtime.worker.name})
        await runtime.run(stop)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    dsn, evidence_dsn, overlay = sys.argv[1:]
    if step := os.environ.get(HOLD):
        hold_messages(step, os.environ[GATE])
    anyio.run(main, dsn, evidence_dsn, overlay, backend_options={"use_uvloop": True})
