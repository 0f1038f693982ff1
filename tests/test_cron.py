"""Cron fires when a second opinion says so, around every turn of every clock."""

import random
import time
import tracemalloc
from collections.abc import Iterator
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

ZONES = """
    Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Juba Africa/Tripoli America/Asuncion
    America/Caracas America/Goose_Bay America/Havana America/Los_Angeles America/Metlakatla
    America/Miquelon America/New_York America/Nuuk America/Santiago America/Sao_Paulo
    America/Scoresbysund America/St_Johns Antarctica/Casey Antarctica/Macquarie Antarctica/Troll
    Antarctica/Vostok Asia/Amman Asia/Beirut Asia/Dhaka Asia/Gaza Asia/Kathmandu Asia/Pyongyang
    Asia/Tehran Atlantic/Azores Australia/Adelaide Australia/Lord_Howe Europe/Berlin Europe/Dublin
    Europe/Istanbul Europe/Volgograd Pacific/Apia Pacific/Chatham Pacific/Easter Pacific/Norfolk
""".split()
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
    print(
        f"{checked} triples, {marked} next to a turn; a search takes "
        f"{took_s[len(took_s) // 2] * 1e6:.0f} µs at the median, "
        f"{took_s[len(took_s) * 99 // 100] * 1e6:.0f} µs at the 99th percentile, "
        f"{took_s[-1] * 1e3:.1f} ms at most"
    )
    assert checked == TRIPLES
    assert marked > TRIPLES // 50
    assert sum(took_s) / len(took_s) < 0.01
