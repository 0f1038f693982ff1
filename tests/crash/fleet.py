"""Worker processes, each started, signalled and ended by its own process id."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.crash.checker import DEADLINE_S, LOOK_S
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]

LEASE_S = 3.0

# Short, so that a test that lets a lease lapse takes seconds. Three beats, as production has.
SECTIONS: dict[str, dict[str, Any]] = {
    "database": {"statement_s": 10.0},
    "heartbeater": {"lease_s": LEASE_S, "interval_s": LEASE_S / 3},
    "watchdog": {"interval_s": 0.5},
    "exporter": {"port": 0},
}

# For tests that promise "no second run": no stall of a busy machine may look like a death.
PATIENT = {"lease_s": 60.0, "interval_s": 5.0}


class WorkerProcess:
    """One running worker."""

    def __init__(
        self, arguments: list[str], log_path: Path, environment: Mapping[str, str]
    ) -> None:
        self.log_path = log_path
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.worker", *arguments],
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9, and reap the zombie the kernel keeps."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def exit_code(self) -> int:
        """Wait for the end."""
        await eventually(lambda: not self.is_alive, DEADLINE_S)
        assert self._process.returncode is not None
        return self._process.returncode

    def log(self) -> list[dict[str, Any]]:
        """What it has logged; a traceback of the interpreter counts as a line of its own."""
        lines: list[dict[str, Any]] = []
        for line in self.log_path.read_text(errors="replace").splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                lines.append({"message": line, "logger": "", "level": ""})
        return lines

    def said(self, message: str) -> bool:
        """Whether it has logged that message."""
        return any(line["message"] == message for line in self.log())

    async def is_up(self) -> str:
        """Wait until it has started; the address of its metrics."""

        def address() -> str:
            assert self.is_alive, self.log_path.read_text(errors="replace")
            said = (str(line["message"]) for line in self.log())
            return next((text.split()[-1] for text in said if text.startswith("metrics at")), "")

        return await eventually(address, DEADLINE_S)

    async def identity(self) -> str:
        """The front half of every lease token it issues."""
        await self.is_up()
        return next(str(line["worker"]) for line in self.log() if line["message"] == "up")

    async def metrics(self) -> Counter[str]:
        """A scrape: every sample by name, summed over its labels."""
        address = await self.is_up()
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as http:
            text = (await http.get(address)).text
        samples: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples[sample.name] += sample.value  # type: ignore[assignment]
        return samples

    async def wait_metric(self, name: str, is_so: Callable[[float], bool]) -> None:
        """Wait until a metric has such a value."""

        async def has_it() -> bool:
            return is_so((await self.metrics())[name])

        await eventually(has_it, DEADLINE_S, poll_s=LOOK_S)


class Fleet:
    """The workers of one test."""

    def __init__(self, dsn: str, evidence_dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.workers: list[WorkerProcess] = []
        self._evidence_dsn = evidence_dsn
        self._folder = folder

    def start(
        self,
        *,
        dsn: str | None = None,
        environment: Mapping[str, str] | None = None,
        **sections: dict[str, Any],
    ) -> WorkerProcess:
        """Start a worker; `sections` of its config overlay the ones above."""
        config = {
            name: SECTIONS.get(name, {}) | sections.get(name, {})
            for name in SECTIONS.keys() | sections.keys()
        }
        worker = WorkerProcess(
            [dsn or self.dsn, self._evidence_dsn, json.dumps(config)],
            self._folder / f"worker-{len(self.workers)}.log",
            environment or {},
        )
        self.workers.append(worker)
        return worker

    @property
    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.is_alive]

    def end(self) -> None:
        """End what still runs, also what is frozen."""
        for worker in self.alive:
            worker.kill()


class Gate:
    """A gate that handlers wait at, open for one attempt or for all; it outlives any outage."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self._path = folder / name

    @property
    def payload(self) -> dict[str, str]:
        return {"gate": str(self._path)}

    def open(self, attempt: int | None = None) -> None:
        suffix = "" if attempt is None else f".{attempt}"
        Path(f"{self._path}{suffix}").touch()
