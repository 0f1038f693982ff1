"""An adapter at work: a process group of its own that answers in lines of JSON.

It is killed with everything it started when its turn is over, however that ends: nothing of a
peer's may run while the next one is measured.
"""

import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import IO

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream

STDERR_TAIL_CHARS = 600
_LINE_MAX = 1 << 20  # A thousand latencies are twenty kilobytes.


class PeerFailed(Exception):
    """A peer could not be installed, started or measured; the message says why."""


class Child:
    """A running adapter."""

    def __init__(self, process: Process, output: ByteReceiveStream, errors: IO[bytes]) -> None:
        self._process = process
        self._output = BufferedByteReceiveStream(output)
        self._errors = errors

    @property
    def has_ended(self) -> bool:
        """Whether it stopped by itself."""
        return self._process.returncode is not None

    async def answer(self, deadline_s: float) -> dict[str, object]:
        """The next line it prints, decoded."""
        try:
            with anyio.fail_after(deadline_s):
                line = await self._output.receive_until(b"\n", _LINE_MAX)
        except TimeoutError:
            raise PeerFailed(f"no answer within {deadline_s:g} s{self._tail()}") from None
        except (anyio.EndOfStream, anyio.IncompleteRead):
            code = await self._process.wait()
            raise PeerFailed(f"ended with code {code}{self._tail()}") from None
        try:
            answered: dict[str, object] = json.loads(line)
        except ValueError:
            raise PeerFailed(f"answered {line[:STDERR_TAIL_CHARS]!r}{self._tail()}") from None
        return answered

    def _tail(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return f": {text[-STDERR_TAIL_CHARS:]}" if text else ""


@asynccontextmanager
async def running(command: Sequence[str], folder: Path) -> AsyncIterator[Child]:
    """Start `command` in `folder`, in a session of its own; kill its group at the end."""
    with tempfile.TemporaryFile() as errors:
        process = await anyio.open_process(
            command, stdin=PIPE, stdout=PIPE, stderr=errors, cwd=folder, start_new_session=True
        )
        try:
            assert process.stdout is not None
            yield Child(process, process.stdout, errors)
        finally:
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.aclose()
