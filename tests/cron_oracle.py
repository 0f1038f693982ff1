"""A second opinion on cron, slow and simple, that shares nothing with the first.

It steps over every minute of UTC, or every second, reads the clock on the wall, and asks whether
the reading matches. A wall time comes the second time when the clock has already been further on;
wall times were left out when it leaps. Neither croniter, nor `fold`, nor a search for turns.
"""

import calendar
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

DAY_S = 86_400
LOOK_BACK_S = 4 * 3_600  # The longest fold since 2000 takes three hours.
FIRST_DAY, LAST_DAY = date(1995, 1, 1), date(2085, 12, 31)
FIRST_DAY_S = (FIRST_DAY - date(1970, 1, 1)).days * DAY_S
START_S = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp())  # There is nothing before.

Array = np.ndarray[Any, np.dtype[Any]]

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
NICKNAMES = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * SUN",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}


class Refused(Exception):
    """The expression makes no sense."""


class Spec(NamedTuple):
    step_s: int
    of_day: Array  # Which seconds of a day match.
    days: Array  # Which days since FIRST_DAY match.
    names_hours: bool


def _days_table() -> dict[str, Array]:
    rows = []
    day = FIRST_DAY
    while day <= LAST_DAY:
        length = calendar.monthrange(day.year, day.month)[1]
        rows.append((day.year * 12 + day.month, day.month, day.day, day.isoweekday() % 7, length))
        day += timedelta(days=1)
    columns = np.array(rows).T
    return dict(zip(["serial", "month", "day", "weekday", "length"], columns, strict=True))


DAYS = _days_table()


@cache
def nearest_weekday(target: int) -> Array:
    """Of each month the one working day that is closest to `target`, or to the last day."""
    found = np.zeros(len(DAYS["day"]), dtype=bool)
    for serial in np.unique(DAYS["serial"]):
        (places,) = np.nonzero(DAYS["serial"] == serial)
        wanted = min(target, int(DAYS["length"][places[0]]))
        working = [place for place in places if 1 <= DAYS["weekday"][place] <= 5]
        found[min(working, key=lambda place: abs(int(DAYS["day"][place]) - wanted))] = True
    return found


def number(text: str, low: int, high: int, names: list[str]) -> int:
    if text in names:
        return names.index(text) + low
    if not text or not set(text) <= set("0123456789") or not low <= int(text) <= high:
        raise Refused(text)
    return int(text)


def field(text: str, low: int, high: int, names: list[str] | None = None) -> set[int]:
    """The values of a field, found by walking round its circle from a start to an end."""
    names, size = names or [], high - low + 1
    top = high + 1 if names == WEEKDAYS else high  # Sunday may be 7.
    values = set[int]()
    for item in text.split(","):
        span, slash, step_text = item.partition("/")
        step = number(step_text, 1, size, []) if slash else 1
        if span == "*":
            values |= {value for value in range(low, high + 1) if (value - low) % step == 0}
            continue
        first_text, dash, last_text = span.partition("-")
        first = number(first_text, low, top, names)
        last = number(last_text, low, top, names) if dash else first
        is_one, first = first == last, low if first > high else first
        if not dash and slash:
            walk = range(first, high + 1)
        elif is_one or first == last:
            walk = range(first, first + 1)
        else:
            walk = range(first, last + 1 + (size if last < first else 0))
        values |= {low + (each - low) % size for each in walk[::step]}
    return values


def parse(expression: str) -> Spec:
    if len(expression) > 500 or not all(" " <= char <= "~" for char in expression):
        raise Refused(expression)
    texts = expression.upper().split(" ")
    texts = [text for text in texts if text]
    if len(texts) == 1 and texts[0] in NICKNAMES:
        texts = NICKNAMES[texts[0]].split()
    if len(texts) == 5:
        texts = ["0", *texts]
    if len(texts) != 6:
        raise Refused(expression)
    seconds, minutes, hours = field(texts[0], 0, 59), field(texts[1], 0, 59), field(texts[2], 0, 23)
    months = field(texts[4], 1, 12, MONTHS)
    step_s = 60 if seconds == {0} else 1
    of_day = (
        _among(hours, np.arange(24))[:, None, None]
        & _among(minutes, np.arange(60))[:, None]
        & _among(seconds, np.arange(60))
    ).ravel()
    days = match_days(texts[3], texts[5]) & _among(months, DAYS["month"])
    if not days.any():
        raise Refused(expression)
    return Spec(step_s, of_day, days, len(hours) < 24)


def _among(values: set[int], column: Array) -> Array:
    table = np.zeros(64, dtype=bool)
    table[list(values)] = True
    found: Array = table[column]
    return found


def match_days(day_text: str, weekday_text: str) -> Array:
    said = [
        match(text)
        for match, text in [(match_month_days, day_text), (match_weekdays, weekday_text)]
        if text not in ("*", "?", "*/1")
    ]
    found = np.full(len(DAYS["day"]), not said)
    for each in said:
        found |= each
    return found


def match_month_days(text: str) -> Array:
    if text.endswith("W") and len(text) in (2, 3):
        return nearest_weekday(number(text[:-1], 1, 31, []))
    found = np.zeros(len(DAYS["day"]), dtype=bool)
    for item in text.split(","):
        if item == "L":
            found |= DAYS["day"] == DAYS["length"]
        else:
            found |= _among(field(item, 1, 31), DAYS["day"])
    return found


def match_weekdays(text: str) -> Array:
    items = text.split(",")
    single = ["#" in item or (item[:1] == "L" and len(item) > 1) for item in items]
    if not any(single):
        return _among(field(text, 0, 6, WEEKDAYS), DAYS["weekday"])
    if not all(single):
        raise Refused(text)
    found = np.zeros(len(DAYS["day"]), dtype=bool)
    for item in items:
        if "#" in item:
            name, _, nth_text = item.partition("#")
            which = (DAYS["day"] + 6) // 7 == number(nth_text, 1, 5, [])
            if len(nth_text) > 1:
                raise Refused(text)
        else:
            name, which = item[1:], DAYS["day"] + 7 > DAYS["length"]
        if len(name) > 1 and name not in WEEKDAYS:
            raise Refused(text)
        found |= which & (DAYS["weekday"] == number(name, 0, 7, WEEKDAYS) % 7)
    return found


class Zone:
    """The offsets of a zone, found by asking it about every day."""

    def __init__(self, name: str, first_year: int = 1999, last_year: int = 2081) -> None:
        self.name, self._zone = name, ZoneInfo(name)
        start = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
        end = int(datetime(last_year, 1, 1, tzinfo=UTC).timestamp())
        self.turns: list[int] = []
        offsets = [self._offset(start)]
        for at in range(start, end, DAY_S):
            if (later := self._offset(at + DAY_S)) != offsets[-1]:
                seconds = range(at, at + DAY_S + 1)
                old = offsets[-1]
                self.turns.append(
                    at + bisect_right(seconds, 0, key=lambda second: self._offset(second) != old)
                )
                offsets.append(later)
        self._turns, self._offsets = np.array(self.turns, dtype=np.int64), np.array(offsets)

    def _offset(self, second: int) -> int:
        local = datetime.fromtimestamp(second, self._zone).utcoffset()
        assert local is not None
        return int(local.total_seconds())

    def walls(self, seconds: Array) -> Array:
        first, last = np.searchsorted(self._turns, seconds[[0, -1]], side="right")
        # On most days nothing turns, and asking about every second takes its time.
        places = first if first == last else np.searchsorted(self._turns, seconds, side="right")
        found: Array = seconds + self._offsets[places]
        return found


def fires(spec: Spec, zone: Zone, gap: str, fold: str, *, since: int, until: int) -> Array:
    """Every second of UTC in [since, until] at which the expression fires."""
    step = spec.step_s
    seconds = np.arange((since - LOOK_BACK_S) // step * step, until + 1, step)
    walls = zone.walls(seconds)
    is_match = _matches(spec, walls)
    if spec.names_hours:
        before = np.maximum.accumulate(walls)[:-1]
        if fold == "first":
            is_match[1:] &= walls[1:] > before
        for place in np.nonzero(walls[1:] - before > step)[0] + 1:
            left_out = np.arange(walls[place - 1] + step, walls[place], step)
            if gap == "shift" and _matches(spec, left_out).any():
                is_match[place] = True
    return seconds[is_match & (seconds >= since)]


def _matches(spec: Spec, walls: Array) -> Array:
    found: Array = spec.of_day[walls % DAY_S] & spec.days[(walls - FIRST_DAY_S) // DAY_S]
    return found


def _windows(spec: Spec, instant: int, *, is_forward: bool) -> Iterator[tuple[int, int]]:
    """Where to look: close by, then around one matching day after the other."""
    near = 3 * 3_600 if spec.step_s == 1 else 26 * 3_600
    yield instant - near, instant + near
    place = (instant - FIRST_DAY_S) // DAY_S
    if is_forward:
        places = np.nonzero(spec.days[place - 2 :])[0] + place - 2
    else:
        places = np.nonzero(spec.days[: place + 3])[0][::-1]
    parts = [DAY_S * part // 4 for part in range(-4, 8)]
    for each in places:
        day = int(each) * DAY_S + FIRST_DAY_S
        for part in parts if is_forward else reversed(parts):
            since, until = day + part, day + part + DAY_S // 4
            if until > instant if is_forward else since <= instant:
                yield since, until


def next_after(spec: Spec, zone: Zone, gap: str, fold: str, instant: int) -> int:
    for since, until in _windows(spec, instant, is_forward=True):
        found = fires(spec, zone, gap, fold, since=max(since, instant + 1), until=until)
        if len(found):
            return int(found[0])
    raise AssertionError("the oracle has to look farther")


def last_until(spec: Spec, zone: Zone, gap: str, fold: str, instant: int) -> int | None:
    for since, until in _windows(spec, instant, is_forward=False):
        if until < START_S:
            break
        first, last = max(since, START_S), min(until, instant)
        found = fires(spec, zone, gap, fold, since=first, until=last)
        if len(found):
            return int(found[-1])
    return None
