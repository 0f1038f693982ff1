"""SIGINT and SIGTERM: the first asks to stop, the second ends the process at once.

The handlers are Python's own, not the event loop's: they also run while a job blocks the loop,
which is when somebody presses Ctrl-C a second time.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import NoReturn, Self

import anyio

from chronos_runtime.errors import EXIT_SECOND_SIGNAL

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Sets `stop` on the first signal; `asked` is then called on the event loop.

    On the second, `last_words` is called wherever the program stands and the process ends, its
    leases left to lapse. With `is_patient` a second signal is no different from the first.
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
        self._is_asked = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def ask(self, reason: str) -> None:
        """Ask to stop, for another reason than a signal; on the event loop."""
        if not self.stop.is_set():
            self.stop.set()
            self.asked(reason)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked and not self.is_patient:
            self._end_now()
        self._is_asked = True
        # Nothing else here: this may run in the middle of any line, also one that logs.
        self._loop.call_soon_threadsafe(self.ask, signal.Signals(number).name)

    def _end_now(self) -> NoReturn:
        with suppress(OSError, RuntimeError, ValueError):
            self.last_words()
            os.write(2, b"second signal: stopped at once; leases will lapse\n")
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(EXIT_SECOND_SIGNAL)
