"""What every actor tells about its passes, and how long it may rest between two of them."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PASS_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
JOB_BOUNDS = (*PASS_BOUNDS, 30, 60, 300, 900, 3600)

_PASS_SHARE = 20  # A pass of d seconds is followed by a rest of 20 d: a twentieth of the time.
_REST_MAX = 5  # But no longer than five intervals.


class ActorMetrics:
    """What every actor tells: how often it restarted, how long a pass took, when it last moved."""

    def __init__(self, registry: CollectorRegistry, actor: str) -> None:
        prefix = f"chronos_{actor}"
        self.restarts = Counter(
            f"{prefix}_restarts", f"Times the {actor} was restarted", registry=registry
        )
        self.pass_seconds = Histogram(
            f"{prefix}_pass_seconds",
            f"Duration of one pass of the {actor}",
            buckets=PASS_BOUNDS,
            registry=registry,
        )
        self.rows = Counter(
            f"{prefix}_rows", f"Rows the {actor} handled in its passes", registry=registry
        )
        self.last_progress = Gauge(
            f"{prefix}_last_progress_timestamp_seconds",
            f"When the {actor} last finished a pass; now, while it rests",
            registry=registry,
        )
        self.last_progress.set_function(self._last_progress)
        self.progressed_at = time.monotonic()
        self.interval_s = 0.0
        """How long it sleeps between two passes, at the most."""
        self.passes_s = deque([0.0, 0.0], maxlen=2)
        """How long the last two passes took."""
        self.is_resting = False
        """Waiting for input that may never come: not progress, but no reason to worry."""

    def progress(self, *, resting: bool = False) -> None:
        """Note that the actor is alive and, perhaps, has nothing to do."""
        self.progressed_at = time.monotonic()
        self.is_resting = resting

    def _last_progress(self) -> float:
        """What a scrape is told; one that never moved is as old as the process."""
        age_s = 0.0 if self.is_resting else time.monotonic() - self.progressed_at
        return time.time() - age_s

    @contextmanager
    def measure(self) -> Iterator[Callable[[int], None]]:
        """Time one pass; call what it yields with the rows handled.

        A pass that raises is no progress.
        """
        self.is_resting = False
        started = time.monotonic()
        yield self.rows.inc
        self.passes_s.append(time.monotonic() - started)
        self.pass_seconds.observe(self.passes_s[-1])
        self.progress()

    def rest_s(self, interval_s: float) -> float:
        """How long to sleep after a sweep: its interval, or longer after two that were dear.

        While an old snapshot keeps vacuum from its work, a sweep walks over all that is dead: half
        a second for a million finished jobs. It may be late then, but it never takes over. One pass
        that waited for a stalled disk tells nothing of what sweeps cost (seen: reaping 4 s late).
        """
        dear_s = _PASS_SHARE * min(self.passes_s)
        self.interval_s = max(interval_s, min(dear_s, _REST_MAX * interval_s))
        return self.interval_s
