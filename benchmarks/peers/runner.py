"""Rounds: every system in turn, then every system again, so that noise hits all alike.

Each round begins with another system, so that none is always the first. A peer that cannot be
installed or measured is left out from then on, and the report says why. A failure of ours ends
the run.
"""

from collections.abc import Sequence

import asyncpg
import msgspec

from benchmarks.peers.catalogue import OURS, PEERS, Peer
from benchmarks.peers.child import PeerFailed
from benchmarks.peers.environments import Environment, prepare
from benchmarks.peers.tables import Measured, report
from benchmarks.peers.workloads import drain, latency
from benchmarks.report import Report
from benchmarks.server import Server
from benchmarks.steps import Steps


class Size(msgspec.Struct, frozen=True):
    """How much is measured."""

    rounds: int
    jobs_divisor: int
    latency_turns: int
    """In each round. Many short ones: a disk that stalls for some seconds hits more than one."""
    latency_jobs: int
    """In each turn."""

    @property
    def steps_in_round(self) -> int:
        """Drain, pinned drain, and the turns of latency."""
        return 2 + self.latency_turns


FULL = Size(rounds=3, jobs_divisor=1, latency_turns=8, latency_jobs=100)
QUICK = Size(rounds=1, jobs_divisor=5, latency_turns=1, latency_jobs=50)


class Contender(msgspec.Struct):
    """A system in the race: what it gave so far, and where it runs while it is able to."""

    peer: Peer
    measured: Measured
    environment: Environment | None = None


async def measure(
    server: Server, steps: Steps, *, quick: bool, only: Sequence[str] | None = None
) -> Report:
    """Run the benchmark, of all peers or `only` those named."""
    size = QUICK if quick else FULL
    peers = _chosen(only)
    steps.start(len(peers) * (1 + size.rounds * size.steps_in_round), "installing")
    contenders = []
    for peer in peers:
        contenders.append(await _contender(peer, size))
        steps.step(f"{peer.name} is installed")
    for number in range(size.rounds):
        first = number * len(contenders) // size.rounds
        in_turn = contenders[first:] + contenders[:first]
        for contender in in_turn:
            await _drain(server, steps, contender)
        for _ in range(size.latency_turns):
            for contender in in_turn:
                await _latency(server, steps, contender, size.latency_jobs)
    ours, *others = (contender.measured for contender in contenders)
    return report(ours, others)


def _chosen(only: Sequence[str] | None) -> list[Peer]:
    names = {peer.name for peer in PEERS}
    if only is not None and not set(only) <= names:
        raise ValueError(f"only: {', '.join(only)}: known are {', '.join(sorted(names))}")
    return [OURS, *(peer for peer in PEERS if only is None or peer.name in only)]


async def _contender(peer: Peer, size: Size) -> Contender:
    contender = Contender(peer, Measured(name=peer.name, jobs=peer.jobs // size.jobs_divisor))
    try:
        contender.environment = await prepare(peer)
        contender.measured.version = contender.environment.version
    except PeerFailed as failure:
        contender.measured.failure = str(failure)
    return contender


async def _drain(server: Server, steps: Steps, contender: Contender) -> None:
    """Drain twice, without and with an old snapshot."""
    measured = contender.measured
    for is_pinned, drained in ((False, measured.drained), (True, measured.pinned)):
        steps.step(f"{measured.name}: {'pinned' if is_pinned else 'drain'}")
        if contender.environment is None:
            continue
        try:
            drained.append(
                await drain(
                    server,
                    contender.environment,
                    contender.peer,
                    measured.jobs,
                    is_pinned=is_pinned,
                )
            )
        except (PeerFailed, asyncpg.PostgresError) as failure:
            _leave_out(contender, failure)


async def _latency(server: Server, steps: Steps, contender: Contender, jobs: int) -> None:
    steps.step(f"{contender.measured.name}: latency")
    if contender.environment is None:
        return
    try:
        milliseconds = await latency(server, contender.environment, jobs)
        contender.measured.latencies_ms.extend(milliseconds)
    except (PeerFailed, asyncpg.PostgresError) as failure:
        _leave_out(contender, failure)


def _leave_out(contender: Contender, failure: Exception) -> None:
    if contender.peer is OURS:
        raise failure
    contender.environment = None
    contender.measured.failure = str(failure)
