"""What has ended, as `MemoryStore` keeps it: by id, in partitions of one UTC day."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from chronos_runtime.store import HistoryCounts
from chronos_runtime.store.memory_row import Row


class History:
    """The rows of `chronos.job_history`.

    >>> history = History()
    >>> history.make_days(0.0, days_ahead=1), history.make_days(0.0, days_ahead=1)
    (2, 0)
    >>> history.drop_days(before=86_400.0)
    ['job_history_19700101']
    """

    def __init__(self) -> None:
        # Usually one row an id; more only where an id was enqueued again after its job ended.
        self._rows: dict[UUID, list[Row]] = {}
        self._days: set[date] = set()

    def __iter__(self) -> Iterator[Row]:
        for rows in self._rows.values():
            yield from rows

    def add(self, row: Row) -> None:
        """Take in a job that has ended."""
        assert row.finished_at is not None
        day = _day(row.finished_at)
        row.day = day if day in self._days else None
        self._rows.setdefault(row.id, []).append(row)

    def newest(self, job_id: UUID) -> Row | None:
        """The last end of the job of that id."""
        rows = self._rows.get(job_id)
        return rows[-1] if rows else None

    def dead(self, ids: Collection[UUID]) -> list[Row]:
        """The dead letters among these, in the order they ended."""
        wanted = set(ids)
        return [row for row in self if row.id in wanted and row.state == "dead"]

    def failed(self, job_id: UUID) -> Row | None:
        """The task of that id that ended last as failed."""
        rows = [row for row in self._rows.get(job_id, []) if row.state == "failed"]
        return rows[-1] if rows else None

    def escalate(self, ids: Collection[UUID]) -> set[UUID]:
        """Make failed tasks dead letters; the ids of those that were any."""
        wanted = set(ids)
        failed = [row for row in self if row.id in wanted and row.state == "failed"]
        for row in failed:
            row.state = "dead"
        return {row.id for row in failed}

    def discard(self, ids: Collection[UUID]) -> set[UUID]:
        """Make dead letters cancelled; the ids of those that were any."""
        dead = self.dead(ids)
        for row in dead:
            row.state = "cancelled"
        return {row.id for row in dead}

    def counts(self, bound: int) -> HistoryCounts:
        """How many ended how, none of the exceptions counted far beyond `bound`."""
        states = Counter(row.state for row in self)
        dead, cancelled, failed = (
            min(states[state], bound + 1) for state in ("dead", "cancelled", "failed")
        )
        return HistoryCounts(dead, cancelled, failed, estimate=states.total())

    def remove(self, row: Row) -> None:
        """Forget one."""
        self._rows[row.id].remove(row)
        if not self._rows[row.id]:
            del self._rows[row.id]

    def make_days(self, now: float, *, days_ahead: int) -> int:
        """Make the partitions of today and the days ahead; how many were new.

        A day whose rows stand in the default partition already gets none.
        """
        today = _day(now)
        taken = {_day(row.finished_at or 0.0) for row in self if row.day is None}
        wanted = {today + timedelta(days=ahead) for ahead in range(days_ahead + 1)}
        made = wanted - taken - self._days
        self._days |= made
        return len(made)

    def drop_days(self, before: float) -> list[str]:
        """Drop the days that ended by then, with their rows; the names of their partitions."""
        dropped = sorted(day for day in self._days if _start(day + timedelta(days=1)) <= before)
        self._days.difference_update(dropped)
        for row in [row for row in self if row.day in dropped]:
            self.remove(row)
        return [f"job_history_{day:%Y%m%d}" for day in dropped]

    def prune_default(self, before: float) -> None:
        """Forget rows that ended before then and that no day owns."""
        for row in [row for row in self if row.day is None]:
            if row.finished_at is not None and row.finished_at < before:
                self.remove(row)


def _day(seconds: float) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


def _start(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
