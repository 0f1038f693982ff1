"""Cron fires when a second opinion says so, around every turn of every clock."""

import random
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest

from chronos_runtime.cron import CRON_LAST, Cron
from chronos_runtime.cron_fields import EXPRESSION_MAX_CHARS, parsed
from chronos_runtime.errors import InputError
from tests import cron_oracle

TRIPLES = 20_000
FUZZED = 100_000

# fmt: off
ZONES = [
    "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Juba", "Africa/Tripoli",
    "America/Asuncion", "America/Caracas", "America/Goose_Bay", "America/Havana",
    "America/Los_Angeles", "America/Metlakatla", "America/Miquelon", "America/New_York",
    "America/Nuuk", "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund",
    "America/St_Johns", "Antarctica/Casey", "Antarctica/Macquarie", "Antarctica/Troll",
    "Antarctica/Vostok", "Asia/Amman", "Asia/Beirut", "Asia/Dhaka", "Asia/Gaza", "Asia/Kathmandu",
    "Asia/Pyongyang", "Asia/Tehran", "Atlantic/Azores", "Australia/Adelaide", "Australia/Lord_Howe",
    "Europe/Berlin", "Europe/Dublin", "Europe/Istanbul", "Europe/Volgograd", "Pacific/Apia",
    "Pacific/Chatham", "Pacific/Easter", "Pacific/Norfolk",
]
# fmt: on
FIRST = int(datetime(2000, 1, 2, tzinfo=UTC).timestamp())
LAST = int(datetime(2041, 1, 1, tzinfo=UTC).timestamp())


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def walls(cron: Cron, after: str, count: int) -> list[str]:
    """The next fires as the clock on the wall shows them, with its offset."""
    zone, found = ZoneInfo(cron.tz), list[str]()
    instant: datetime | None = datetime.fromisoformat(after)
    assert instant is not None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=zone)
    for _ in range(count):
        assert instant is not None
        instant = cron.next_after(instant)
        assert instant is not None
        found.append(f"{instant.astimezone(zone):%d %H:%M %z}")
    return found


class Maker:
    """Makes expressions: mostly sound, near a wall time that matters."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, low: int, high: int, near: int | None) -> int:
        if near is not None and self.random.random() < 0.7:
            return low + (near + self.random.choice([-1, 0, 0, 0, 1]) - low) % (high - low + 1)
        return self.random.randint(low, high)

    def field(self, low: int, high: int, near: int | None = None, star: float = 0.3) -> str:
        one, other = self.number(low, high, near), self.random.randint(low, high)
        step = self.random.randint(1, (high - low + 1) // 2)
        draw = self.random.random()
        if draw < star:
            return "*"
        if draw < star + 0.1:
            return f"*/{step}"
        return self.random.choice(
            [str(one), str(one), f"{one},{other}", f"{one}-{other}", f"{one}-{other}/{step}"]
        )

    def day(self) -> str:
        special = ["L", f"{self.random.randint(1, 31)}W", f"{self.random.randint(1, 28)},L", "?"]
        return self.random.choice([self.field(1, 31, star=0.6), self.random.choice(special)])

    def weekday(self) -> str:
        name = self.random.choice([*cron_oracle.WEEKDAYS, "7", "0", "3"])
        special = [f"{name}#{self.random.randint(1, 5)}", f"L{name}", "FRI-MON", "5-7", f"{name}"]
        return self.random.choice([self.field(0, 6, star=0.6), self.random.choice(special)])

    def expression(self, wall: datetime) -> str:
        seconds = self.field(0, 59, star=0.2) if self.random.random() < 0.2 else ""
        minute = self.field(0, 59, wall.minute, star=0.2)
        hour = self.field(0, 23, wall.hour)
        plain = self.random.random()
        day = "*" if plain < 0.7 else self.day()
        month = "*" if self.random.random() < 0.85 else self.field(1, 12, wall.month)
        weekday = "*" if plain < 0.6 or plain > 0.85 else self.weekday()
        return " ".join([*seconds.split(), minute, hour, day, month, weekday])


def triples() -> Iterator[tuple[str, cron_oracle.Zone, int]]:
    """Around every turn of every zone, and as many more as are left."""
    zones = [cron_oracle.Zone(name) for name in ZONES]
    turns = [(zone, turn) for zone in zones for turn in zone.turns if FIRST <= turn < LAST]
    maker = Maker(seed=TRIPLES)
    assert len(turns) > 2_000
    for place in range(TRIPLES):
        zone, turn = turns[place % len(turns)]
        away = maker.random.choice([-90_000, -7_200, -1_800, -1, 0, 1, 1_800, 3_600, 7_200])
        instant = turn + away + maker.random.choice([0, 0, maker.random.randint(-3_600, 3_600)])
        if place >= TRIPLES * 9 // 10:
            instant = maker.random.randrange(FIRST, LAST)
        wall = datetime.fromtimestamp(turn + maker.random.choice([-1, 0]), ZoneInfo(zone.name))
        while True:
            expression = maker.expression(wall)
            try:
                parsed(expression)
            except InputError:
                continue  # 31 April. What is refused is the matter of another test.
            yield expression, zone, instant
            break


@pytest.mark.slow
def test_twenty_thousand_fires_around_every_turn_are_those_of_the_oracle() -> None:
    assert len(set(ZONES)) == 40
    took_s, checked, marked = list[float](), 0, 0
    draw = random.Random(1)
    for expression, zone, second in triples():
        gap, fold = draw.choice(["shift", "skip"]), draw.choice(["first", "both"])
        cron = msgspec.convert(
            {"kind": "cron", "expression": expression, "tz": zone.name, "gap": gap, "fold": fold},
            Cron,
        )
        instant = datetime.fromtimestamp(second, UTC)
        start = time.perf_counter()
        following = cron.next_after(instant)
        middle = time.perf_counter()
        latest = cron.last_until(instant)
        took_s += [middle - start, time.perf_counter() - middle]
        spec = cron_oracle.parse(expression)
        story = f"{cron} from {instant}"
        assert following is not None, story
        assert following.timestamp() == cron_oracle.next_after(spec, zone, gap, fold, second), story
        expected = cron_oracle.last_until(spec, zone, gap, fold, second)
        assert (latest and latest.timestamp()) == expected, story
        checked += 1
        marked += cron.mark(following)[0] != ""
    took_s.sort()
    sys.stdout.write(
        f"{checked} triples, {marked} next to a turn; a search takes "
        f"{took_s[len(took_s) // 2] * 1e6:.0f} µs at the median, "
        f"{took_s[len(took_s) * 99 // 100] * 1e6:.0f} µs at the 99th percentile, "
        f"{took_s[-1] * 1e3:.1f} ms at most\n"
    )
    assert checked == TRIPLES
    assert marked > TRIPLES // 50
    assert sum(took_s) / len(took_s) < 0.01


def forth(cron: Cron, since: int, until: int) -> list[int]:
    found, instant = list[int](), datetime.fromtimestamp(since - 1, UTC)
    while (following := cron.next_after(instant)) and following.timestamp() <= until:
        found.append(int(following.timestamp()))
        instant = following
    return found


def back(cron: Cron, since: int, until: int) -> list[int]:
    found, instant = list[int](), datetime.fromtimestamp(until, UTC)
    while (latest := cron.last_until(instant)) and latest.timestamp() >= since:
        found.append(int(latest.timestamp()))
        instant = latest - timedelta(microseconds=1)
    return found


@pytest.mark.slow
def test_every_fire_of_a_week_with_a_turn_comes_once_and_in_order() -> None:
    maker = Maker(seed=2)
    for name in ["Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia"]:
        zone = cron_oracle.Zone(name, 2009, 2014)
        for turn in zone.turns[2:8]:
            wall = datetime.fromtimestamp(turn - 1, ZoneInfo(name))
            expression = f"{maker.field(0, 59, 0, 0.0)} {maker.field(0, 23, wall.hour)} * * *"
            spec = cron_oracle.parse(expression)
            since, until = turn - 3 * cron_oracle.DAY_S, turn + 4 * cron_oracle.DAY_S
            for gap, fold in [("shift", "first"), ("skip", "both")]:
                data = {"kind": "cron", "expression": expression, "tz": name}
                cron = msgspec.convert(data | {"gap": gap, "fold": fold}, Cron)
                expected = cron_oracle.fires(spec, zone, gap, fold, since=since, until=until)
                assert len(expected) > 0
                assert forth(cron, since, until) == list(expected), f"{cron} {wall}"
                assert back(cron, since, until) == list(expected)[::-1], f"{cron} {wall}"


def test_from_any_instant_within_a_fold_the_next_fire_is_later_and_the_last_one_is_not() -> None:
    for fold in ("first", "both"):
        cron = Cron("*/7 1-3 * * *", tz="Europe/Berlin", fold=fold)
        start = at("2026-10-24 22:00")
        searches = [
            (instant, cron.last_until(instant), cron.next_after(instant))
            for minute in range(6 * 60)
            for instant in [start + timedelta(minutes=minute, microseconds=minute)]
        ]
        for instant, latest, following in searches:
            assert latest is not None
            assert following is not None
            assert latest <= instant < following
            assert cron.next_after(latest) == following
            assert cron.last_until(following) == following
            assert cron.next_after(following - timedelta(microseconds=1)) == following
        for (_, _, one), (_, _, other) in pairwise(searches):
            assert one is not None
            assert other is not None
            assert one <= other


def test_a_time_that_does_not_exist_fires_at_the_end_of_the_gap_or_not_at_all() -> None:
    # Berlin has no 02:00 to 03:00 on 29 March 2026, New York none on 8 March.
    shift, skip = (Cron("30 2 * * *", tz="Europe/Berlin", gap=gap) for gap in ("shift", "skip"))
    usual = ["28 02:30 +0100", "30 02:30 +0200"]
    assert walls(shift, "2026-03-28", 3) == [usual[0], "29 03:00 +0200", usual[1]]
    assert walls(skip, "2026-03-28", 2) == usual
    cron = Cron("30 2 * * *", tz="America/New_York")
    assert walls(cron, "2026-03-07T12:00", 2) == ["08 03:00 -0400", "09 02:30 -0400"]


def test_all_that_falls_into_a_gap_and_on_its_end_fires_once() -> None:
    cron = Cron("*/15 2,3 * * *", tz="Europe/Berlin")
    expected = ["29 03:00 +0200", "29 03:15 +0200", "29 03:30 +0200"]
    assert walls(cron, "2026-03-29T01:59", 3) == expected


def test_a_gap_of_half_an_hour_and_one_of_a_whole_day_are_gaps() -> None:
    cron = Cron("15 2 * * *", tz="Australia/Lord_Howe")
    assert walls(cron, "2026-10-03T12:00", 2) == ["04 02:30 +1100", "05 02:15 +1100"]
    cron = Cron("0 9 * * *", tz="Pacific/Apia")  # Which had no 30 December 2011.
    assert walls(cron, "2011-12-29", 3) == ["29 09:00 -1000", "31 00:00 +1400", "31 09:00 +1400"]
    skip = Cron("0 9 * * *", tz="Pacific/Apia", gap="skip")
    assert walls(skip, "2011-12-29", 2) == ["29 09:00 -1000", "31 09:00 +1400"]


def test_a_time_that_comes_twice_fires_the_first_time_or_both() -> None:
    first = Cron("30 2 * * *", tz="Europe/Berlin")
    both = Cron("30 2 * * *", tz="Europe/Berlin", fold="both")
    assert walls(first, "2026-10-24T12:00", 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    expected = ["25 02:30 +0200", "25 02:30 +0100", "26 02:30 +0100"]
    assert walls(both, "2026-10-24T12:00", 3) == expected
    cron = Cron("30 1 * * *", tz="America/New_York", fold="both")
    assert walls(cron, "2026-10-31T12:00", 2) == ["01 01:30 -0400", "01 01:30 -0500"]
    cron = Cron("45 1 * * *", tz="Australia/Lord_Howe", fold="both")
    assert walls(cron, "2026-04-04T12:00", 2) == ["05 01:45 +1100", "05 01:45 +1030"]


def test_an_expression_for_all_hours_goes_on_through_a_fold_and_a_gap() -> None:
    cron = Cron("*/30 * * * *", tz="Europe/Berlin")
    fold = ["25 02:00 +0200", "25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100"]
    assert walls(cron, "2026-10-25T01:30", 5) == [*fold, "25 03:00 +0100"]
    gap = ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"]
    assert walls(cron, "2026-03-29T01:00", 3) == gap
    instant: datetime | None = at("2026-01-01 00:00")
    for _ in range(48 * 365):
        assert instant is not None
        following = cron.next_after(instant)
        assert following == instant + timedelta(minutes=30)
        instant = following


def test_every_second_hour_is_a_list_of_hours() -> None:
    cron = Cron("0 */2 * * *", tz="Europe/Berlin")
    expected = ["29 00:00 +0100", "29 03:00 +0200", "29 04:00 +0200"]
    assert walls(cron, "2026-03-28T23:00", 3) == expected
    cron = Cron("0 */12 * * *", tz="Asia/Beirut")  # Clocks are put forward at midnight.
    assert walls(cron, "2026-03-28T12:00", 2) == ["29 01:00 +0300", "29 12:00 +0300"]


def test_what_only_ever_falls_into_gaps_and_skips_them_never_fires() -> None:
    cron = Cron("30 2 * 3 L0", tz="Europe/Berlin", gap="skip")
    assert cron.next_after(at("2026-01-01")) is None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 1 * MON", "01 05 12 19 26 01"),  # Either of two restricted day fields is enough.
        ("0 0 ? * MON", "05 12 19"),
        ("0 0 */1 * MON", "05 12 19"),
        ("0 0 L * *", "31 28 31 30"),
        ("0 0 15,L * *", "15 31 15 28"),
        ("0 0 15W * *", "15 16 16 15 15 15 15 14"),
        ("0 0 1W * *", "01 02 02 01"),  # 1 February 2026 is a Sunday, and so is 1 March.
        ("0 0 31W * *", "30 27 31 30 29"),
        ("0 0 15W * MON#1", "05 15 02 16"),
        ("0 0 20 * FRI#2", "09 20 13 20"),
        ("0 0 * * FRI#2", "09 13 13"),
        ("0 0 * * L5", "30 27 27"),
        ("0 0 * * 5#5", "30 29 31"),
        ("0 0 5-5 * *", "05 05"),
        ("0 0 * * FRI-MON", "02 03 04 05 09"),
        ("0 0 * * 5-7", "02 03 04 09"),
        ("0 0 * * 0-7", "01 02 03"),
        ("0 0 30-2/2 * *", "01 30 01 01 30"),
        ("@monthly", "01 01"),
        ("@WEEKLY", "04 11"),
    ],
)
def test_days_are_those_the_grammar_says(expression: str, expected: str) -> None:
    days = expected.split()
    found = walls(Cron(expression), "2025-12-31T23:59", len(days))
    assert [each[:2] for each in found] == days


def test_six_fields_begin_with_the_second() -> None:
    found = Cron("15,45 30 12 * * *").next_after(at("2026-01-01 12:30:15"))
    assert found == at("2026-01-01 12:30:45")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "must be a cron expression"),
        ("   ", "must be a cron expression"),
        ("* * * *", "has 4 fields instead of 5"),
        ("* * * * * * 2026", "has 7 fields instead of 5"),
        ("60 * * * *", "minute '60' is not from 0 to 59"),
        ("* 24 * * *", "hour '24' is not from 0 to 23"),
        ("* * 0 * *", "day '0' is not from 1 to 31"),
        ("* * * 13 *", "month '13' is not from 1 to 12 or JAN–DEC"),
        ("* * * * 8", "weekday '8' is not from 0 to 6 or SUN–SAT"),
        ("* * * * MONDAY", "weekday 'MONDAY' is not"),
        ("H * * * *", "minute 'H' is not"),
        ("R * * * *", "minute 'R' is not"),
        ("H(0-29)/10 * * * *", "minute 'H(0-29)/10' is not"),
        ("@reboot", "'@reboot' is none of @hourly"),
        ("@", "'@' is none of"),
        ("1--100000000 * * * *", "minute '1--100000000' is not"),
        ("1-100000000 * * * *", "minute '100000000' is not from 0 to 59"),
        ("*/0 * * * *", "has a step that is not from 1 to 60"),
        ("*/90 * * * *", "has a step that is not from 1 to 60"),
        ("0-59/99999999999999999999 * * * *", "has a step that is not from 1 to 60"),
        ("0 0 30 2 *", "never fires: no month it names has a day 30"),
        ("0 0 31 2,4,6,9,11 *", "never fires"),
        ("0 0 * * MON,FRI#2", "mixes whole weekdays"),
        ("0 0 * * MON#6", "weekday 'MON#6' is not"),
        ("0 0 1,15W * *", "day '15W' is not"),
        ("? * * * *", "minute '?' is not"),
        (",".join(["1"] * 300) + " * * * *", f"longer than {EXPRESSION_MAX_CHARS}"),
        ("0\n0 * * *", "one line of plain characters"),
        ("٣ * * * *", "one line of plain characters"),
        (None, "must be a cron expression"),
        (5, "must be a cron expression"),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused_by_its_field(
    expression: str, message: str
) -> None:
    with pytest.raises(InputError, match=r"^expression: ") as refusal:
        Cron(expression)
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_a_verdict_takes_little_memory() -> None:
    bombs = ["1--100000000 * * * *", "0-99999999/1 * * * *", "0 0 30 2 *", "9" * 10**6]
    bombs += [",".join(["*"] * 245) + " * * * *", "*/1" * 100, "0 0 29-30/9 2 L9", "@" * 10**5]
    bombs += [",".join(["0-59"] * 80) + " 99 * * *"]
    for bomb in bombs:
        tracemalloc.start()
        try:
            with suppress(InputError):
                Cron(bomb)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2**20, bomb[:50]


def test_what_a_turn_means_is_one_of_the_known_words() -> None:
    with pytest.raises(InputError, match=r"gap: 'jump' is neither 'shift' nor 'skip'"):
        Cron("* * * * *", gap="jump")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"fold: 'twice' is neither 'first' nor 'both'"):
        Cron("* * * * *", fold="twice")  # type: ignore[arg-type]


def test_cron_ends_where_the_calendar_does() -> None:
    cron = Cron("0 0 29 2 *")
    assert cron.next_after(CRON_LAST) is None
    assert cron.next_after(CRON_LAST - timedelta(days=1)) is None
    assert cron.next_after(at("9895-01-01")) == at("9896-02-29")
    assert cron.last_until(at("9999-01-01")) == at("9896-02-29")
    assert cron.next_after(at("0001-01-02")) == at("2000-02-29")
    assert cron.last_until(at("2000-02-28")) is None


def garbled(maker: Maker) -> str:
    """An expression, sound or almost, or a handful of tokens."""
    if maker.random.random() < 0.2:
        tokens = [*"*/-,#LW?HR0123456789", "@", " ", "  ", "MON", "jan", "60", "31", "@daily", "é"]
        return "".join(maker.random.choices(tokens, k=maker.random.randint(0, 24)))
    wall = datetime(2026, maker.random.randint(1, 12), 1, maker.random.randrange(24), tzinfo=UTC)
    text = list(maker.expression(wall))
    for _ in range(maker.random.choice([0, 0, 1, 1, 2, 5])):
        place = maker.random.randrange(len(text) + 1)
        text[place : place + maker.random.randrange(2)] = maker.random.choice("*/-,#LW?05 279MONah")
    return "".join(text)


@pytest.mark.slow
def test_a_hundred_thousand_garbled_expressions_are_taken_or_refused_as_the_oracle_says() -> None:
    maker, took_s, taken = Maker(seed=FUZZED), list[float](), 0
    utc, instant = cron_oracle.Zone("UTC"), int(at("2026-05-04 03:02:01").timestamp())
    for place in range(FUZZED):
        expression = garbled(maker)
        start = time.perf_counter()
        try:
            cron: Cron | None = Cron(expression)
        except InputError:
            cron = None
        took_s.append(time.perf_counter() - start)
        try:
            spec: cron_oracle.Spec | None = cron_oracle.parse(expression)
        except cron_oracle.Refused:
            spec = None
        assert (cron is None) == (spec is None), expression
        if cron and spec and place % 5 == 0:
            found = cron.next_after(datetime.fromtimestamp(instant, UTC))
            expected = cron_oracle.next_after(spec, utc, "shift", "first", instant)
            assert found == datetime.fromtimestamp(expected, UTC), expression
            taken += 1
    took_s.sort()
    sys.stdout.write(
        f"a verdict takes {took_s[len(took_s) // 2] * 1e6:.0f} µs at the median, "
        f"{took_s[len(took_s) * 99 // 100] * 1e6:.0f} µs at the 99th percentile, "
        f"{took_s[-1] * 1e3:.1f} ms at most\n"
    )
    assert taken > FUZZED // 25
    assert sum(took_s) / len(took_s) < 0.01
