"""Supervised handlers for tests to kill: whether an attempt fails follows from its line alone."""

from hashlib import sha256
from typing import Protocol
from uuid import UUID

import anyio
import msgspec

from chronos_runtime import Chronos, Failure, GiveUp, Job, NewAttempt
from tests.crash.gate import is_open

GATE_POLL_S = 0.05
ATTEMPTS_MAX = 3


class Errand(msgspec.Struct):
    """What the handler is told, and its supervisor after it."""

    fails: float = 1.0
    """How many of all attempts fail."""
    gate: str = ""
    """Where the handler waits, and the supervisor."""
    ask_gate: str = ""


class Facts(Protocol):
    """Where evidence goes."""

    async def add(self, job: Job, what: str) -> None:
        """That a handler did something, committed."""

    async def add_asked(self, failure: Failure) -> None:
        """That a supervisor was asked, committed."""


def register_errands(app: Chronos, evidence: Facts) -> None:
    """The handler and the supervisor."""

    @app.handler("errand", attempts="supervised")
    async def errand(job: Job, payload: Errand) -> None:
        await evidence.add(job, "start")
        await wait_at(payload.gate, job.attempt)
        if does_fail(job.lineage_id, job.lineage_no, payload.fails):
            raise ConnectionError("the provider is down")

    @app.supervisor("errand")
    async def decide(failure: Failure) -> NewAttempt | GiveUp:
        await evidence.add_asked(failure)
        await wait_at(failure.payload.get("ask_gate", ""), failure.attempt)
        return NewAttempt() if failure.attempt < ATTEMPTS_MAX else GiveUp("enough")


def does_fail(line: UUID, number: int, fails: float) -> bool:
    """Whether an attempt fails: the same in every process, and when it runs again."""
    return sha256(f"{line}/{number}".encode()).digest()[0] < 256 * fails


async def wait_at(gate: str, attempt: int) -> None:
    """Wait until the test opens the gate, if there is one."""
    while gate and not is_open(gate, attempt):  # noqa: ASYNC110 - another process opens it
        await anyio.sleep(GATE_POLL_S)
