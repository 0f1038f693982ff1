"""Supervised handlers for tests to kill: whether an attempt fails follows from its line alone."""

from hashlib import sha256
from uuid import UUID

import msgspec

from chronos_runtime import Chronos, Failure, GiveUp, Job, NewAttempt
from tests.crash.evidence import Evidence, wait_at

ATTEMPTS_MAX = 3


class Errand(msgspec.Struct):
    """What the handler is told, and its supervisor after it."""

    fails: float = 1.0
    """How many of all attempts fail."""
    gate: str = ""
    """Where the handler waits, and the supervisor."""
    ask_gate: str = ""


def register_errands(app: Chronos, evidence: Evidence) -> None:
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
