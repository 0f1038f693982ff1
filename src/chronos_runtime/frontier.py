"""The frontier: where the next claim begins to look, and when one looks behind it.

Claimed rows leave dead entries at the head of the ready index until vacuum comes, and while an old
snapshot is held it cannot. So the highest seq claimed is remembered per topic and priority, and the
next scan starts there. That is a hint, never the truth: claims look behind the frontier when one
came back short, when something may have become ready there, and every `rescan_s`.

To step over a million dead entries takes half a second on a slow machine, and no job is claimed
meanwhile. So looks come in rounds. The first one begins a stretch behind the frontier and goes on
beyond it, as any claim; each further one goes over the stretch before that, down to the first seq
of all; claims from the frontier come in between. A stretch is as long as takes a moment: short
among the dead, which are close to the frontier, and ever longer where there are none. Where vacuum
is not held up, the first look reaches all the way, and is the whole round.

How long looks wait for each other follows from what they cost (`look_costs.py`).
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from chronos_runtime.job import PRIORITIES, Job
from chronos_runtime.likeness import Likeness
from chronos_runtime.look_costs import LookCosts

_LOOK_S = 0.01  # What a look may cost: as much as a claim of two thousand jobs.
_STRETCH = 50_000  # Seqs that the first look goes over, if there are as many: 8 to 25 ms, if dead.
_STRETCH_MIN = 5_000
_GROWTH_MAX = 8  # After a look that cost nothing, the next goes so many times as far.

_place = attrgetter("topic", "priority")
_seq = attrgetter("seq")


class Look(NamedTuple):
    """One look of a round: which seqs it goes over."""

    after: int
    upto: int | None
    """None: it is the first of its round, and goes on to what is new. Others find nothing new."""


class Frontier:
    """Where claims begin, topic by topic. Instants are of the caller's monotonic clock.

    >>> frontier = Frontier(["mail"], rescan_s=5.0)
    >>> frontier.look(now=0.0)
    Look(after=0, upto=None)
    """

    def __init__(self, topics: Iterable[str], rescan_s: float) -> None:
        self._rescan_s = rescan_s
        self._seqs = {topic: [0] * PRIORITIES for topic in topics}
        self.is_suspect = True
        """Whether something behind it may be ready that the round under way may have missed."""
        self.look_after = 0.0
        """Before this, looking behind is too dear."""
        self._look_by = 0.0  # When to begin a round with no reason.
        # Of the round under way, or the last one:
        self._top = 0  # The highest frontier when it began.
        self._unseen = 0  # Up to this seq it has not looked yet.
        self._left_out_new = False  # Its last look did: the next claim begins at the frontier.
        self._stretch = _STRETCH  # How far the next look goes …
        self._first_stretch = _STRETCH  # … and the first one of the next round.
        self._costs = LookCosts(rescan_s)

    @property
    def wants_look(self) -> bool:
        """Whether there is a reason to look behind, as soon as that is affordable."""
        return self.is_suspect or self._unseen > 0

    def look(self, now: float) -> Look | None:
        """The look that the next claim takes; None: it begins at the frontier."""
        if self._left_out_new or now < self.look_after:
            return None
        if not self.wants_look and now <= self._look_by:
            return None
        if self._unseen:
            return Look(max(self._unseen - self._stretch, 0), self._unseen)
        return Look(max(self._highest - self._stretch, 0), None)

    def span(self, topic: str, look: Look | None) -> tuple[list[int], list[int] | None]:
        """Where a claim looks, priority by priority: beyond which seqs, and up to which, if any."""
        seqs = self._seqs[topic]
        if look is None:
            return seqs, None
        begins = [min(seq, look.after) for seq in seqs]
        return begins, None if look.upto is None else [min(seq, look.upto) for seq in seqs]

    def begin_look(self, look: Look, now: float) -> None:
        """It is about to be taken. What returns once a round has begun asks for another one."""
        if look.upto is None:
            self.is_suspect = False
            self._look_by = now + self._rescan_s
            self._top = self._highest
            self._costs.begin_round()

    def note_look(
        self, look: Look, jobs: Sequence[Job], *, is_full: bool, seconds: float, now: float
    ) -> None:
        """A claim that looked behind took so long and found these jobs, as many as it may or not.

        To be told before `advance`. A look that found as many as it may, and some of them behind
        the frontier, may have left others there: they are found by another round.
        """
        left_some = is_full and any(map(self._is_behind, jobs))
        self.is_suspect = self.is_suspect or left_some
        cost_s = self._costs.note_look(len(jobs), seconds)
        self.look_after = now + self._costs.pause_s(cost_s)
        self._adapt_stretch(look, cost_s, is_clear=not jobs, left_some=left_some)
        self._left_out_new = look.upto is not None
        self._unseen = look.after
        if self._unseen == 0:
            self._costs.end_round()

    def note_claim(self, jobs: int, *, seconds: float, is_short: bool) -> None:
        """A claim from the frontier took so long; one that came back short has to look behind.

        Unless it belongs to a round, which does that. Or rounds would never end on a quiet queue.
        """
        self._costs.note_claim(jobs, seconds)
        if is_short and not self._unseen and not self._left_out_new:
            self.is_suspect = True
        self._left_out_new = False

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

    @property
    def _highest(self) -> int:
        return max(map(max, self._seqs.values()), default=0)

    def _is_behind(self, job: Job) -> bool:
        return job.seq <= self._seqs[job.topic][job.priority]

    def _adapt_stretch(self, look: Look, cost_s: float, *, is_clear: bool, left_some: bool) -> None:
        """Let the next look go as far as takes a moment, and the first one of the next round.

        Only what a look cost that found no jobs is clear enough to go further than it did.
        """
        is_first, is_last = look.upto is None, look.after == 0
        seqs = (self._top if look.upto is None else look.upto) - look.after
        stretch = self._next_stretch(0 if left_some else seqs, cost_s)
        self._stretch = stretch if is_clear else min(stretch, self._stretch)
        if is_first:
            self._first_stretch = self._stretch
        if is_last:
            self._stretch = self._first_stretch
        if is_last and self._costs.round_s <= _LOOK_S:  # One look could have been all of it.
            self._stretch = self._next_stretch(self._top, self._costs.round_s)

    def _next_stretch(self, seqs: int, cost_s: float) -> int:
        """As many as would take a moment, judging by a look that went over so many."""
        moment = int(seqs * _LOOK_S / max(cost_s, _LOOK_S / _GROWTH_MAX))
        return max(moment, _STRETCH_MIN if cost_s > _LOOK_S else self._stretch)
