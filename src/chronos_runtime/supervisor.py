"""What a crash means: restart, back off, give up.

Only this module decides. An outage of the database is nobody's fault: the actor starts again,
with backoff, for ever. Any other exception is restarted within a budget; beyond it the process
ends with `CrashLoop`, because a process that cannot do its work must not look alive. A failed
assertion is a bug, and running on with a broken invariant could lose or double a job: it ends
the process at once.
"""

import logging
import random
import time
from collections import deque
from typing import Protocol

import anyio

from chronos_runtime.config import SupervisorConfig
from chronos_runtime.errors import ConfigError, CrashLoop, StoreUnavailable
from chronos_runtime.metrics import Metrics

_log = logging.getLogger(__name__)


class Actor(Protocol):
    """Something with a name and a loop.

    `run` returns when its input ends, is cancelled to stop, and raises when it breaks. What it
    must not forget over a restart lives on the object, never in the locals of `run`.
    """

    @property
    def name(self) -> str:
        """Its name in metrics, logs and config."""

    async def run(self) -> None:
        """The loop."""


class Supervisor:
    """Runs actors and decides what their crashes mean."""

    def __init__(self, config: SupervisorConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics

    async def run(self, actor: Actor) -> None:
        """Run `actor` until it returns; restart it when it breaks."""
        crashes: deque[float] = deque()
        outages = 0
        while True:
            started = time.monotonic()
            try:
                await actor.run()
                return
            except Exception as error:
                broken = _root(error)
            if time.monotonic() - started > self._config.window_s:
                outages = 0
            if isinstance(broken, AssertionError):
                _log.critical("%s hit a bug", actor.name, exc_info=broken)
                raise broken
            if isinstance(broken, ConfigError | CrashLoop):
                raise broken  # No restart mends a setting, nor a budget spent on a thread of ours.
            if isinstance(broken, StoreUnavailable):
                outages += 1
                _log.warning("%s: %s", actor.name, broken)
            else:
                self._note_crash(actor, broken, crashes)
            self._metrics.actors[actor.name].restarts.inc()
            await anyio.sleep(self._delay_s(outages or len(crashes)))

    def _note_crash(self, actor: Actor, error: Exception, crashes: deque[float]) -> None:
        now = time.monotonic()
        crashes.append(now)
        while crashes[0] < now - self._config.window_s:
            crashes.popleft()
        _log.error("%s crashed", actor.name, exc_info=error)
        if len(crashes) > self._config.restarts_max:
            raise CrashLoop(
                f"{actor.name} crashed {len(crashes)} times within {self._config.window_s:g} s;"
                f" last: {type(error).__name__}: {error}"
            ) from error

    def _delay_s(self, failures: int) -> float:
        delay: float = self._config.backoff_s * 2 ** min(failures - 1, 10)
        # Jittered, so that a fleet does not come back in step.
        return min(delay, self._config.backoff_max_s) * random.uniform(0.5, 1.0)


def _root(error: Exception) -> Exception:
    """The error that matters: a bug in a group before anything else in it."""
    if not isinstance(error, ExceptionGroup):
        return error
    leaves = [_root(one) for one in error.exceptions]
    bugs = [one for one in leaves if isinstance(one, AssertionError)]
    return (bugs or leaves)[0]
