"""The sample jobs of `chronos-runtime demo`: most are quick, some are slow, some fail."""

import anyio
import msgspec

from chronos_runtime.app import Chronos
from chronos_runtime.backoff import Fixed
from chronos_runtime.job import Job

PATH = "chronos_runtime.cli.demo_app:app"
TOPIC = "demo"

_SOON = Fixed(delay_s=0.2)  # The ladder of 30 s and more would make a long demo.

app = Chronos()


class Order(msgspec.Struct):
    """What the sample jobs are about."""

    number: int


@app.handler("fast", topic=TOPIC)
async def fast(_job: Job, _order: Order) -> None:
    """Does nothing, as quickly as it can."""


@app.handler("slow", topic=TOPIC)
async def slow(_: Job, order: Order) -> int:
    """Waits, as for an answer over the network."""
    await anyio.sleep(0.02)
    return order.number


@app.handler("flaky", topic=TOPIC, backoff=_SOON)
async def flaky(job: Job, order: Order) -> str:
    """Fails twice, then succeeds."""
    if job.attempt <= 2:
        raise ConnectionError("the sample service is down; try again")
    return f"order {order.number} took {job.attempt} attempts"


@app.handler("doomed", topic=TOPIC, max_attempts=2, backoff=_SOON)
async def doomed(_: Job, order: Order) -> None:
    """Always fails, and ends among the dead."""
    raise ValueError(f"order {order.number} cannot be delivered")


def kind_of(number: int) -> str:
    """Of a thousand, about 3 are doomed, 7 flaky and 20 slow, spread evenly.

    >>> [kind_of(number) for number in range(5)]
    ['doomed', 'flaky', 'slow', 'fast', 'fast']
    """
    if number < 3:  # The smallest demo has one of each.
        return ("doomed", "flaky", "slow")[number]
    place = number * 617 % 1_000  # Coprime, so every thousand visits every place once.
    if place < 3:
        return "doomed"
    if place < 10:
        return "flaky"
    return "slow" if place < 30 else "fast"
