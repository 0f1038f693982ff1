"""A timetable fires what it says, when it was down too, and every process agrees."""

import random
import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronos_runtime.cron import Cron
from chronos_runtime.errors import InputError
from chronos_runtime.every import INTERVAL_MAX_S, Every, Once
from chronos_runtime.timetable import (
    CATCH_UP_MAX,
    MISSED_COUNT_MAX,
    CatchUp,
    Plan,
    Timetable,
    jitter,
)

# How long an example takes says more about the machine's load than about the code.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=each) for each in (1, 60, 3_600, 86_400))
MICROSECOND = timedelta(microseconds=1)
POLICIES: list[CatchUp] = ["one", "all", "none"]

INSTANTS = st.integers(0, 90 * 366 * 86_400 * 10**6).map(
    lambda microseconds: datetime(2001, 1, 1, tzinfo=UTC) + microseconds * MICROSECOND
)
INTERVALS = st.one_of(st.integers(1, 10**7), st.floats(1.0, 10.0**7))


def test_an_interval_counts_from_its_anchor_and_never_drifts() -> None:
    every = Every(0.1 + 1, anchor=NOON)
    assert every.next_after(NOON - MICROSECOND) == NOON
    assert every.next_after(NOON) == NOON + timedelta(seconds=1.1)
    instant: datetime | None = NOON
    for _ in range(10_000):
        assert instant is not None
        instant = every.next_after(instant + timedelta(milliseconds=137))  # Always a bit late.
    assert instant == NOON + 10_000 * timedelta(seconds=1.1)


@UNHURRIED
@given(INTERVALS, INSTANTS, INSTANTS)
def test_every_instant_lies_between_two_occurrences_of_an_interval(
    interval_s: float, anchor: datetime, instant: datetime
) -> None:
    every = Every(interval_s, anchor=anchor)
    following, latest = every.next_after(instant), every.last_until(instant)
    assert following is not None
    if instant < anchor:
        assert (latest, following) == (None, anchor)
        return
    assert latest is not None
    assert latest <= instant < following
    assert following - latest == timedelta(seconds=interval_s)
    assert (following - anchor) % timedelta(seconds=interval_s) == timedelta(0)


@UNHURRIED
@given(st.integers(1, 10**4), INSTANTS, st.integers(0, 500), st.integers(0, 10**9))
def test_an_interval_counts_as_many_as_there_are(
    interval_s: int, anchor: datetime, count: int, extra: int
) -> None:
    every = Every(interval_s, anchor=anchor)
    last = anchor + count * timedelta(seconds=interval_s)
    assert every.count(anchor - timedelta(microseconds=extra), last) == count + 1
    assert every.count(anchor + MICROSECOND, last) == count
    assert every.count(last + MICROSECOND, last) == 0
    assert every.count(anchor, anchor - MICROSECOND) == 0


def test_an_interval_without_an_anchor_is_on_the_minute() -> None:
    assert Every(60).next_after(NOON + 7 * SECOND) == NOON + MINUTE
    assert Every(3_600).last_until(NOON + 7 * SECOND) == NOON


def test_an_interval_lasts_from_the_year_2000_to_the_end_of_the_calendar() -> None:
    every, end = Every(60), datetime(9999, 1, 1, tzinfo=UTC)
    assert every.next_after(datetime(1, 1, 2, tzinfo=UTC)) == datetime(2000, 1, 1, tzinfo=UTC)
    assert every.last_until(datetime(1999, 1, 1, tzinfo=UTC)) is None
    assert every.last_until(end + DAY) == end
    assert every.next_after(end) is None
    assert Every(INTERVAL_MAX_S, anchor=end).next_after(end) is None


@pytest.mark.parametrize(
    "interval_s", [0, -1, 0.999, float("nan"), float("inf"), 10**400, True, "5"]
)
def test_an_interval_out_of_bounds_is_refused(interval_s: float) -> None:
    with pytest.raises(InputError, match=r"^interval_s: .* is not a number of seconds from 1 to"):
        Every(interval_s)


def test_a_single_instant_fires_once() -> None:
    once = Once(NOON.astimezone(timezone(timedelta(hours=2))))
    assert once.next_after(NOON - MICROSECOND) == NOON
    assert once.next_after(NOON) is None
    assert once.last_until(NOON) == NOON
    assert once.last_until(NOON - MICROSECOND) is None
    table = Timetable(once)
    for catch_up in POLICIES:
        assert table.plan(NOON, NOON + SECOND, catch_up=catch_up) == Plan((NOON,), None)
    assert table.plan(NOON, NOON + DAY, catch_up="none") == Plan((), None, missed=1)


def test_an_instant_without_a_zone_is_refused_by_its_field() -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InputError, match=r"^at: has no time zone"):
        Once(naive)
    with pytest.raises(InputError, match=r"^anchor: has no time zone"):
        Every(60, anchor=naive)
    with pytest.raises(InputError, match=r"^starts_at: has no time zone"):
        Timetable(Every(60), starts_at=naive)
    with pytest.raises(InputError, match=r"^ends_at: has no time zone"):
        Timetable(Every(60), ends_at=naive)
    with pytest.raises(InputError, match=r"^after: has no time zone"):
        Timetable(Every(60)).preview(naive, 1)


def test_both_ends_of_a_timetable_are_included() -> None:
    for when in (Cron("0 * * * *"), Every(3_600)):
        table = Timetable(when, starts_at=NOON, ends_at=NOON + 2 * HOUR)
        assert table.next_after(NOON - DAY) == NOON
        assert table.next_after(NOON + HOUR) == NOON + 2 * HOUR
        assert table.next_after(NOON + 2 * HOUR) is None
        assert table.last_until(NOON + DAY) == NOON + 2 * HOUR
        assert table.last_until(NOON) == NOON
        assert table.last_until(NOON - MICROSECOND) is None
        plan = table.plan(NOON, NOON + DAY, catch_up="all")
        assert plan == Plan((NOON, NOON + HOUR, NOON + 2 * HOUR), None)
        assert table.plan(NOON - DAY, NOON + DAY).missed == 2


def test_a_timetable_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(InputError, match=r"^ends_at: .* is before starts_at"):
        Timetable(Every(60), starts_at=NOON, ends_at=NOON - SECOND)
    with pytest.raises(InputError, match=r"^when: "):
        Timetable("0 * * * *")  # type: ignore[arg-type]


def test_a_fire_on_time_is_the_same_under_every_policy() -> None:
    for when in (Cron("0 * * * *"), Every(3_600)):
        for catch_up in POLICIES:
            for late in (timedelta(0), MICROSECOND, 5 * SECOND):
                plan = Timetable(when).plan(NOON, NOON + late, catch_up=catch_up)
                assert plan == Plan((NOON,), NOON + HOUR)


def test_after_a_pause_one_fires_the_latest() -> None:
    for when in (Cron("0 * * * *"), Every(3_600)):
        plan = Timetable(when).plan(NOON, NOON + 5 * HOUR + MINUTE, catch_up="one")
        assert plan == Plan((NOON + 5 * HOUR,), NOON + 6 * HOUR, missed=5)


def test_after_a_pause_all_fires_the_newest_oldest_first() -> None:
    for when in (Cron("0 * * * *"), Every(3_600)):
        table, now = Timetable(when), NOON + 5 * HOUR
        everything = tuple(NOON + hour * HOUR for hour in range(6))
        assert table.plan(NOON, now, catch_up="all") == Plan(everything, NOON + 6 * HOUR)
        plan = table.plan(NOON, now, catch_up="all", catch_up_max=2)
        assert plan == Plan(everything[-2:], NOON + 6 * HOUR, missed=4)


def test_after_a_pause_none_fires_only_what_is_a_little_late() -> None:
    for when in (Cron("0 * * * *"), Every(3_600)):
        table, due_at, next_at = Timetable(when), NOON - 3 * HOUR, NOON + HOUR
        for late, expected in [(60, Plan((NOON,), next_at, 3)), (61, Plan((), next_at, 4))]:
            now = NOON + late * SECOND
            assert table.plan(due_at, now, catch_up="none", late_s=60) == expected


def test_a_cursor_that_the_rules_have_left_behind_fires_nothing_by_itself() -> None:
    table, stale = Timetable(Cron("0 * * * *")), NOON - 30 * MINUTE
    assert table.plan(stale, stale + SECOND) == Plan((), NOON)
    assert table.plan(stale, NOON + SECOND) == Plan((NOON,), NOON + HOUR)


@pytest.mark.parametrize("when", [Cron("* * * * * *"), Every(1)], ids=["cron", "interval"])
def test_three_days_down_every_second_is_not_walked_through(when: Cron | Every) -> None:
    table, now = Timetable(when), NOON + 3 * DAY
    is_exact = isinstance(when, Every)
    start = time.perf_counter()
    one = table.plan(NOON, now, catch_up="one")
    everything = table.plan(NOON, now, catch_up="all", catch_up_max=50)
    none = table.plan(NOON, now, catch_up="none", late_s=2)
    took_s = time.perf_counter() - start
    assert one.fires == (now,)
    assert everything.fires == tuple(now - each * SECOND for each in reversed(range(50)))
    assert none.fires == (now - 2 * SECOND, now - SECOND, now)
    for plan in (one, everything, none):
        left = 259_201 - len(plan.fires)
        assert plan.missed == (left if is_exact else MISSED_COUNT_MAX)
        assert plan.is_exact == is_exact
        assert plan.next_at == now + SECOND
    assert took_s < 5.0  # 259,201 steps of a cron take longer, on any machine.


def test_a_count_that_just_fits_is_exact() -> None:
    table = Timetable(Cron("* * * * *"))
    for more in (0, 1):
        plan = table.plan(NOON, NOON + (MISSED_COUNT_MAX + more) * MINUTE)
        assert plan.missed == MISSED_COUNT_MAX
        assert plan.is_exact == (more == 0)


@UNHURRIED
@given(
    st.sampled_from(["*/7 * * * *", "30 1-3 * * *", "*/20 2 * * *", "0 0 * * MON"]),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]),
    st.sampled_from(POLICIES),
    st.lists(st.integers(0, 3 * 86_400), min_size=1, max_size=8),
)
def test_whatever_the_pauses_no_occurrence_fires_twice_or_goes_unaccounted(
    expression: str, tz: str, catch_up: CatchUp, pauses: list[int]
) -> None:
    table = Timetable(Cron(expression, tz=tz, fold="both"))
    cursor = table.next_after(datetime(2026, 10, 23, 12, tzinfo=UTC))
    assert cursor is not None
    fires, missed, is_exact, first = list[datetime](), 0, True, cursor
    now = cursor
    for pause in pauses:
        now = max(now, cursor) + timedelta(seconds=pause)
        plan = table.plan(cursor, now, catch_up=catch_up, catch_up_max=5)
        assert plan.next_at is not None
        assert plan.next_at > now
        fires += plan.fires
        missed, is_exact, cursor = missed + plan.missed, is_exact and plan.is_exact, plan.next_at
    assert all(one < other for one, other in pairwise(fires))
    occurrences, at = 0, first
    while at <= now:
        occurrences += 1
        following = table.next_after(at)
        assert following is not None
        at = following
    assert len(fires) + missed == occurrences if is_exact else len(fires) + missed < occurrences


@pytest.mark.parametrize("catch_up_max", [0, -1, CATCH_UP_MAX + 1, 1.5, True])
def test_a_bound_on_catching_up_must_be_one(catch_up_max: int) -> None:
    with pytest.raises(InputError, match=r"^catch_up_max: "):
        Timetable(Every(60)).plan(NOON, NOON, catch_up="all", catch_up_max=catch_up_max)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match=r"^catch_up: 'some' is none of"):
        Timetable(Every(60)).plan(NOON, NOON, catch_up="some")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^late_s: "):
        Timetable(Every(60)).plan(NOON, NOON, catch_up="none", late_s=-1)


def test_a_preview_says_where_the_clock_turns() -> None:
    table = Timetable(Cron("30 2 * * *", tz="Europe/Berlin", fold="both"))
    notes = [
        (f"{each.wall:%d %H:%M %z}", each.mark, each.note)
        for start in (datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC))
        for each in table.preview(start, 3)
    ]
    assert notes == [
        ("28 02:30 +0100", "", ""),
        ("29 03:00 +0200", "gap", "shifted from 02:30, which does not exist"),
        ("30 02:30 +0200", "", ""),
        ("25 02:30 +0200", "fold", "first of two 02:30"),
        ("25 02:30 +0100", "fold", "second of two 02:30"),
        ("26 02:30 +0100", "", ""),
    ]
    apia = Timetable(Cron("0 9 * * *", tz="Pacific/Apia"))
    (shifted,) = apia.preview(datetime(2011, 12, 30, tzinfo=UTC), 1)
    assert shifted.note == "shifted from 2011-12-30 09:00, which does not exist"


def test_a_preview_of_what_follows_the_clock_marks_no_gap() -> None:
    table = Timetable(Cron("*/30 * * * *", tz="Europe/Berlin"))
    assert {each.mark for each in table.preview(datetime(2026, 3, 28, tzinfo=UTC), 100)} == {""}


def test_a_preview_ends_with_its_timetable() -> None:
    table = Timetable(Every(60), ends_at=NOON)
    assert [each.at for each in table.preview(NOON - 90 * SECOND, 10)] == [NOON - MINUTE, NOON]
    assert table.preview(NOON, 10) == []
    for count in (0, 1_001):
        with pytest.raises(InputError, match=r"^count: "):
            table.preview(NOON, count)


def test_jitter_is_the_same_everywhere_and_spread_evenly() -> None:
    draw = random.Random(3)
    ids = [UUID(int=draw.getrandbits(128)) for _ in range(10_000)]
    delays = [jitter(id, NOON, 10.0) for id in ids]
    assert delays == [jitter(id, NOON.astimezone(timezone(HOUR)), 10.0) for id in ids]
    assert all(0.0 <= delay < 10.0 for delay in delays)
    for tenth in range(10):
        assert 850 < sum(tenth <= delay < tenth + 1 for delay in delays) < 1_150
    assert len({jitter(ids[0], NOON + each * SECOND, 10.0) for each in range(1_000)}) > 990
    assert jitter(uuid4(), NOON, 0.0) == 0.0
    assert jitter(UUID(int=1), NOON, 10.0) == pytest.approx(PINNED_JITTER_S)


PINNED_JITTER_S = 9.049548038  # A release that moved it would fire late what another process fired.


@pytest.mark.parametrize(
    "when", [Cron("0 9 * * *", tz="Europe/Berlin", gap="skip"), Every(90, anchor=NOON), Once(NOON)]
)
def test_a_timetable_survives_being_stored(when: Cron | Every | Once) -> None:
    table = Timetable(when, starts_at=NOON, ends_at=NOON + DAY)
    text = msgspec.json.encode(table)
    assert msgspec.json.decode(text, type=Timetable) == table


def test_a_stored_timetable_that_makes_no_sense_is_an_error_that_names_the_field() -> None:
    text = b'{"when": {"kind": "cron", "expression": "61 * * * *"}}'
    with pytest.raises(msgspec.ValidationError, match="minute '61' is not from 0 to 59"):
        msgspec.json.decode(text, type=Timetable)
