"""SIGINT and SIGTERM: the first asks to stop, the second ends the process at once.

They are heard on a thread of their own, by way of the pipe Python's signal handlers write to:
neither the event loop nor the main thread may have a moment for them when a job blocks it, and
that is when somebody presses Ctrl-C a second time.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import NoReturn, Self

import anyio

from chronos_runtime.errors import EXIT_SECOND_SIGNAL

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Sets `stop` on the first signal, and calls `asked`, both on the event loop.

    On the second it calls `last_words`, on its own thread, and ends the process, whose leases
    are left to lapse. With `is_patient` a second signal is no different from the first.
    """

    def __init__(
        self,
        *,
        asked: Callable[[str], None] = lambda _: None,
        last_words: Callable[[], None] = lambda: None,
        is_patient: bool = False,
    ) -> None:
        self.stop = anyio.Event()
        self.asked = asked
        self.last_words = last_words
        self.is_patient = is_patient
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, _heard_elsewhere)
        threading.Thread(
            target=self._hear, args=(reading,), name="chronos-signals", daemon=True
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._before_fd)
        os.close(self._writing)  # The thread reads the end and goes.

    def ask(self, reason: str) -> None:
        """Ask to stop, for whatever reason; on the event loop."""
        if not self.stop.is_set():
            self.stop.set()
            self.asked(reason)

    def _hear(self, reading: int) -> None:
        is_asked = False
        with open(reading, "rb", buffering=0) as pipe:
            while heard := pipe.read(1):
                if heard[0] not in _SIGNALS:
                    continue
                if is_asked and not self.is_patient:
                    self._end_now()
                is_asked = True
                with suppress(RuntimeError):  # The loop has just ended, and the process will.
                    self._loop.call_soon_threadsafe(self.ask, signal.Signals(heard[0]).name)

    def _end_now(self) -> NoReturn:
        with suppress(OSError, RuntimeError, ValueError):
            self.last_words()
            os.write(2, b"second signal: stopped at once; leases will lapse\n")
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(EXIT_SECOND_SIGNAL)


def _heard_elsewhere(number: int, frame: FrameType | None) -> None:
    """Nothing to do here; that there is a handler makes Python write to the pipe."""
