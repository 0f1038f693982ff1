"""A family keeps its workers alive, gives back what the dead held, and leaves nobody behind."""

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from chronos_runtime.client import Client
from chronos_runtime.config import SupervisorConfig
from chronos_runtime.errors import ChronosError, CrashLoop
from chronos_runtime.family import Family
from chronos_runtime.ids import Worker
from tests.cli.program import QUIET_S, Program, is_alive, is_held, running
from tests.eventually import eventually

pytestmark = pytest.mark.crash

SOON = SupervisorConfig(restarts_max=2, backoff_s=0.01, backoff_max_s=0.01)
RECOVERY_S = 10.0  # A third of a lease: nobody waited for it to lapse.


@pytest.fixture
async def client(dsn: str, anyio_backend: object) -> AsyncIterator[Client]:
    async with Client.connect(dsn) as client:
        yield client


def arguments(dsn: str, *more: object) -> tuple[object, ...]:
    return ("run", "shop:app", "--dsn", dsn, "--processes", 2, "--metrics-port", 0, *more)


async def children_of(program: Program) -> list[int]:
    """The process ids of both children, once both are up."""
    await eventually(lambda: len(program.said("worker up")) >= 2, QUIET_S)
    return list(started(program).values())


def started(program: Program) -> dict[str, int]:
    """Worker → process id of every child there ever was."""
    return {line["worker"]: line["child_pid"] for line in program.lines if "child_pid" in line}


async def all_gone(pids: list[int]) -> None:
    await eventually(lambda: not any(is_alive(pid) for pid in pids), QUIET_S)


async def test_a_killed_child_is_replaced_and_its_job_runs_again_at_once(
    dsn: str, client: Client, folder: Path
) -> None:
    gate = folder / "gate"
    with running(*arguments(dsn), folder=folder) as program:
        await children_of(program)
        job = await client.enqueue("hold", str(gate))
        await is_held(gate)
        dead = str((await client.get(job.id)).lease_token)[:18]
        (up,) = [
            line
            for line in program.said(" up")
            if line.get("worker") == dead and "child_pid" in line
        ]
        os.kill(up["child_pid"], signal.SIGKILL)
        await is_held(gate, attempt=2, deadline_s=RECOVERY_S)
        assert str((await client.get(job.id)).lease_token)[:18] != dead
        await program.says("was killed by SIGKILL; the next one in")
        assert (await program.says("released 1 leases"))["worker"] == dead
        await eventually(lambda: len(program.said("worker up")) == 3, QUIET_S)
        assert len(started(program)) == 3
        gate.touch()
        program.signal(signal.SIGTERM)
        assert await program.ends() == 0
        await all_gone(list(started(program).values()))
    assert (await client.get(job.id)).result == 2


async def test_sigterm_drains_every_child(dsn: str, client: Client, folder: Path) -> None:
    gate = folder / "gate"
    with running(*arguments(dsn), folder=folder) as program:
        children = await children_of(program)
        job = await client.enqueue("hold", str(gate))
        await is_held(gate)
        program.signal(signal.SIGTERM)
        await program.says("let go by the parent: draining 1 running jobs")
        gate.touch()
        assert await program.ends() == 0
        assert program.said("all 2 processes drained")
        await all_gone(children)
    assert (await client.get(job.id)).state == "succeeded"


async def test_children_signalled_along_with_their_parent_still_drain(
    dsn: str, client: Client, folder: Path
) -> None:
    """As Ctrl-C does to a whole terminal, and a service manager to a whole service."""
    gate = folder / "gate"
    with running(*arguments(dsn), folder=folder) as program:
        children = await children_of(program)
        job = await client.enqueue("hold", str(gate))
        await is_held(gate)
        for pid in [*children, program.pid, *children]:
            os.kill(pid, signal.SIGINT)
        await program.says("draining 1 running jobs")
        gate.touch()
        assert await program.ends() == 0
    assert (await client.get(job.id)).result == 1


async def test_children_drain_when_their_parent_is_killed(
    dsn: str, client: Client, folder: Path
) -> None:
    gate = folder / "gate"
    with running(*arguments(dsn), folder=folder) as program:
        children = await children_of(program)
        job = await client.enqueue("hold", str(gate))
        await is_held(gate)
        program.signal(signal.SIGKILL)
        await eventually(lambda: len(program.said("let go by the parent")) == 2, QUIET_S)
        gate.touch()
        await all_gone(children)
    found = await client.get(job.id)
    assert (found.state, found.result) == ("succeeded", 1)


async def test_a_second_signal_takes_the_children_along(
    dsn: str, client: Client, folder: Path
) -> None:
    with running(*arguments(dsn), folder=folder) as program:
        children = await children_of(program)
        await client.enqueue("hold", str(folder / "never"))
        await is_held(folder / "never")
        program.signal(signal.SIGTERM)
        await program.says("2 processes drain")
        program.signal(signal.SIGTERM)
        assert await program.ends() == 130
        await all_gone(children)


async def test_each_child_serves_metrics_on_its_own_port(dsn: str, folder: Path) -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(*arguments(dsn, "--metrics-port", port), folder=folder) as program:
        await eventually(lambda: len(program.said("metrics at")) == 2, QUIET_S)
        served = {line["process"]: line["message"] for line in program.said("metrics at")}
        assert f":{port}/" in served[0]
        assert f":{port + 1}/" in served[1]


async def test_children_that_cannot_live_end_the_family_with_6(dsn: str, folder: Path) -> None:
    program_text = (folder / "shop.py").read_text(encoding="utf-8")
    mortal = "import os, sys\nif 'child' in sys.argv: os._exit(7)\n" + program_text
    (folder / "shop.py").write_text(mortal, encoding="utf-8")
    extra = {"CHRONOS_SUPERVISOR__RESTARTS_MAX": "2", "CHRONOS_SUPERVISOR__BACKOFF_S": "0.01"}
    with running(*arguments(dsn), folder=folder, extra=extra) as program:
        assert await program.ends() == 6
        assert "ended 3 times within 60 s; the last one ended with code 7" in program.log


async def test_a_dsn_reaches_the_children_on_no_command_line_and_in_no_environment(
    dsn: str, folder: Path
) -> None:
    (folder / "chronos.toml").write_text(f"[database]\ndsn = '{dsn}'", encoding="utf-8")
    with running(
        "run", "shop:app", "--processes", 2, "--metrics-port", 0, folder=folder
    ) as program:
        for pid in await children_of(program):
            assert dsn not in visible(pid)


async def test_nobody_but_a_parent_starts_a_child(folder: Path) -> None:
    with running("child", "shop:app", folder=folder) as program:
        assert await program.ends() == 1
        assert program.log == "error: no orders: only a parent process starts a child\n"


def visible(pid: int) -> str:
    """What `ps` can show of a process."""
    return "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "environ"))


class Watched:
    """A family of stand-ins, and what became of them."""

    def __init__(self, program: str, *, processes: int = 1, patience_s: float = QUIET_S) -> None:
        self.orders: list[tuple[int, Worker]] = []
        self.released: list[Worker] = []
        self.stop = anyio.Event()
        self.family = Family(
            SOON,
            [sys.executable, "-c", program],
            processes=processes,
            orders=self._note_orders,
            release=self._note_release,
            patience_s=patience_s,
        )

    def _note_orders(self, index: int, worker: Worker) -> bytes:
        self.orders.append((index, worker))
        return b"x" * 1_000_000  # More than a pipe holds: also a child that reads nothing gets it.

    async def _note_release(self, worker: Worker) -> None:
        self.released.append(worker)


async def test_a_dead_child_is_released_by_its_own_identity_until_the_budget_ends() -> None:
    watched = Watched("raise SystemExit(3)")
    with pytest.raises(
        CrashLoop, match="ended 3 times within 60 s; the last one ended with code 3"
    ):
        await watched.family.run(watched.stop)
    workers = [worker for _, worker in watched.orders]
    assert len({worker.id for worker in workers}) == 3
    assert watched.released == workers


async def test_a_child_that_ends_by_itself_is_replaced_though_nothing_is_released() -> None:
    watched = Watched("import sys; sys.stdin.buffer.readline()")
    with pytest.raises(CrashLoop, match="the last one ended with code 0"):
        await watched.family.run(watched.stop)
    assert watched.released == []


async def test_a_child_lives_for_as_long_as_the_pipe() -> None:
    watched = Watched("import sys; sys.stdin.buffer.read()", processes=3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.family.run, watched.stop)
        await eventually(lambda: len(watched.orders) == 3, QUIET_S)
        watched.stop.set()
    assert len(watched.orders) == 3
    assert watched.released == []


async def test_a_child_that_does_not_drain_is_killed_and_released() -> None:
    stubborn = "import sys, time; sys.stdin.buffer.readline(); time.sleep(600)"
    watched = Watched(stubborn, patience_s=0.5)

    async def stop_once_up() -> None:
        await eventually(lambda: watched.orders, QUIET_S)
        watched.stop.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_once_up)
        with pytest.raises(ChronosError, match="process 0 was killed by SIGKILL while it drained"):
            await watched.family.run(watched.stop)
    assert len(watched.released) == 1
