"""The scheduler makes due jobs ready, and fires due schedules.

A pass promotes, in one statement, scheduled jobs whose time has come, by the database's clock,
and learns when the next one is due: it wakes at that instant, when somebody enqueues something
sooner, and at the latest after its interval. Between two passes it pauses, so that a stream of
due jobs is promoted a handful at a time.

A look at the schedules reads those that are due with the clock of the database, computes which
occurrences to fire, and fires all of them in one statement that moves each cursor and inserts its
jobs, both or neither. It refuses to trust what it read: a schedule that was edited, paused or
fired by another process in between is left to whoever was faster. One that cannot be evaluated is
marked as broken and stops no other. Nobody is elected; any number of processes may do all of this.

If it dies right now: another process carries on; alone, the next pass does. An occurrence is
either fired or still due.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator

import anyio

from chronos_runtime.config import SchedulerConfig
from chronos_runtime.errors import StoreError, StoreUnavailable
from chronos_runtime.fires import firing_of
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Nudge
from chronos_runtime.processors.wake_payload import WAKE_KIND, WAKE_TOPIC
from chronos_runtime.schedule import Due, Fired, Firing, Schedule
from chronos_runtime.store import Promotion, Store

_FIRES_MAX = 1_000  # Jobs that one statement inserts, unless one schedule alone has more.
_ERROR_MAX = 500
_NAMES_MAX = 5  # Schedules a log line names, of those it counts.

# What evaluating a row of anybody's making can end with. InputError is a ValueError.
_CANNOT_EVALUATE = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError)

_log = logging.getLogger(__name__)


class Scheduler:
    """Promotes due jobs and fires due schedules."""

    name = "scheduler"

    def __init__(
        self,
        config: SchedulerConfig,
        store: Store,
        metrics: Metrics,
        *,
        nudge: Nudge,
        returned: Callable[[], None],
        hears: Callable[[], bool],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._nudge = nudge
        self._returned = returned
        self._hears = hears
        self._prepare = prepare
        self._looked_at = -float("inf")
        """When the schedules were last looked at."""
        self._next_fire_s: float | None = 0.0
        """How long after that the next one is due; None: none is known."""

    async def run(self) -> None:
        """Promote and fire for ever; first of all, once, what is to be done before."""
        if self._prepare is not None:
            await self._prepare()
            self._prepare = None
        while True:
            promotion = await self.promote_once()
            is_full = promotion.promoted >= self._config.batch_max
            now = anyio.current_time()
            # A stream of due jobs must not have the schedules looked at in every pass.
            if now >= self._looked_at + self._config.fire_pause_s:
                is_full |= await self.fire_once()
            if not is_full:
                await anyio.sleep(self._config.pause_s)
                is_nudged = await self._nudge.wait(self._sleep_s(promotion.next_due_s))
                if is_nudged:
                    self._next_fire_s = 0.0

    async def promote_once(self) -> Promotion:
        """Promote one batch of due jobs."""
        with self._progress.measure() as rows:
            promotion = await self._store.promote_jobs(self._config.batch_max)
            rows(promotion.promoted)
        if promotion.promoted:
            self._returned()
        return promotion

    async def fire_once(self) -> bool:
        """Fire one batch of due schedules; whether more may be waiting behind it."""
        with self._progress.measure() as rows:
            self._looked_at = anyio.current_time()
            due = await self._store.schedules.list_due(self._config.fire_batch_max)
            self._metrics.schedules.absent.set(due.absent)
            if due.has_overdue:
                await self._mark_absent()
            firings = await self._evaluate(due)
            won = 0
            for batch in _batches(firings):
                won += await self._fire(batch, due)
            rows(won)
        self._next_fire_s = self._wait_s(due, firings, won)
        # What nobody could fire just now is locked by somebody who does.
        return won > 0 and len(due.schedules) >= self._config.fire_batch_max

    def _wait_s(self, due: Due, firings: list[Firing], won: int) -> float | None:
        """How long after the look there is something to fire; None: nothing is known."""
        waits = [(one.next_at - due.read_at).total_seconds() for one in firings if one.next_at]
        if due.next_due_s is not None:
            waits.append(due.next_due_s)
        if due.has_queued:
            waits.append(self._config.interval_s)
        if won < len(firings):
            waits.append(0.0)  # Locked by an edit or by the end of a fire, perhaps: still due.
        return min(waits, default=None)

    async def _evaluate(self, due: Due) -> list[Firing]:
        """What to fire; what cannot be evaluated is marked, and stops no other."""
        firings: list[Firing] = []
        troubles: list[tuple[Schedule, str]] = []
        for schedule in due.schedules:
            try:
                firings.append(firing_of(schedule, due.read_at))
            except _CANNOT_EVALUATE as error:
                troubles.append((schedule, f"{type(error).__name__}: {error}"))
        await self._break(troubles)
        return firings

    async def _fire(self, firings: list[Firing], due: Due) -> int:
        """Fire a batch, one by one if one of them cannot be stored; how many were won."""
        try:
            fired = await self._store.schedules.fire_schedules(firings)
        except StoreUnavailable:
            raise
        except StoreError as error:
            if len(firings) == 1:
                await self._break([(firings[0].schedule, str(error))])
                return 0
            _log.error("a schedule cannot be fired, going one by one: %s", error)
            return sum([await self._fire([one], due) for one in firings])
        for one in firings:
            if result := fired.get(one.schedule.id):
                self._note(one, result, due)
        _tell_missed([one for one in firings if one.missed and one.schedule.id in fired])
        self._metrics.schedules.races.inc(len(firings) - len(fired))
        return len(fired)

    def _note(self, firing: Firing, fired: Fired, due: Due) -> None:
        metrics, schedule = self._metrics.schedules, firing.schedule
        if fired.occurrences:
            self._metrics.fired.add((schedule.topic, schedule.kind), len(fired.occurrences))
        for occurrence in fired.occurrences:
            metrics.late.observe((due.read_at - occurrence).total_seconds())
        metrics.skips.labels("overlap").inc(fired.skipped)
        metrics.skips.labels("catch_up").inc(firing.missed)

    async def _break(self, troubles: list[tuple[Schedule, str]]) -> None:
        if not troubles:
            return
        troubles = [(one, error.replace("\x00", "")[:_ERROR_MAX]) for one, error in troubles]
        broken = await self._store.schedules.break_schedules(troubles)
        for schedule, error in troubles:
            if schedule.id in broken:
                self._metrics.schedules.broken.inc()
                _log.error("schedule broken: %s", error, extra={"schedule": schedule.name})

    async def _mark_absent(self) -> None:
        absences = await self._store.schedules.mark_absent(
            self._config.fire_batch_max, kind=WAKE_KIND, topic=WAKE_TOPIC
        )
        for one in absences:
            self._metrics.schedules.absences.inc()
            _log.warning(
                "schedule absent: no success in the time it is expected",
                extra={
                    "schedule": one.name,
                    "last_success_at": str(one.last_success_at),
                    "last_error": one.last_error,
                },
            )

    def _sleep_s(self, next_due_s: float | None) -> float:
        """How long to sleep after the pause."""
        longest_s = self._config.idle_interval_s if self._hears() else self._config.interval_s
        dues = [longest_s]
        # A millisecond late rather than early: waking before the instant finds nothing.
        if next_due_s is not None:
            dues.append(next_due_s + 0.001)
        waits = [min(dues) - self._config.pause_s]
        if self._next_fire_s is not None:
            # Not before the schedules may be looked at again. Counted from the look, so the pause
            # is over already: to take it off once more would wake early, look in vain, and then
            # be late by a whole fire_pause_s.
            wait_s = max(self._next_fire_s + 0.001, self._config.fire_pause_s)
            waits.append(self._looked_at + wait_s - anyio.current_time())
        return max(min(waits), 0.0)


def _tell_missed(firings: list[Firing]) -> None:
    """One line for a batch: after an outage, every schedule there is has missed something."""
    if firings:
        _log.warning(
            "occurrences missed: nobody was there to fire them",
            extra={
                "schedules": len(firings),
                "missed": sum(one.missed for one in firings),
                "among": ", ".join(one.schedule.name for one in firings[:_NAMES_MAX]),
            },
        )


def _batches(firings: list[Firing]) -> Iterator[list[Firing]]:
    """Firings by the handful: no statement inserts more jobs than it can in a moment."""
    batch: list[Firing] = []
    fires = 0
    for one in firings:
        if batch and fires + len(one.fires) > _FIRES_MAX:
            yield batch
            batch, fires = [], 0
        batch.append(one)
        fires += len(one.fires)
    if batch:
        yield batch
