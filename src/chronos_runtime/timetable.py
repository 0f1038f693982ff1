"""Timetables: when a schedule fires, and what becomes of the occurrences nobody was there for.

Pure functions of what they are given: no clock, no database, nothing random. Every process comes
to the same occurrences, and so to the same job ids.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from chronos_runtime.checks import RUN_AT_FIRST, checked_delay, checked_instant
from chronos_runtime.cron import Cron, Mark
from chronos_runtime.errors import InputError
from chronos_runtime.every import Every, Once

CatchUp = Literal["one", "all", "none"]

CATCH_UP_MAX = 1_000  # Looking one occurrence back takes about 50 µs, and nobody else runs then.
MISSED_COUNT_MAX = 100
PREVIEW_MAX = 1_000
LATE_S = 60.0

_MICROSECOND = timedelta(microseconds=1)


class Plan(msgspec.Struct, frozen=True):
    """What to do about a schedule that is due.

    >>> Plan(fires=(), next_at=None).missed
    0
    """

    fires: tuple[datetime, ...]  # Oldest first.
    next_at: datetime | None  # None: the timetable has ended.
    missed: int = 0
    is_exact: bool = True  # Else at least so many were missed.


class Preview(msgspec.Struct, frozen=True):
    """One occurrence to come, for people to look at."""

    at: datetime
    wall: datetime  # The same instant on the clock of the timetable's zone.
    mark: Mark = ""
    note: str = ""


class Timetable(msgspec.Struct, frozen=True):
    """Occurrences of a cron, an interval or a single instant, from `starts_at` to `ends_at`.

    Both ends are included: an occurrence at exactly `starts_at` or `ends_at` fires.

    >>> table = Timetable(Cron("0 9 * * MON-FRI"), ends_at=datetime(2026, 1, 5, 9, tzinfo=UTC))
    >>> str(table.next_after(datetime(2026, 1, 3, tzinfo=UTC)))
    '2026-01-05 09:00:00+00:00'
    >>> table.next_after(datetime(2026, 1, 5, 9, tzinfo=UTC)) is None
    True
    """

    when: Cron | Every | Once
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.when, Cron | Every | Once):
            raise InputError(f"when: {self.when!r} is no Cron, no Every and no Once")
        if self.starts_at is not None:
            checked_instant(self.starts_at, "starts_at")
        if self.ends_at is not None:
            checked_instant(self.ends_at, "ends_at")
            if self.starts_at is not None and self.ends_at < self.starts_at:
                raise InputError(f"ends_at: {self.ends_at} is before starts_at, {self.starts_at}")

    @property
    def tz(self) -> str:
        """The zone whose clock people read it by."""
        return self.when.tz if isinstance(self.when, Cron) else "UTC"

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence later than `instant`, in UTC. None: there is none any more.

        Ask it once before a schedule is stored: one whose every occurrence is over, or falls
        into gaps that it skips, would never fire.
        """
        if self.starts_at is not None:
            instant = max(instant, self.starts_at - _MICROSECOND)
        found = self.when.next_after(instant)
        return None if found is None or (self.ends_at and found > self.ends_at) else found

    def last_until(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than `instant`, in UTC."""
        if self.ends_at is not None:
            instant = min(instant, self.ends_at)
        found = self.when.last_until(instant)
        return None if found is None or (self.starts_at and found < self.starts_at) else found

    def plan(
        self,
        due_at: datetime,
        now: datetime,
        *,
        catch_up: CatchUp = "one",
        catch_up_max: int = CATCH_UP_MAX,
        late_s: float = LATE_S,
    ) -> Plan:
        """What to fire of the occurrences from `due_at`, the stored cursor, until `now`.

        - `one`: the latest of them. A handler is told which occurrence it runs for, and after
          three days of silence today's is of use where that of three days ago is history. Two
          processes may look at different times and choose differently; only one of them moves
          the cursor, and with it goes its choice.
        - `all`: the newest `catch_up_max`, oldest first.
        - `none`: those at most `late_s` old, for a fire that is a little late was not missed, and
          of these, too, the newest `catch_up_max`.

        All others are missed. Of an interval they are counted; of a cron at most 100 are, for
        each has to be looked for. A cursor that is no occurrence any more, because the rules of
        its zone have changed, fires nothing by itself.

        >>> table = Timetable(Every(60))
        >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
        >>> plan = table.plan(noon, noon + timedelta(minutes=10, seconds=5))
        >>> [f"{at:%H:%M}" for at in plan.fires], f"{plan.next_at:%H:%M}", plan.missed
        (['12:10'], '12:11', 10)
        """
        assert due_at <= now
        since, most = due_at, checked_catch_up_max(catch_up_max)
        match catch_up:
            case "one":
                most = 1
            case "all":
                pass
            case "none":
                since = max(due_at, now - timedelta(seconds=checked_delay(late_s, "late_s")))
            case _:
                raise InputError(f"catch_up: {catch_up!r} is none of 'one', 'all' and 'none'")
        fires = tuple(islice(self._back(now, since), most))[::-1]
        missed, is_exact = self._count(due_at, fires[0] - _MICROSECOND if fires else now)
        return Plan(fires, self.next_after(now), missed, is_exact)

    def preview(self, after: datetime, count: int) -> list[Preview]:
        """The next `count` occurrences, with a note where a clock is put forward or back.

        >>> table = Timetable(Cron("30 2 * * *", tz="Europe/Berlin"))
        >>> for each in table.preview(datetime(2026, 3, 28, 12, tzinfo=UTC), 1):
        ...     print(each.wall, each.note)
        2026-03-29 03:00:00+02:00 shifted from 02:30, which does not exist
        """
        at: datetime | None = checked_instant(after, "after")
        if not 1 <= count <= PREVIEW_MAX:
            raise InputError(f"count: {count!r} is not from 1 to {PREVIEW_MAX}")
        zone, previews = ZoneInfo(self.tz), list[Preview]()
        while at and len(previews) < count and (at := self.next_after(at)):
            mark, note = self.when.mark(at) if isinstance(self.when, Cron) else ("", "")
            previews.append(Preview(at, at.astimezone(zone), mark, note))
        return previews

    def _back(self, until: datetime, since: datetime) -> Iterator[datetime]:
        """The occurrences between two instants, both included, newest first."""
        at = self.last_until(until)
        while at is not None and at >= since:
            yield at
            at = self.last_until(at - _MICROSECOND)

    def _count(self, since: datetime, until: datetime) -> tuple[int, bool]:
        """How many occurrences lie between two instants, and whether that is all."""
        if isinstance(self.when, Every):
            first = max(since, self.starts_at or RUN_AT_FIRST)
            return self.when.count(first, min(until, self.ends_at or until)), True
        counted = sum(1 for _ in islice(self._back(until, since), MISSED_COUNT_MAX + 1))
        return min(counted, MISSED_COUNT_MAX), counted <= MISSED_COUNT_MAX


def checked_catch_up_max(catch_up_max: object) -> int:
    """`catch_up_max`, once it is a number of occurrences that may be fired at once."""
    if not isinstance(catch_up_max, int) or isinstance(catch_up_max, bool):
        raise InputError(f"catch_up_max: {catch_up_max!r} is not a whole number")
    if not 1 <= catch_up_max <= CATCH_UP_MAX:
        raise InputError(f"catch_up_max: {catch_up_max!r} is not from 1 to {CATCH_UP_MAX}")
    return catch_up_max


def jitter(schedule_id: UUID, occurrence: datetime, jitter_s: float) -> float:
    """By how much an occurrence is put off: from 0 to below `jitter_s`, the same everywhere.

    >>> occurrence = datetime(2026, 1, 1, tzinfo=UTC)
    >>> 0 <= jitter(UUID(int=1), occurrence, 10.0) < 10.0
    True
    """
    assert occurrence.tzinfo is not None
    microseconds = (occurrence - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND
    digest = blake2b(schedule_id.bytes + microseconds.to_bytes(8, signed=True), digest_size=6)
    return int.from_bytes(digest.digest()) / 2**48 * checked_delay(jitter_s, "jitter_s")
