"""Zones are known by name, and their turns are found."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

from chronos_runtime.errors import InputError
from chronos_runtime.zones import checked_zone, naive, turn_at, turn_on, zone_names


def test_every_zone_can_be_opened() -> None:
    assert len(zone_names()) > 500
    for tz in zone_names():
        assert ZoneInfo(checked_zone(tz)).key == tz


def test_nothing_that_python_knows_is_missing() -> None:
    assert available_timezones() - {"localtime"} <= set(zone_names())


@pytest.mark.parametrize(
    ("tz", "hint"),
    [
        ("Europe/Berlim", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("Berlin", "did you mean 'Europe/Berlin'?"),
        ("America/New York", "did you mean 'America/New_York'?"),
        ("Nirgendwo/Gar_nicht", "use a name such as 'Europe/Berlin'"),
        ("../../etc/passwd", "use a name such as"),
        ("/etc/localtime", ""),
        ("right/Europe/Berlin", ""),
        ("Europe", ""),
        ("x" * 65, "longer than 64 characters"),
        ("", "is not the name of a time zone"),
        (None, "is not the name of a time zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_one_alike(tz: str, hint: str) -> None:
    with pytest.raises(InputError, match=r"^tz: ") as refusal:
        checked_zone(tz)
    assert hint in str(refusal.value)


def test_looking_for_a_zone_alike_does_not_take_long() -> None:
    hostile = ["a/" * 32, "x" * 64, "America/" * 8, "e" * 64, "Europe/Berlim"]
    start = time.perf_counter()
    for tz in hostile * 10:
        with pytest.raises(InputError):
            checked_zone(tz)
    assert (time.perf_counter() - start) / 50 < 0.1


@pytest.mark.parametrize(
    ("tz", "at", "minutes"),
    [
        ("Europe/Berlin", "2026-03-29 01:00", 60),
        ("Europe/Berlin", "2026-10-25 01:00", -60),
        ("Europe/Dublin", "2026-10-25 01:00", -60),
        ("Australia/Lord_Howe", "2026-10-03 15:30", 30),
        ("Antarctica/Troll", "2026-03-29 01:00", 120),
        ("Pacific/Apia", "2011-12-30 10:00", 24 * 60),
        ("America/Caracas", "2007-12-09 07:00", -30),
        ("Asia/Pyongyang", "2018-05-04 15:00", 30),
    ],
)
def test_a_turn_is_found_from_every_wall_time_it_touches(tz: str, at: str, minutes: int) -> None:
    zone, instant = ZoneInfo(tz), datetime.fromisoformat(at).replace(tzinfo=UTC)
    turn = turn_on(zone, instant)
    assert turn is not None
    assert turn.at == instant
    assert turn.after - turn.before == timedelta(minutes=minutes)
    assert turn.is_gap == (minutes > 0)
    assert turn.wall_end - turn.wall_start == abs(timedelta(minutes=minutes))
    second = timedelta(seconds=1)
    for wall in (turn.wall_start, turn.wall_start + second, turn.wall_end - second):
        assert turn_at(zone, wall) == turn
    late = turn.wall_end - timedelta(microseconds=1)
    assert turn_at(zone, late) == turn
    assert turn_at(zone, turn.wall_start - second) is None
    assert turn_at(zone, turn.wall_end) is None
    assert turn_on(zone, instant + second) is None
    assert turn_on(zone, instant - second) is None
    shown = naive(instant.astimezone(zone))
    assert shown == (turn.wall_end if turn.is_gap else turn.wall_start)
