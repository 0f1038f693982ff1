"""The app that worker processes of benchmarks run: handlers that do nothing, wait, hang, tell."""

import time

import anyio

from chronos_runtime import Chronos, Job

NOOP = "noop"
WAITING = "waiting"
HANGING = "hanging"
TELLING = "telling"

WAIT_S = 0.005
"""A quick call to something outside: a cache, a query, another service."""

_HANG_S = 3600.0

app = Chronos()


@app.handler(NOOP)
async def noop(job: Job, payload: dict[str, int]) -> None:
    """Nothing: what is left is the queue's own cost."""


@app.handler(WAITING)
async def waiting(job: Job, payload: dict[str, int]) -> None:
    """Wait as real handlers do, without any CPU."""
    await anyio.sleep(WAIT_S)


@app.handler(HANGING)
async def hanging(job: Job, payload: dict[str, int]) -> None:
    """Run for as long as any benchmark does: until killed."""
    await anyio.sleep(_HANG_S)


@app.handler(TELLING)
async def telling(job: Job, payload: object) -> float:
    """The seconds since the occurrence it runs for; one clock for all processes of a machine."""
    assert job.occurrence is not None
    return time.time() - job.occurrence.timestamp()
