"""Worker processes of a benchmark: `chronos-runtime run`, started, looked at, ended and reaped.

    async with running_worker(APP, dsn) as worker:
        await worker.is_up()

A worker runs at the defaults; `settings` by dotted key, `{"executor.concurrency": 20}`, change
some. None outlives its block: it is asked to drain first, and killed if it does not.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import psutil
from prometheus_client.parser import text_string_to_metric_families

APP = "benchmarks.apps:app"

_ROOT = Path(__file__).parents[1]
_LOOK_S = 0.02
_UP_S = 60.0  # Starting takes a second; eight at once on two busy cores take several.
_DRAIN_S = 5.0  # Nothing measured waits for a drain, so handlers that hang get no longer.


class WorkerProcess:
    """One `chronos-runtime run`, which may be the parent of a family; its log is a file."""

    def __init__(self, process: subprocess.Popen[bytes], processes: int, log: Path) -> None:
        self._process = process
        self._processes = processes
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id: of the parent, if it is one."""
        return self._process.pid

    @property
    def child_pids(self) -> list[int]:
        """The processes of a family, its parent left out."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it has logged so far, its children too."""
        whole = self._log.read_text(encoding="utf-8").rpartition("\n")[0]
        return [msgspec.json.decode(line) for line in whole.splitlines() if line.startswith("{")]

    async def is_up(self) -> None:
        """Wait until all its processes have claimed, were it in vain, and hear notifications."""
        with anyio.fail_after(_UP_S):
            while not await self._has_claimed():
                assert self.is_alive, self._log.read_text(encoding="utf-8")
                await anyio.sleep(_LOOK_S)

    async def metrics(self) -> Counter[str]:
        """A scrape of all its processes: every sample by name, summed over its labels."""
        scrapes = [await _scrape(address) for address in self._addresses()]
        return sum(scrapes, Counter[str]())

    async def stop(self) -> None:
        """Ask it to drain and wait for its end; kill it if that does not come."""
        if self.is_alive:
            self._process.send_signal(signal.SIGTERM)
        with anyio.move_on_after(2 * _DRAIN_S):
            while self.is_alive:
                await anyio.sleep(_LOOK_S)
        self.kill()

    def kill(self) -> None:
        """kill -9, a family's children too, and reap the zombie the kernel keeps."""
        if self.is_alive:
            # The children first: without their parent they would drain, at their leisure.
            for pid in [*self.child_pids, self.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _addresses(self) -> list[str]:
        """Where each of its processes serves metrics; of one that was replaced, the new place."""
        said = {
            line.get("process", 0): str(line["message"]).split()[-1]
            for line in self.log
            if str(line["message"]).startswith("metrics at")
        }
        return list(said.values())

    async def _has_claimed(self) -> bool:
        addresses = self._addresses()
        if len(addresses) < self._processes:
            return False
        try:
            scrapes = [await _scrape(address) for address in addresses]
        except httpx.TransportError:
            return False  # Just ended; the one in its place has not said its address yet.
        return all(
            scrape["chronos_claimer_pass_seconds_count"] and scrape["chronos_listener_up_state"]
            for scrape in scrapes
        )


@asynccontextmanager
async def running_worker(
    app: str, dsn: str, *, settings: Mapping[str, object] | None = None, processes: int = 1
) -> AsyncIterator[WorkerProcess]:
    """A worker process for the length of a block; a family of them with more `processes`."""
    with tempfile.TemporaryDirectory(prefix="chronos-worker-") as folder:
        log = Path(folder) / "worker.log"
        command = [sys.executable, "-m", "chronos_runtime.cli", "run", app, "--log-format=json"]
        process = _start(
            [*command, f"--processes={processes}"], log, _environment(dsn, settings or {})
        )
        worker = WorkerProcess(process, processes, log)
        try:
            yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await worker.stop()


def _start(command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=log.parent,  # Where nobody's chronos.toml lies.
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def _environment(dsn: str, settings: Mapping[str, object]) -> dict[str, str]:
    """Our environment without anybody's settings, and the settings of this worker."""
    given = {"exporter.port": 0, "executor.drain_s": _DRAIN_S} | dict(settings)
    return (
        {name: value for name, value in os.environ.items() if not name.startswith("CHRONOS_")}
        | {f"CHRONOS_{key.upper().replace('.', '__')}": str(one) for key, one in given.items()}
        | {"CHRONOS_DSN": dsn, "PYTHONPATH": str(_ROOT)}
    )


async def _scrape(address: str) -> Counter[str]:
    async with httpx.AsyncClient(trust_env=False, timeout=_UP_S) as http:
        text = (await http.get(address)).text
    samples: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name] += sample.value  # type: ignore[assignment]
    return samples
