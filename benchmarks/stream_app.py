"""The app of a stream of jobs: most do nothing, some tell how long they waited, some fail once.

A module of its own, so that a worker process loads nothing that a user's would not.
"""

import time

from chronos_runtime import Chronos, Fixed, Job

APP = "benchmarks.stream_app:app"
NOOP = "noop"
SAMPLED = "sampled"
FLAKY = "flaky"

_RETRY_S = 0.5  # The ladder of 30 s and more would outlast a short run.

app = Chronos()


@app.handler(NOOP)
async def noop(job: Job, payload: dict[str, float]) -> None:
    """Nothing: what is left is the queue's own cost."""


@app.handler(SAMPLED)
async def sampled(job: Job, payload: dict[str, float]) -> float:
    """The seconds since the job was due to be sent; one clock for all processes of a machine."""
    return time.monotonic() - payload["due_s"]


@app.handler(FLAKY, backoff=Fixed(delay_s=_RETRY_S))
async def flaky(job: Job, payload: dict[str, float]) -> None:
    """Fail at first."""
    if job.attempt == 1:
        raise ConnectionError("the sample service is down; try again")
