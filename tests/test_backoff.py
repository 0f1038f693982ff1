"""The ladder: how long a failed job waits."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronos_runtime.backoff import Exponential, Fixed
from chronos_runtime.checks import checked_delay

# How long an example takes says more about the machine's load than about the code.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

ATTEMPTS = st.integers(1, 2**31 - 1)


def test_the_ladder_doubles_from_half_a_minute_to_a_quarter_of_an_hour() -> None:
    ladder = Exponential(jitter=0.0)
    delays = [ladder(attempt) for attempt in range(1, 9)]
    assert delays == [30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0, 900.0]


@UNHURRIED
@given(ATTEMPTS)
def test_jitter_lengthens_by_a_tenth_at_most_and_never_shortens(attempt: int) -> None:
    floor = Exponential(jitter=0.0)(attempt)
    assert Exponential()(attempt, lambda: 0.0) == floor
    assert Exponential()(attempt, lambda: 1.0) == pytest.approx(floor * 1.1)
    assert floor <= Exponential()(attempt) <= floor * 1.1


def test_jobs_that_failed_together_do_not_come_back_together() -> None:
    assert len({Exponential()(1) for _ in range(100)}) > 90


@pytest.mark.parametrize("attempt", [0, -1, 10**6, 2**31 - 1, 10**30])
def test_no_attempt_number_overflows(attempt: int) -> None:
    delay_s = Exponential()(attempt)
    assert math.isfinite(delay_s)
    assert 30.0 <= delay_s <= 990.0


@UNHURRIED
@given(
    first_s=st.floats(0.001, 3_600),
    factor=st.floats(1.0, 10.0),
    max_s=st.floats(0.001, 86_400),
    jitter=st.floats(0.0, 1.0),
    attempt=ATTEMPTS,
)
def test_every_rung_is_a_delay_that_can_be_written(
    first_s: float, factor: float, max_s: float, jitter: float, attempt: int
) -> None:
    ladder = Exponential(first_s=first_s, factor=factor, max_s=max_s, jitter=jitter)
    delay_s = ladder(attempt)
    assert 0 < delay_s <= max_s * (1 + jitter)
    assert checked_delay(delay_s, "backoff") == delay_s


@UNHURRIED
@given(ATTEMPTS)
def test_a_fixed_backoff_is_the_same_every_time(attempt: int) -> None:
    assert Fixed(delay_s=7.5)(attempt) == 7.5
