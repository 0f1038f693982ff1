"""Time zones: which exist, and where their clocks turn.

A clock that is put forward leaves a gap: wall times that never come. One that is put back makes a
fold: wall times that come twice. Everything else about a zone is plain arithmetic.
"""

from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import msgspec

from chronos_runtime.errors import InputError

ZONE_MAX_CHARS = 64  # The longest there is has 32; looking for one alike costs by the length.

_SECOND = timedelta(seconds=1)
_NONE = timedelta()


@cache
def zone_names() -> tuple[str, ...]:
    """Every zone of the database that comes with this program, aliases too.

    >>> "Europe/Berlin" in zone_names()
    True
    """
    # The list, not the tree of the operating system: that one also has a copy with leap seconds,
    # and walking it takes as long as a thousand cron expressions.
    return tuple(files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


def checked_zone(tz: object) -> str:
    """`tz`, once it is the name of a zone.

    >>> checked_zone("America/New_York")
    'America/New_York'
    """
    if not isinstance(tz, str) or not tz:
        raise InputError(f"tz: {tz!r} is not the name of a time zone, such as 'Europe/Berlin'")
    if len(tz) > ZONE_MAX_CHARS:
        raise InputError(f"tz: longer than {ZONE_MAX_CHARS} characters")
    if tz not in zone_names():
        close = _alike(tz)
        hint = f"did you mean {close!r}?" if close else "use a name such as 'Europe/Berlin'"
        raise InputError(f"tz: there is no time zone {tz!r}; {hint}")
    return tz


def _alike(tz: str) -> str | None:
    lower = {name.lower(): name for name in zone_names()}
    wanted = tz.lower().replace(" ", "_")
    cities = {name.rpartition("/")[2]: name for name in lower}
    found = get_close_matches(wanted, lower, 1, 0.75) or get_close_matches(wanted, cities, 1, 0.75)
    return lower[cities.get(found[0], found[0])] if found else None


class Turn(msgspec.Struct, frozen=True):
    """One turn of a zone's clock: at an instant, from an offset to another.

    >>> turn = turn_at(ZoneInfo("Europe/Berlin"), datetime(2026, 3, 29, 2, 30))
    >>> turn.is_gap, str(turn.wall_start), str(turn.wall_end)
    (True, '2026-03-29 02:00:00', '2026-03-29 03:00:00')
    """

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def is_gap(self) -> bool:
        """Whether wall times are left out; else they come twice."""
        return self.after > self.before

    @property
    def wall_start(self) -> datetime:
        """The first wall time that does not exist, or exists twice."""
        return naive(self.at) + min(self.before, self.after)

    @property
    def wall_end(self) -> datetime:
        """The first wall time thereafter that exists once."""
        return naive(self.at) + max(self.before, self.after)


def turn_at(zone: ZoneInfo, wall: datetime) -> Turn | None:
    """The turn that takes `wall` away or doubles it; none for a wall time like any other.

    >>> turn_at(ZoneInfo("Europe/Berlin"), datetime(2026, 3, 29, 3)) is None
    True
    """
    first, second = offset_of(zone, wall), offset_of(zone, wall.replace(fold=1))
    if first == second:
        return None
    # PEP 495: in a gap and in a fold alike, fold 0 reads the clock before the turn and fold 1 the
    # one after it. The turn lies between the two readings, on a whole second.
    early = wall - max(first, second)
    low, high = 0, (wall - min(first, second) - early) // _SECOND + 1
    while high - low > 1:
        middle = (low + high) // 2
        at = (early + middle * _SECOND).replace(tzinfo=UTC)
        if at.astimezone(zone).utcoffset() == first:
            low = middle
        else:
            high = middle
    at = (early + high * _SECOND).replace(microsecond=0, tzinfo=UTC)
    return Turn(at, before=first, after=second)


def turn_on(zone: ZoneInfo, at: datetime) -> Turn | None:
    """The turn that happens at this very instant, if one does.

    >>> turn_on(ZoneInfo("Europe/Berlin"), datetime(2026, 3, 29, 1, tzinfo=UTC)).is_gap
    True
    """
    before = (at - _SECOND).astimezone(zone).utcoffset() or _NONE
    after = at.astimezone(zone).utcoffset() or _NONE
    return None if before == after else Turn(at.astimezone(UTC), before=before, after=after)


def offset_of(zone: ZoneInfo, wall: datetime) -> timedelta:
    """How far the wall time of the zone, read with its own `fold`, is ahead of UTC."""
    return wall.replace(tzinfo=zone).utcoffset() or _NONE


def naive(instant: datetime) -> datetime:
    """What the clock of an instant shows, and nothing about where it hangs."""
    return instant.replace(tzinfo=None, fold=0)


def instant_of(wall: datetime, offset: timedelta) -> datetime:
    """The instant at which a clock that is `offset` ahead of UTC shows `wall`."""
    return (wall - offset).replace(tzinfo=UTC)
