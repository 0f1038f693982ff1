"""The systems that are compared, and what the benchmark must know of each."""

from typing import Literal

import msgspec


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A system and where its jobs lie.

    `unfinished` follows `from` in a query and stands for the jobs whose completion is not yet
    committed. Slow systems drain fewer jobs, or the run would take an hour.
    """

    name: str
    source: Literal["here", "pypi", "npm"]
    adapter: str
    table: str
    unfinished: str
    jobs: int


OURS = Peer(
    name="chronos-runtime",
    source="here",
    adapter="chronos_peer.py",
    table="chronos.jobs",
    unfinished="chronos.jobs",
    jobs=50_000,
)

PEERS = [
    Peer(
        name="graphile-worker",
        source="npm",
        adapter="graphile_worker.mjs",
        table="graphile_worker._private_jobs",
        unfinished="graphile_worker._private_jobs",
        jobs=50_000,
    ),
    Peer(
        name="pg-boss",
        source="npm",
        adapter="pg_boss.mjs",
        table="pgboss.job",
        unfinished="pgboss.job where state < 'completed'",
        jobs=50_000,
    ),
    Peer(
        name="pgqueuer",
        source="pypi",
        adapter="pgqueuer_peer.py",
        table="pgqueuer",
        unfinished="pgqueuer",
        jobs=20_000,
    ),
    Peer(
        name="chancy",
        source="pypi",
        adapter="chancy_peer.py",
        table="chancy_jobs",
        unfinished="chancy_jobs where state <> 'succeeded'",
        jobs=10_000,
    ),
    Peer(
        name="saq",
        source="pypi",
        adapter="saq_peer.py",
        table="saq_jobs",
        unfinished="saq_jobs",
        jobs=2_000,
    ),
    Peer(
        name="dbos",
        source="pypi",
        adapter="dbos_peer.py",
        table="dbos.workflow_status",
        unfinished="dbos.workflow_status where status <> 'SUCCESS'",
        jobs=2_000,
    ),
    Peer(
        name="procrastinate",
        source="pypi",
        adapter="procrastinate_peer.py",
        table="procrastinate_jobs",
        unfinished="procrastinate_jobs where status <> 'succeeded'",
        jobs=2_000,
    ),
]
