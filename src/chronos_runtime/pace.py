"""How fast jobs end while there is something to do: by that the claimer claims ahead."""

from collections import deque

from chronos_runtime.inflight import Inflight

_WINDOW_S = 0.2
_SHORTEST_S = 0.01  # A hundred jobs that end in a moment tell of ten thousand a second, no more.
_SAMPLES_MAX = 256


class Pace:
    """Handlers ended per second, over the last moments in which any job was queued or running.

    Ends, not starts: a hundred free slots that fill in a millisecond say nothing about how soon
    they will be free again. And not per second of the clock on the wall: a process that waits for
    its claim is no slower for it, and would ask for less the longer it waits. (By the wall, a
    drain reached its full speed with the fourth claim; so, it does with the third.)
    """

    def __init__(self, inflight: Inflight) -> None:
        self._inflight = inflight
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES_MAX)

    def measure(self) -> float:
        """Take a sample; the pace up to now."""
        busy_s, ended = self._inflight.busy_s, self._inflight.reporting + self._inflight.settled
        samples = self._samples
        if not samples or samples[-1][1] < ended:
            samples.append((busy_s, ended))
        while len(samples) > 2 and samples[1][0] < busy_s - _WINDOW_S:
            samples.popleft()
        since, before = samples[0]
        return (ended - before) / max(busy_s - since, _SHORTEST_S)
