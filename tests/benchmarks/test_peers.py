"""The peers are measured alike, pinned exactly, and never left out in silence."""

import json
import re
import sys
from pathlib import Path

import psutil
import pytest
from rich.progress import Progress

from benchmarks.peers import environments, runner
from benchmarks.peers.catalogue import OURS, PEERS, Peer
from benchmarks.peers.child import PeerFailed, running
from benchmarks.peers.environments import ADAPTERS, NPM, REQUIREMENTS, prepare
from benchmarks.peers.runner import Size, measure
from benchmarks.peers.tables import Measured, report
from benchmarks.peers.workloads import Drained
from benchmarks.server import Server
from benchmarks.steps import Steps
from tests.eventually import eventually

NPM_PEER = next(peer for peer in PEERS if peer.source == "npm")


@pytest.fixture
def no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without npm, and without what was installed earlier."""
    monkeypatch.setattr(environments, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))


def name(peer: Peer) -> str:
    return peer.name


def python(tmp_path: Path, code: str) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    return [sys.executable, str(script)]


def is_over(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("peer", [OURS, *PEERS], ids=name)
def test_a_peer_has_an_adapter(peer: Peer) -> None:
    assert (ADAPTERS / peer.adapter).is_file()


@pytest.mark.parametrize("peer", [one for one in PEERS if one.source == "pypi"], ids=name)
def test_what_comes_from_pypi_is_pinned_with_hashes_and_without_an_address(peer: Peer) -> None:
    pins = (REQUIREMENTS / f"{peer.name}.txt").read_text(encoding="utf-8")
    assert re.search(rf"^{peer.name}==\S+ \\$", pins, re.MULTILINE)
    packages = re.findall(r"^\S+==.*$", pins, re.MULTILINE)
    assert all(one.endswith("\\") for one in packages)  # A hash follows.
    assert "://" not in pins


@pytest.mark.parametrize("peer", [one for one in PEERS if one.source == "npm"], ids=name)
def test_what_comes_from_npm_is_pinned_with_hashes_and_without_an_address(peer: Peer) -> None:
    description = json.loads((NPM / peer.name / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((NPM / peer.name / "package-lock.json").read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d+\.\d+\.\d+", description["dependencies"][peer.name])
    root = lock["packages"].pop("")
    assert root["dependencies"] == description["dependencies"]
    assert all("integrity" in one and "resolved" not in one for one in lock["packages"].values())


async def test_a_child_answers_in_lines(tmp_path: Path) -> None:
    async with running(python(tmp_path, "print('{\"n\": 1}')"), tmp_path) as child:
        assert await child.answer(10) == {"n": 1}


async def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    async with running(python(tmp_path, "raise SystemExit('no luck')"), tmp_path) as child:
        with pytest.raises(PeerFailed, match="ended with code 1: no luck"):
            await child.answer(10)


async def test_a_child_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async with running(python(tmp_path, "input()"), tmp_path) as child:
        with pytest.raises(PeerFailed, match=r"no answer within 0\.01 s"):
            await child.answer(0.01)


async def test_a_child_is_killed_with_all_it_started(tmp_path: Path) -> None:
    code = (
        "import json, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(json.dumps({'pid': child.pid}), flush=True)\n"
        "child.wait()\n"
    )
    async with running(python(tmp_path, code), tmp_path) as child:
        pid = (await child.answer(10))["pid"]
        assert isinstance(pid, int)
        grandchild = psutil.Process(pid)
    await eventually(lambda: is_over(grandchild))


async def test_a_peer_without_its_program_is_named(no_npm: None) -> None:
    with pytest.raises(PeerFailed, match="npm is not on the path"):
        await prepare(NPM_PEER)


def test_ratios_are_taken_within_a_round() -> None:
    ours = Measured(name="ours", jobs=10, drained=[Drained(8.0, 30.0), Drained(8.0, 10.0)])
    peer = Measured(name="a-peer", jobs=10, drained=[Drained(4.0, 10.0), Drained(4.0, 5.0)])
    made = report(ours, [peer])
    assert made.figures == {"drain_ratio_to_a_peer": 2.5, "enqueue_ratio_to_a_peer": 2.0}
    assert [row["ours ÷ it"] for row in made.rows] == [None, 2.5]


def test_a_peer_that_was_left_out_stands_in_the_table_with_its_reason() -> None:
    ours = Measured(name="ours", jobs=10, drained=[Drained(8.0, 30.0)])
    made = report(ours, [Measured(name="lost", jobs=10, failure="not installed")])
    assert made.rows[1]["note"] == "not installed"
    assert made.figures == {}
    assert made.charts[0].series[0].x == ["ours"]


@pytest.mark.slow
async def test_we_are_measured_and_who_cannot_be_is_left_out(
    empty_dsn: str, no_npm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Size(rounds=1, jobs_divisor=500, latency_turns=2, latency_jobs=5)
    monkeypatch.setattr(runner, "QUICK", size)
    server = Server(re.sub(r"/[^/?]+\?", "/postgres?", empty_dsn), 0)
    steps = Steps(Progress(disable=True))
    made = await measure(server, steps, quick=True, only=[NPM_PEER.name])
    ours, left_out = made.rows
    assert all(ours[figure] for figure in ("drain jobs/s", "pinned ÷ drain", "p99 ms"))
    assert left_out["note"] == "npm is not on the path"
