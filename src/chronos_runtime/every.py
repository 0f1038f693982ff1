"""Occurrences that no calendar is needed for: at equal distances, or a single one."""

from datetime import UTC, datetime, timedelta

import msgspec

from chronos_runtime.checks import RUN_AT_FIRST, RUN_AT_LAST, checked_instant
from chronos_runtime.errors import InputError

# A fire is a job: a row, a claim and a finish. What must run more often than every second is a
# loop in a handler, and the scheduler looks once a second at the least.
INTERVAL_MIN_S = 1.0
INTERVAL_MAX_S = 10 * 366 * 24 * 3600.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Every(msgspec.Struct, frozen=True, tag="interval", tag_field="kind"):
    """Fires at `anchor` and every `interval_s` of real time from then on.

    Each occurrence is counted from the anchor, so nothing drifts, however late fires are. Without
    an anchor it is the start of 1970: every minute is then on the minute. No clock's turn matters.

    >>> every = Every(90, anchor=datetime(2026, 1, 1, tzinfo=UTC))
    >>> str(every.next_after(datetime(2026, 1, 1, 0, 2, tzinfo=UTC)))
    '2026-01-01 00:03:00+00:00'
    """

    interval_s: float
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        interval_s: object = self.interval_s
        if (
            not isinstance(interval_s, int | float)
            or isinstance(interval_s, bool)
            or not INTERVAL_MIN_S <= interval_s <= INTERVAL_MAX_S
        ):
            raise InputError(
                f"interval_s: {interval_s!r} is not a number of seconds from {INTERVAL_MIN_S:g} "
                f"to {INTERVAL_MAX_S:g}"
            )
        if self.anchor is not None:
            checked_instant(self.anchor, "anchor")

    def next_after(self, instant: datetime) -> datetime | None:
        """The first occurrence later than `instant`, in UTC; none after the year 9999."""
        instant = max(instant, RUN_AT_FIRST - _MICROSECOND)
        return self._occurrence(max(self._place(instant) + 1, 0))

    def last_until(self, instant: datetime) -> datetime | None:
        """The last occurrence not later than `instant`, in UTC; none before the anchor."""
        found = self._occurrence(max(self._place(min(instant, RUN_AT_LAST)), 0))
        return found if found and RUN_AT_FIRST <= found <= instant else None

    def count(self, first: datetime, last: datetime) -> int:
        """How many occurrences lie between two instants, both included.

        >>> Every(1).count(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))
        259201
        """
        before = max(self._place(first - _MICROSECOND), -1)
        return max(self._place(last) - before, 0)

    def _start(self) -> datetime:
        return (self.anchor or _EPOCH).astimezone(UTC)

    def _interval(self) -> timedelta:
        return timedelta(seconds=self.interval_s)

    def _place(self, instant: datetime) -> int:
        """The number of the last occurrence until `instant`: zero at the anchor, then counting."""
        return (instant - self._start()) // self._interval()

    def _occurrence(self, place: int) -> datetime | None:
        if place > self._place(RUN_AT_LAST):
            return None
        return self._start() + place * self._interval()


class Once(msgspec.Struct, frozen=True, tag="once", tag_field="kind"):
    """Fires at one instant.

    >>> Once(datetime(2026, 1, 1, tzinfo=UTC)).next_after(datetime(2027, 1, 1, tzinfo=UTC)) is None
    True
    """

    at: datetime

    def __post_init__(self) -> None:
        checked_instant(self.at, "at")

    def next_after(self, instant: datetime) -> datetime | None:
        """The instant in UTC, if it is later than the given one."""
        return self.at.astimezone(UTC) if self.at > instant else None

    def last_until(self, instant: datetime) -> datetime | None:
        """The instant in UTC, unless it is later than the given one."""
        return self.at.astimezone(UTC) if self.at <= instant else None
