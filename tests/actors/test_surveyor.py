"""The surveyor shows how much waits and for how long, in a bounded number of series."""

from typing import Any
from uuid import UUID

import pytest

from chronos_runtime.actors.surveyor import Surveyor
from chronos_runtime.config import SurveyorConfig
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import WorkerInfo
from chronos_runtime.store.memory import MemoryStore
from tests.actors.bench import on_both_loops, running
from tests.eventually import eventually
from tests.store.world import START_S, new_job

pytestmark = on_both_loops


class Field:
    """A surveyor on a clock that the test moves."""

    def __init__(self, **config: Any) -> None:
        self.now = START_S
        self.store = MemoryStore(clock=lambda: self.now)
        self.metrics = Metrics()
        self.surveyor = Surveyor(SurveyorConfig(**config), self.store, self.metrics)

    async def enqueue(self, count: int = 1, **changes: Any) -> list[UUID]:
        jobs = [new_job(**changes) for _ in range(count)]
        await self.store.enqueue_jobs(jobs)
        return [job.id for job in jobs]

    def series(self, what: str) -> dict[tuple[str, ...], float]:
        """All there is of one gauge, by its labels."""
        return {
            tuple(sample.labels.values()): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if family.name == f"chronos_surveyor_{what}"
        }


async def test_depth_and_age_are_shown_by_topic_and_state() -> None:
    field = Field()
    await field.enqueue(3, topic="mail")
    await field.enqueue(2, topic="mail", delay_s=10.0)
    field.now += 30.0
    await field.enqueue(1, topic="sms")
    await field.surveyor.survey_once()
    depths = field.series("depth_jobs")
    assert (depths["mail", "ready"], depths["mail", "scheduled"]) == (3, 2)
    assert (depths["sms", "ready"], depths["sms", "running"]) == (1, 0)
    oldest = field.series("oldest_seconds")
    assert (oldest["mail", "ready"], oldest["sms", "ready"]) == (30.0, 0.0)
    assert oldest["mail", "scheduled"] == 20.0  # So long overdue.


async def test_what_is_not_due_yet_is_not_overdue() -> None:
    field = Field()
    await field.enqueue(1, delay_s=3_600.0)
    await field.surveyor.survey_once()
    assert field.series("oldest_seconds")["default", "scheduled"] == 0.0


async def test_a_topic_that_drained_keeps_no_value() -> None:
    field = Field()
    ids = await field.enqueue(3, topic="mail")
    await field.enqueue(1, topic="sms")
    await field.surveyor.survey_once()
    await field.store.cancel_jobs(ids)
    await field.surveyor.survey_once()
    assert {topic for topic, _ in field.series("depth_jobs")} == {"sms"}
    assert {topic for topic, _ in field.series("oldest_seconds")} == {"sms"}


async def test_more_topics_than_a_dashboard_holds_are_shown_together() -> None:
    field = Field()
    for number in range(130):
        await field.enqueue(2, topic=f"topic-{number:03}")
    await field.surveyor.survey_once()
    depths = field.series("depth_jobs")
    topics = {topic for topic, _ in depths}
    assert len(topics) == 101
    assert depths["(other)", "ready"] == 60
    assert sum(depths.values()) == 260


async def test_the_oldest_of_all_other_topics_is_the_oldest() -> None:
    field = Field()
    for number in range(100):
        await field.enqueue(1, topic=f"topic-{number:03}")
    await field.enqueue(1, topic="x-oldest")
    field.now += 50.0
    await field.enqueue(1, topic="y-youngest")
    field.now += 1.0
    await field.surveyor.survey_once()
    assert field.series("oldest_seconds")["(other)", "ready"] == 51.0


async def test_kinds_nobody_serves_are_shown_until_somebody_does() -> None:
    field = Field()
    await field.enqueue(2, kind="greet")
    await field.enqueue(3, kind="mend")
    await field.store.announce_worker(WorkerInfo(UUID(int=1), "host", 1, "0", [], ["greet"]))
    await field.surveyor.survey_once()
    assert field.series("unserved_jobs") == {("mend",): 3}
    await field.store.announce_worker(WorkerInfo(UUID(int=2), "host", 2, "0", [], ["mend"]))
    await field.surveyor.survey_once()
    assert field.series("unserved_jobs") == {}


async def test_kinds_nobody_serves_are_bounded_too() -> None:
    field = Field()
    for number in range(130):
        await field.enqueue(1, kind=f"kind-{number}")
    await field.surveyor.survey_once()
    assert len(field.series("unserved_jobs")) == 100


async def test_a_queue_without_ready_jobs_is_not_searched_for_kinds_nobody_serves() -> None:
    field = Field()
    field.store.survey_unserved = pytest.fail  # type: ignore[assignment]
    await field.enqueue(1, delay_s=3_600.0)
    await field.surveyor.survey_once()
    assert field.series("depth_jobs")["default", "scheduled"] == 1


async def test_no_count_goes_past_its_bound() -> None:
    field = Field(bound=10)
    await field.enqueue(50)
    await field.surveyor.survey_once()
    assert field.series("depth_jobs")["default", "ready"] == 10


async def test_it_surveys_for_ever() -> None:
    field = Field(interval_s=0.001)
    async with running(field.surveyor.run):
        for expected in (1, 2):
            await field.enqueue()
            await eventually(
                lambda expected=expected: (
                    field.series("depth_jobs").get(("default", "ready"))  # type: ignore[misc]
                    == expected
                )
            )
