"""Cron: when an expression fires on the wall clock of a zone, and what a turn of that clock means.

croniter finds the wall times, naive ones only, for it is wrong around the turns of many zones.
They become instants here, by one rule:

- An expression that names hours (`30 2 * * *`, `0 */2 * * *`) is a promise about days. A wall
  time that does not exist fires at the first instant after the gap, once, however many fall into
  it, or not at all (`gap`). One that exists twice fires the first time, or both (`fold`).
- An expression for all hours (`*/15 * * * *`, `0 * * * *`) follows the clock as it runs: it fires
  whenever the clock shows a matching time, so it goes on through a fold, and a gap, which takes
  no time, has nothing to make up for. `gap` and `fold` do not apply to it.

Vixie cron draws the same line, but by the star: there `0 */12 * * *` loses its midnight where
clocks are put forward at midnight.
"""

import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args
from zoneinfo import ZoneInfo

import msgspec
from croniter import croniter

from chronos_runtime.checks import RUN_AT_FIRST
from chronos_runtime.cron_fields import Fields, parsed
from chronos_runtime.errors import InputError
from chronos_runtime.zones import Turn, checked_zone, instant_of, naive, turn_at, turn_on

Gap = Literal["shift", "skip"]
Fold = Literal["first", "both"]
Mark = Literal["", "gap", "fold"]

CRON_LAST = datetime(9900, 1, 1, tzinfo=UTC)  # The calendar ends in 9999, and searches need room.
SKIPS_MAX = 32  # One that only ever meets gaps, and skips them, has no next occurrence.
CALENDARS_MAX = 4_096  # Each is a few kilobytes; making one takes as long as using it.

_SECOND = timedelta(seconds=1)


class Cron(msgspec.Struct, frozen=True, tag="cron", tag_field="kind"):
    """Fires by a cron expression on the wall clock of a zone.

    >>> cron = Cron("30 2 * * *", tz="Europe/Berlin")
    >>> str(cron.next_after(datetime(2026, 3, 28, 12, tzinfo=UTC)))  # There is no 02:30.
    '2026-03-29 01:00:00+00:00'
    >>> Cron("0 0 30 2 *")
    Traceback (most recent call last):
    chronos_runtime.errors.InputError: expression: never fires: no month it names has a day 30; \
write L for the last day of a month
    """

    expression: str
    tz: str = "UTC"
    gap: Gap = "shift"
    fold: Fold = "first"

    def __post_init__(self) -> None:
        parsed(self.expression)
        checked_zone(self.tz)
        if self.gap not in get_args(Gap):
            raise InputError(f"gap: {self.gap!r} is neither 'shift' nor 'skip'")
        if self.fold not in get_args(Fold):
            raise InputError(f"fold: {self.fold!r} is neither 'first' nor 'both'")

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence later than `instant`, in UTC; none after the year 9900."""
        if instant >= CRON_LAST:
            return None
        zone, calendar = ZoneInfo(self.tz), _calendar(self.expression)
        local = max(instant, RUN_AT_FIRST - _SECOND).astimezone(zone)
        wall = naive(local)
        if turn := turn_at(zone, wall):  # A fold: no instant shows a time that does not exist.
            if found := self._rest_of_fold(turn, wall, is_second=local.fold == 1):
                return found
            wall = turn.wall_end - _SECOND
        for _ in range(SKIPS_MAX):
            wall = calendar.after(wall)
            if wall.year >= CRON_LAST.year:
                break
            turn = turn_at(zone, wall)
            if turn is None or not turn.is_gap:  # In a fold ahead, the first time comes first.
                return wall.replace(tzinfo=zone).astimezone(UTC)
            if self._shifts(calendar):
                return turn.at
            wall = turn.wall_end - _SECOND
        return None

    def last_until(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than `instant`, in UTC; none before the year 2000."""
        zone, calendar = ZoneInfo(self.tz), _calendar(self.expression)
        local = min(instant, CRON_LAST).astimezone(zone)
        wall = naive(local).replace(microsecond=0) + _SECOND
        turn = turn_at(zone, naive(local))
        if turn and (found := self._fold_so_far(turn, wall, is_second=local.fold == 1)):
            return found
        for _ in range(SKIPS_MAX):
            if wall.year < RUN_AT_FIRST.year:
                break
            wall = calendar.before(wall)
            turn = turn_at(zone, wall)
            if turn is None or not turn.is_gap:
                is_second = turn is not None and self._repeats(calendar)
                found = wall.replace(tzinfo=zone, fold=int(is_second)).astimezone(UTC)
                return found if found >= RUN_AT_FIRST else None
            if self._shifts(calendar):
                return turn.at
            wall = turn.wall_start
        return None

    def mark(self, at: datetime) -> tuple[Mark, str]:
        """What is unusual about the occurrence `at`, for people.

        >>> Cron("30 2 * * *", tz="Europe/Berlin").mark(datetime(2026, 3, 29, 1, tzinfo=UTC))
        ('gap', 'shifted from 02:30, which does not exist')
        """
        zone, calendar = ZoneInfo(self.tz), _calendar(self.expression)
        turn = turn_on(zone, at)
        if turn and turn.is_gap and self._shifts(calendar):
            wall = calendar.after(turn.wall_start - _SECOND)
            if wall < turn.wall_end:
                return "gap", f"shifted from {_clock(wall, turn)}, which does not exist"
        local = at.astimezone(zone)
        turn = turn_at(zone, naive(local))
        if turn is None or turn.is_gap:
            return "", ""
        return "fold", f"{'second' if local.fold else 'first'} of two {_clock(naive(local), turn)}"

    def _rest_of_fold(self, turn: Turn, wall: datetime, *, is_second: bool) -> datetime | None:
        """The next occurrence after `wall` while the clock still shows times that come twice."""
        calendar = _calendar(self.expression)
        if not is_second:
            if (found := calendar.after(wall)) < turn.wall_end:
                return instant_of(found, turn.before)
            wall = turn.wall_start - _SECOND
        if self._repeats(calendar) and (found := calendar.after(wall)) < turn.wall_end:
            return instant_of(found, turn.after)
        return None

    def _fold_so_far(self, turn: Turn, wall: datetime, *, is_second: bool) -> datetime | None:
        """The last occurrence before `wall` since the clock shows times that come twice."""
        calendar = _calendar(self.expression)
        if is_second:
            if self._repeats(calendar) and (found := calendar.before(wall)) >= turn.wall_start:
                return instant_of(found, turn.after)
            wall = turn.wall_end
        if (found := calendar.before(wall)) >= turn.wall_start:
            return instant_of(found, turn.before)
        return None

    def _shifts(self, calendar: "_Calendar") -> bool:
        return self.gap == "shift" and calendar.fields.names_hours

    def _repeats(self, calendar: "_Calendar") -> bool:
        return self.fold == "both" or not calendar.fields.names_hours


class _Calendar:
    """The wall times of an expression. A croniter has a position, so each search has its own."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._lines = [croniter(line, ret_type=datetime) for line in fields.lines]

    def after(self, wall: datetime) -> datetime:
        """The first wall time after the second of `wall`."""
        start = wall.replace(microsecond=0)
        return min(copy.copy(line).get_next(start_time=start) for line in self._lines)

    def before(self, wall: datetime) -> datetime:
        """The last wall time before `wall`, which is a whole second."""
        return max(copy.copy(line).get_prev(start_time=wall) for line in self._lines)


@lru_cache(maxsize=CALENDARS_MAX)
def _calendar(expression: str) -> _Calendar:
    return _Calendar(parsed(expression))


def _clock(wall: datetime, turn: Turn) -> str:
    """A wall time as short as it can be: with its date where whole days are at stake."""
    if abs(turn.after - turn.before) >= timedelta(days=1):
        return f"{wall:%Y-%m-%d %H:%M}"
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
