"""What the tests of processors share."""

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import pytest

from chronos_runtime.config import Config
from chronos_runtime.ids import new_job_id
from chronos_runtime.job import Job
from chronos_runtime.metrics import Metrics
from chronos_runtime.processor import Task
from chronos_runtime.processors.wake import Wake
from chronos_runtime.processors.wake_payload import WAKE_KIND, WAKE_TOPIC
from tests.processors.receiver import Receiver

MakeWake = Callable[..., Wake]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver without TLS."""
    async with Receiver().serve() as receiver:
        yield receiver


@pytest.fixture
async def make_wake() -> AsyncIterator[MakeWake]:
    """Makes wakes of `[wake]` settings, closed afterwards."""
    made: list[Wake] = []

    def make(settings: dict[str, Any], **options: Any) -> Wake:
        config = Config.of({"wake": settings}).wake
        made.append(Wake(config, options.pop("metrics", None) or Metrics(), **options))
        return made[-1]

    yield make
    for wake in made:
        await wake.aclose()


def make_job(attempt: int = 1, id: UUID | None = None, seq: Any = itertools.count()) -> Job:  # noqa: B008
    """A claimed wake."""
    return Job(
        id or new_job_id(),
        next(seq),
        WAKE_TOPIC,
        WAKE_KIND,
        5,
        attempt,
        5,
        None,
        b"",
        0.0,
        None,
        None,
        None,
        UUID(int=1),
    )


def make_task(attempt: int = 1, id: UUID | None = None) -> Task:
    """A task as a processor gets it."""
    return Task.of(make_job(attempt, id))
