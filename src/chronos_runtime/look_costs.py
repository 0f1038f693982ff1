"""What looks behind the frontier cost, and how long to do without them.

After a look that cost more than a claim from the frontier would have, the next waits fifty times
that cost; but all the waits of a round of looks are no longer than three times `rescan_s`.
"""

from collections import deque

_RESCAN_SHARE = 50  # A look behind the frontier of d seconds is followed by 50 d without one.
_RESCAN_MAX = 3  # … but a round waits no more than three times rescan_s.
_ROWS_REMEMBERED = 5  # Claims over which the usual time per job is averaged.
_ROUNDS_REMEMBERED = 2  # Rounds before this one, by whose cost it is judged.


class LookCosts:
    """The costs of rounds, beside those of claims from the frontier."""

    def __init__(self, rescan_s: float) -> None:
        self._wait_max_s = _RESCAN_MAX * rescan_s
        # From claims that did not look behind: the quickest, and the usual per job.
        self._quickest_s = float("inf")
        self._row_s = 0.0
        self.round_s = 0.0
        """What the round has cost so far."""
        self._wait_left_s = 0.0  # What it may still wait.
        self._last_look_s = 0.0  # What its last look cost.
        self._earlier_rounds_s: deque[float] = deque(maxlen=_ROUNDS_REMEMBERED)

    def note_claim(self, jobs: int, seconds: float) -> None:
        """A claim from the frontier took so long."""
        self._quickest_s = min(self._quickest_s, seconds)
        if jobs:
            self._row_s += (seconds / jobs - self._row_s) / (_ROWS_REMEMBERED if self._row_s else 1)

    def begin_round(self) -> None:
        """A round has cost nothing yet, and may wait."""
        self.round_s, self._wait_left_s, self._last_look_s = 0.0, self._wait_max_s, 0.0

    def note_look(self, jobs: int, seconds: float) -> float:
        """What a look of `seconds` cost beyond a claim from the frontier, for as many jobs.

        The way to the database, and the leasing itself, are paid by every claim. Twice that is no
        news on a busy machine. Without such a claim there is nothing to compare with, and no
        frontier to look behind.
        """
        if self._quickest_s == float("inf"):
            return 0.0
        cost_s = max(seconds - 2 * max(self._quickest_s, jobs * self._row_s), 0.0)
        self.round_s += cost_s
        return cost_s

    def pause_s(self, cost_s: float) -> float:
        """How long not to look behind, after a look of that cost.

        A round as dear as those before it shares its waits evenly among its looks. One dear look
        may have met a busy machine: it counts for no more than whole rounds before it did. Two in
        a row are believed. Or the first dear round, under a snapshot that somebody has just taken,
        would not wait at all: all its looks in a fifth of a second, which it took from the claims.
        """
        rounds_s, before_s = self._earlier_rounds_s, self._last_look_s
        self._last_look_s = cost_s
        believed_s = min(cost_s, max(before_s, min(rounds_s, default=cost_s)))
        if believed_s == 0:
            return 0.0
        times = min(_RESCAN_SHARE, self._wait_max_s / max([cost_s, *rounds_s]))
        pause_s = min(times * believed_s, self._wait_left_s)
        self._wait_left_s -= pause_s
        return pause_s

    def end_round(self) -> None:
        """The round is over; what it cost is remembered, if anybody knows."""
        if self._quickest_s < float("inf"):
            self._earlier_rounds_s.append(self.round_s)
