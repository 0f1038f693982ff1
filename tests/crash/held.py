"""E-mails and text messages that stop at a gate, in a worker that tests kill right there.

The gate stands between steps of the real thing, which otherwise runs as it is.
"""

import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from chronos_runtime.processors.dispatcher import Dispatcher
from chronos_runtime.processors.email import Email
from chronos_runtime.processors.sms import Sms
from tests.crash.evidence import wait_at

BEFORE_SEND, AFTER_SEND, AFTER_COMMIT = "before send", "after send", "after commit"
HOLD, GATE = "CHRONOS_TEST_HOLD", "CHRONOS_TEST_GATE"
AT_THE_GATE = "at the gate"

Call = Callable[..., Awaitable[Any]]

_log = logging.getLogger(__name__)


def hold_messages(step: str, gate: str) -> None:
    """Let every message of this process wait at a gate, before or after a step."""
    callers: tuple[Any, ...] = (Dispatcher,) if step == AFTER_COMMIT else (Email, Sms)
    for caller in callers:
        caller.__call__ = _held(caller.__call__, step, gate)


def _held(call: Call, step: str, gate: str) -> Call:
    @functools.wraps(call)
    async def held(self: object, task: Any, message: Any) -> object:
        if step == BEFORE_SEND:
            await _wait(gate, task)
        try:
            return await call(self, task, message)
        finally:
            if step != BEFORE_SEND:
                await _wait(gate, task)

    return held


async def _wait(gate: str, task: Any) -> None:
    _log.info(AT_THE_GATE, extra={"job": str(task.id)})
    await wait_at(gate, 0)
