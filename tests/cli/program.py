"""Running `chronos-runtime` as people do: as a program, or inside the test for its speed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from chronos_runtime.cli import main
from tests.eventually import eventually

COMMAND = [sys.executable, "-m", "chronos_runtime.cli"]
SOURCE = Path(__file__).parents[2] / "src"
QUIET_S = 30.0  # Ten times what anything here takes on a busy machine.


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


class Cli:
    """Runs commands in this very process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Ended:
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["chronos-runtime", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, out, err)


def environment(**extra: str) -> dict[str, str]:
    """A program's environment: ours, without settings of ours, and with this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHRONOS_")}
    return kept | {"PYTHONPATH": str(SOURCE)} | extra


class Program:
    """`chronos-runtime …` in a process of its own, its log in a file."""

    def __init__(
        self, *arguments: object, folder: Path, extra: Mapping[str, str] | None = None
    ) -> None:
        self._log = folder / "program.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *map(str, arguments)],
                cwd=folder,
                env=environment(**(extra or {})),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log, line by line."""
        whole = self.log.rpartition("\n")[0]
        return [msgspec.json.decode(line) for line in whole.splitlines() if line.startswith("{")]

    def said(self, message: str) -> list[dict[str, Any]]:
        """The lines whose message contains that."""
        return [line for line in self.lines if message in line["message"]]

    async def says(self, message: str) -> dict[str, Any]:
        """The first such line, once it is there."""

        def look() -> list[dict[str, Any]]:
            assert self.process.poll() is None or self.said(message), "it ended"
            return self.said(message)

        try:
            return (await eventually(look, QUIET_S))[0]
        except AssertionError as error:
            raise AssertionError(f"never said {message!r}: {error}\n{self.log}") from error

    async def ends(self) -> int:
        """Its exit code, once it has one."""
        await eventually(lambda: self.process.poll() is not None, QUIET_S)
        return int(self.process.returncode)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@contextmanager
def running(
    *arguments: object, folder: Path, extra: Mapping[str, str] | None = None
) -> Iterator[Program]:
    """A program that is dead after the block, whatever happened in it."""
    program = Program(*arguments, folder=folder, extra=extra)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()


async def is_held(gate: Path, *, attempt: int = 1, deadline_s: float = QUIET_S) -> None:
    """Return once the handler `hold` runs; a row says `running` a moment earlier."""
    await eventually(gate.with_name(f"{gate.name}.held-{attempt}").exists, deadline_s)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has buried does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
