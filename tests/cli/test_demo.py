"""The demo ends by itself, its sum is right, and it leaves nothing behind."""

import re
import signal
from pathlib import Path

import pytest

from tests.cli.program import QUIET_S, running
from tests.eventually import eventually

pytestmark = pytest.mark.crash


def numbers(log: str) -> dict[str, int]:
    return {
        name: int(value.replace(",", ""))
        for name, value in re.findall(r"^ +(\w+) +([\d,]+)(?: |$)", log, re.MULTILINE)
    }


def leftovers(folder: Path) -> list[Path]:
    return list(folder.glob("chronos-demo-*"))


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_sum_of_the_demo_is_right(open_folder: Path, processes: int) -> None:
    arguments = ("demo", "--jobs", 500, "--processes", processes)
    extra = {"TMPDIR": str(open_folder)}
    with running(*arguments, folder=open_folder, extra=extra) as program:
        assert await program.ends() == 0, program.log
        found = numbers(program.log)
        assert found["enqueued"] == 500
        assert found["succeeded"] + found["dead"] == 500
        assert found["dead"] > 0
        assert found["retries"] > found["dead"]
        assert "nothing lost, nothing twice" in program.log
        assert re.search(r"metrics at http://127.0.0.1:\d+/metrics", program.log)
    assert leftovers(open_folder) == []


@pytest.mark.parametrize("arguments", [("--serve", "--jobs", 100), ("--jobs", 1_000_000)])
async def test_ctrl_c_ends_a_demo_cleanly(open_folder: Path, arguments: tuple[object, ...]) -> None:
    extra = {"TMPDIR": str(open_folder)}
    with running("demo", *arguments, folder=open_folder, extra=extra) as program:
        awaited = "Ctrl-C ends it" if "--serve" in arguments else "jobs/s"
        await eventually(lambda: awaited in program.log, QUIET_S)
        program.signal(signal.SIGINT)
        assert await program.ends() == 0
        assert "Traceback" not in program.log
    assert leftovers(open_folder) == []
