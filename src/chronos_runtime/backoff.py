"""How long to wait before the next try: for a job's attempts and for an actor's restarts."""

import random
from collections.abc import Callable

import msgspec

Random = Callable[[], float]


class Fixed(msgspec.Struct, frozen=True):
    """Always the same delay.

    >>> Fixed(delay_s=10.0)(attempt=3)
    10.0
    """

    delay_s: float

    def __call__(self, attempt: int) -> float:
        """The delay after failed attempt number `attempt`."""
        return self.delay_s


class Exponential(msgspec.Struct, frozen=True):
    """30 s, 1 m, 2 m, 4 m, 8 m, then 15 m, each lengthened at random by up to `jitter` of it.

    The jitter only lengthens, so that the ladder is a floor one can rely on, and it keeps jobs
    that failed together from coming back together.

    >>> [Exponential(jitter=0.0)(attempt) for attempt in (1, 2, 3, 4, 5, 6, 1_000_000)]
    [30.0, 60.0, 120.0, 240.0, 480.0, 900.0, 900.0]
    """

    first_s: float = 30.0
    factor: float = 2.0
    max_s: float = 900.0
    jitter: float = 0.1

    def __call__(self, attempt: int, random: Random = random.random) -> float:
        """The delay after failed attempt number `attempt`, counted from 1."""
        # The exponent is clamped: attempt one million must not overflow a float.
        steps = min(max(attempt - 1, 0), 64)
        return min(self.max_s, self.first_s * self.factor**steps) * (1.0 + self.jitter * random())


Backoff = Callable[[int], float]
