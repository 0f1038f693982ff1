"""The grammar of cron expressions: five fields, or six with the seconds first.

    ┌──────────── second, only with six fields   0–59
    │ ┌────────── minute                         0–59
    │ │ ┌──────── hour                           0–23
    │ │ │ ┌────── day of the month               1–31, L (the last), 15W (the weekday nearest to it)
    │ │ │ │ ┌──── month                          1–12, JAN–DEC
    │ │ │ │ │ ┌── day of the week                0–7 (both Sunday), SUN–SAT, FRI#2, L5 (the last)
    0 0 9 * * MON-FRI

Every field takes `*`, lists, ranges and steps: `1,15`, `9-17`, `*/10`, `5/20` (from 5 on). A range
may go round the end: `22-2`, `FRI-MON`. `15W` stays within its month, and in a month shorter than
its day it counts from the last one. When both day fields are restricted, either is enough, as
POSIX has it; `*`, `?` and `*/1` restrict nothing. `@hourly`, `@daily`, `@midnight`, `@weekly`,
`@monthly`, `@yearly` and `@annually` stand for themselves.

Everything is spelled out here before croniter sees it, for what it makes of some expressions is
no use: `5-5` is the whole hour, `15W` drops the weekdays next to it, `20 * FRI#2` is an error
when it is looked for, and `H` and `R` differ from process to process.
"""

import re

import msgspec

from chronos_runtime.errors import InputError

EXPRESSION_MAX_CHARS = 500  # Sixty seconds, one by one, are 169.

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAYS_MAX = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EVERY = ("*", "?", "*/1")

_ITEM = re.compile(r"(\*|(?P<low>[0-9A-Z]+)(-(?P<high>[0-9A-Z]+))?)(/(?P<step>[0-9]+))?")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_ONE_WEEKDAY = f"([0-7]|{'|'.join(_WEEKDAY_NAMES)})"
_NTH = re.compile(rf"(?P<day>{_ONE_WEEKDAY})#(?P<nth>[1-5])|L(?P<last>{_ONE_WEEKDAY})")


class Field(msgspec.Struct, frozen=True):
    """What one field of an expression may hold.

    >>> MINUTE.values("50-10/10")
    [0, 10, 50]
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.high - self.low + 1

    def values(self, text: str) -> list[int]:
        """The values that a list of numbers, ranges and steps stands for, ascending."""
        return sorted({value for item in text.split(",") for value in self._item(item)})

    def value(self, text: str) -> int:
        """The value of one number or name."""
        if text in self.names:
            return self.low + self.names.index(text)
        number = int(text) if text.isdigit() else -1
        if self is WEEKDAY and number == 7:
            return 0
        if not self.low <= number <= self.high:
            names = f" or {self.names[0]}–{self.names[-1]}" if self.names else ""
            raise self.error(text, f"is not from {self.low} to {self.high}{names}")
        return number

    def error(self, text: str, trouble: str) -> InputError:
        """What to raise about a piece of this field."""
        return InputError(f"expression: {self.name} {text[:20]!r} {trouble}")

    def _item(self, item: str) -> list[int]:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise self.error(item, "is not *, a value, a range such as 1-5 or a step such as */2")
        step = int(match["step"] or 1)
        if not 1 <= step <= self.size:
            raise self.error(item, f"has a step that is not from 1 to {self.size}")
        if match["low"] is None:
            return list(range(self.low, self.high + 1, step))
        low = self.value(match["low"])
        if match["high"] is None:
            return list(range(low, self.high + 1, step)) if match["step"] else [low]
        high = self.value(match["high"])
        # In 0-7 the seven is the Sunday after: a whole week. 7-7 is one day.
        is_week = match["high"].lstrip("0") == "7" != match["low"].lstrip("0")
        if high < low or (high == low == 0 and is_week):
            high += self.size
        return [self.low + (each - self.low) % self.size for each in range(low, high + 1, step)]


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY = Field("day", 1, 31)
MONTH = Field("month", 1, 12, _MONTH_NAMES)
WEEKDAY = Field("weekday", 0, 6, _WEEKDAY_NAMES)


class Fields(msgspec.Struct, frozen=True):
    """An expression taken apart and spelled out.

    >>> fields = parsed("0 9 1 * MON-WED")
    >>> fields.lines
    ('0 9 1 * *', '0 9 * * 1,2,3')
    >>> fields.names_hours
    True
    """

    lines: tuple[str, ...]  # For croniter; an occurrence of the one or the other is one of all.
    names_hours: bool


def parsed(expression: object) -> Fields:
    """The fields of an expression, or an error that names the field and the trouble."""
    texts = _texts(expression)
    seconds, minutes, hours = (
        SECOND.values(texts[0]),
        MINUTE.values(texts[1]),
        HOUR.values(texts[2]),
    )
    months = MONTH.values(texts[4])
    dates = [
        f"{day} {_spelled(MONTH, months)} {weekday}"
        for day, weekday in _days(texts[3], texts[5], months)
    ]
    clock = f"{_spelled(MINUTE, minutes)} {_spelled(HOUR, hours)}"
    tail = "" if seconds == [0] else f" {_spelled(SECOND, seconds)}"
    return Fields(
        lines=tuple(f"{clock} {date}{tail}" for date in dates),
        names_hours=len(hours) < HOUR.size,
    )


def _texts(expression: object) -> list[str]:
    """Six texts, from the second to the weekday."""
    if not isinstance(expression, str) or not expression.strip():
        raise InputError("expression: must be a cron expression, such as '0 9 * * MON-FRI'")
    if len(expression) > EXPRESSION_MAX_CHARS:
        raise InputError(f"expression: longer than {EXPRESSION_MAX_CHARS} characters")
    if not expression.isascii() or not expression.isprintable():
        raise InputError("expression: must be one line of plain characters and spaces")
    known = ALIASES.get(expression.strip().lower())
    texts = (known or expression).upper().split()
    if texts[0].startswith("@"):
        raise InputError(f"expression: {expression[:20]!r} is none of {', '.join(ALIASES)}")
    if len(texts) not in (5, 6):
        raise InputError(
            f"expression: has {len(texts)} fields instead of 5 (minute hour day month weekday) "
            "or 6 (the second before these)"
        )
    return ["0", *texts] if len(texts) == 5 else texts


def _days(day: str, weekday: str, months: list[int]) -> list[tuple[str, str]]:
    """Pairs of the two day fields, of which either is enough; one is always a star."""
    pairs = []
    if day not in _EVERY:
        spelled, earliest = _month_days(day)
        longest = max(_DAYS_MAX[month - 1] for month in months)
        if earliest <= longest:
            pairs.append((spelled, "*"))
        elif weekday in _EVERY:
            raise InputError(
                f"expression: never fires: no month it names has a day {earliest}; "
                "write L for the last day of a month"
            )
    if weekday not in _EVERY:
        pairs.append(("*", _weekdays(weekday)))
    return pairs or [("*", "*")]


def _month_days(text: str) -> tuple[str, int]:
    """The day field, and a day that a month must have for it to fire."""
    if match := _NEAREST.fullmatch(text):
        return f"{DAY.value(match[1])}w", 1
    items = text.split(",")
    plain = [item for item in items if item != "L"]
    values = DAY.values(",".join(plain)) if plain else []
    if len(plain) < len(items):
        return ",".join([*map(str, values), "l"]), 1
    return _spelled(DAY, values), values[0]


def _weekdays(text: str) -> str:
    items = text.split(",")
    nth = [match for item in items if (match := _NTH.fullmatch(item))]
    if not nth:
        return _spelled(WEEKDAY, WEEKDAY.values(text))
    if len(nth) < len(items):
        raise WEEKDAY.error(text, "mixes whole weekdays with single ones of a month: use two")
    return ",".join(
        f"{WEEKDAY.value(match['day'])}#{match['nth']}"
        if match["nth"]
        else f"l{WEEKDAY.value(match['last'])}"
        for match in nth
    )


def _spelled(field: Field, values: list[int]) -> str:
    return "*" if len(values) == field.size else ",".join(map(str, values))
