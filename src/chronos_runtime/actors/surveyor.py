"""The surveyor measures how much waits, and for how long.

It is woken by time alone. It refuses to count beyond its bound, so a look costs the same with a
million jobs waiting as with ten thousand.

If it dies right now: the gauges stay as they were until it is back.
"""

import anyio

from chronos_runtime.config import SurveyorConfig
from chronos_runtime.metrics import Metrics
from chronos_runtime.store import Store, TopicDepth

_TOPICS_MAX = 100  # Topics come from the database: no more series than this, whatever is there.
_UNSERVED_SAMPLE = 1_000  # Per topic: whoever serves nothing of a kind shows in a few already.
_OTHER = "(other)"


class Surveyor:
    """Measures depths and ages."""

    name = "surveyor"

    def __init__(self, config: SurveyorConfig, store: Store, metrics: Metrics) -> None:
        self._config = config
        self._store = store
        self._metrics = metrics
        self._progress = metrics.actors[self.name]

    async def run(self) -> None:
        """Survey for ever."""
        while True:
            await self.survey_once()
            await anyio.sleep(self._progress.rest_s(self._config.interval_s))

    async def survey_once(self) -> None:
        """Look once."""
        with self._progress.measure() as rows:
            depths = await self._store.survey_topics(self._config.bound)
            unserved: dict[str, int] = {}
            if any(one.state == "ready" for one in depths):  # At rest, half of the statements.
                unserved = await self._store.survey_unserved(_UNSERVED_SAMPLE)
            rows(len(depths))
        self._show(depths)
        self._metrics.unserved.clear()
        for kind, jobs in list(unserved.items())[:_TOPICS_MAX]:
            self._metrics.unserved.labels(kind).set(jobs)

    def _show(self, depths: list[TopicDepth]) -> None:
        topics = sorted({one.topic for one in depths})[:_TOPICS_MAX]
        # Cleared first: a topic that drained must not keep its last value for ever.
        self._metrics.depth.clear()
        self._metrics.oldest.clear()
        for topic in topics:
            for state in ("ready", "scheduled", "running"):
                self._metrics.depth.labels(topic, state).set(0)
        oldest: dict[tuple[str, str], float] = {}  # Of all topics under one name.
        for one in depths:
            topic = one.topic if one.topic in topics else _OTHER
            self._metrics.depth.labels(topic, one.state).inc(one.jobs)
            if one.oldest_s is not None:
                place = (topic, one.state)
                oldest[place] = max(oldest.get(place, 0.0), one.oldest_s)
        for labels, seconds in oldest.items():
            self._metrics.oldest.labels(*labels).set(seconds)
