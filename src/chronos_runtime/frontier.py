"""The frontier: where the next claim begins to look, and when one looks behind it.

Claimed rows leave dead entries at the head of the ready index until vacuum comes, and while an old
snapshot is held it cannot. So the highest seq claimed is remembered per topic and priority, and the
next scan starts there. That is a hint, never the truth: a claim looks behind the frontier when one
came back short, when something may have become ready there, and every `rescan_s`. After a look
that cost more than a claim from the frontier would have, the next waits fifty times that cost, but
no longer than three times `rescan_s`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter

from chronos_runtime.job import PRIORITIES, Job
from chronos_runtime.likeness import Likeness

_RESCAN_SHARE = 50  # A look behind the frontier of d seconds is followed by 50 d without one.
_RESCAN_MAX = 3  # … but for no more than three times rescan_s.
_ROWS_REMEMBERED = 5  # Claims over which the usual time per job is averaged.
_LOOKS_JUDGED = 3  # The cheapest of the last looks counts: one that met a busy machine does not.
_ZEROS = [0] * PRIORITIES

_place = attrgetter("topic", "priority")
_seq = attrgetter("seq")


class Frontier:
    """Where claims begin, topic by topic. Instants are of the caller's monotonic clock.

    >>> frontier = Frontier(["mail"], rescan_s=5.0)
    >>> frontier.may_look_behind(now=0.0)
    True
    """

    def __init__(self, topics: Iterable[str], rescan_s: float) -> None:
        self._rescan_s = rescan_s
        self._seqs = {topic: [0] * PRIORITIES for topic in topics}
        self.is_suspect = True
        """Whether something behind it may be ready."""
        self.look_after = 0.0
        """Before this, looking behind is too dear."""
        self._look_by = 0.0  # When to look behind with no reason.
        # From claims that did not look behind: the quickest, and the usual per job.
        self._quickest_s = float("inf")
        self._row_s = 0.0
        self._look_costs: deque[float] = deque(maxlen=_LOOKS_JUDGED)

    def may_look_behind(self, now: float) -> bool:
        """Whether the next claim looks behind."""
        return (self.is_suspect or now > self._look_by) and now >= self.look_after

    def of(self, topic: str, *, looks_behind: bool) -> list[int]:
        """Where a claim begins, priority by priority."""
        return _ZEROS if looks_behind else self._seqs[topic]

    def advance(self, jobs: Sequence[Job], likeness: Likeness) -> None:
        """These were claimed, by priority, then by seq: the last one of each is the highest."""
        if not jobs:
            return
        last = jobs[-1]
        if likeness.topic is not None and jobs[0].priority == last.priority:
            highest = {_place(last): last.seq}  # The usual case, where all cost 0.1 µs a job.
        else:
            highest = dict(zip(map(_place, jobs), map(_seq, jobs), strict=True))
        for (topic, priority), seq in highest.items():
            seqs = self._seqs[topic]
            seqs[priority] = max(seqs[priority], seq)

    def note_look(self, jobs: int, *, seconds: float, now: float) -> None:
        """A claim that looked behind took so long, and found so many jobs."""
        self.look_after = now + self._pause_s(jobs, seconds)
        self._look_by = max(now + self._rescan_s, self.look_after)

    def note_claim(self, jobs: int, *, seconds: float, is_short: bool) -> None:
        """A claim from the frontier took so long; one that came back short has to look behind."""
        self._quickest_s = min(self._quickest_s, seconds)
        if jobs:
            self._row_s += (seconds / jobs - self._row_s) / (_ROWS_REMEMBERED if self._row_s else 1)
        self.is_suspect = self.is_suspect or is_short

    def _pause_s(self, jobs: int, seconds: float) -> float:
        """How long not to look behind again, after a look of `seconds`.

        It cost what it took beyond a claim from the frontier, for as many jobs: the way to the
        database, and the leasing itself, are paid by every claim. Twice that is no news on a busy
        machine. Without such a claim there is nothing to compare with, and no frontier to look
        behind.
        """
        if self._quickest_s == float("inf"):
            return 0.0
        usual_s = max(self._quickest_s, jobs * self._row_s)
        self._look_costs.append(max(seconds - 2 * usual_s, 0.0))
        return min(min(self._look_costs) * _RESCAN_SHARE, _RESCAN_MAX * self._rescan_s)
