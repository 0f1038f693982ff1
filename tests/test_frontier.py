"""The frontier: looks behind it are short, come in rounds, and leave nothing out."""

import itertools

import pytest

from chronos_runtime.frontier import Frontier, Look
from chronos_runtime.job import Job
from chronos_runtime.likeness import Likeness
from tests.actors.bench import make_job

RESCAN_S = 5.0
CLAIM_S = 0.002
DEAD_S = 0.5e-6  # To step over a dead entry, as measured on a slow machine.
MILLION = 1_000_000

Spans = list[tuple[int, int]]


class Process:
    """Claims from one topic and priority, on a clock of its own; dead entries cost time."""

    def __init__(self, highest: int, *, dead: int = 0, ready: tuple[int, ...] = ()) -> None:
        self.frontier = Frontier(["mail"], RESCAN_S)
        self.now = 1_000.0
        self.highest = highest
        self.dead = dead
        """How many of the seqs up to the highest are dead: the last ones."""
        self.ready = set(ready)
        self.room = 100
        self.is_quiet = False
        """Whether claims come back short."""
        self.slow_s = 0.0
        """What the machine takes longer, for a while."""
        self.looks: list[Look] = []
        self.seconds: list[float] = []
        """How long each look took."""
        self.advance(highest)
        self.frontier.note_claim(1, seconds=CLAIM_S, is_short=False)

    def advance(self, highest: int) -> None:
        """Claim a job ahead of the frontier."""
        self.highest = highest
        job = make_job(topic="mail", priority=5, seq=highest)
        self.frontier.advance([job], Likeness.of([job]))

    def look(self) -> Look | None:
        """Take a look, if there is one to take, and the claim that belongs to it."""
        look = self.frontier.look(self.now)
        if look is None:
            return None
        self.frontier.begin_look(look, self.now)
        begins, _ = self.frontier.span("mail", look)
        after, upto = begins[5], self.upto(look)
        found = sorted(seq for seq in self.ready if after < seq <= upto)[: self.room]
        self.ready -= set(found)
        is_full = len(found) == self.room
        reached = found[-1] if is_full else upto
        dead = max(reached - max(after, self.highest - self.dead), 0)
        seconds = CLAIM_S + dead * DEAD_S + self.slow_s
        self.now += seconds
        self.frontier.note_look(
            look,
            [make_job(topic="mail", priority=5, seq=seq) for seq in found],
            is_full=is_full,
            seconds=seconds,
            now=self.now,
        )
        self.looks.append(look)
        self.seconds.append(seconds)
        if look.upto is not None:
            assert self.frontier.look(float("inf")) is None, "first what is new"
            self.claim()
        return look

    def upto(self, look: Look) -> int:
        """The last seq behind the frontier that a look goes over."""
        return self.highest if look.upto is None else look.upto

    def claim(self) -> None:
        """Claim from the frontier."""
        self.now += CLAIM_S
        self.frontier.note_claim(1, seconds=CLAIM_S, is_short=self.is_quiet)

    def round(self) -> Spans:
        """Wait for a round and take all of its looks; what they went over."""
        self.frontier.is_suspect = True
        spans: Spans = []
        for _ in range(10_000):
            self.now = max(self.now, self.frontier.look_after)
            look = self.look()
            assert look is not None
            spans.append((look.after, self.upto(look)))
            if look.after == 0:
                return spans
        raise AssertionError("a round without an end")


def settled(highest: int, *, dead: int) -> Process:
    """A process that has found out what looking behind costs."""
    process = Process(highest, dead=dead)
    for _ in range(5):
        process.round()
    process.looks.clear()
    process.seconds.clear()
    return process


def seqs_once(spans: Spans, highest: int) -> None:
    """Check that looks went over every seq up to the highest, once, downwards."""
    assert spans[0][1] == highest
    assert spans[-1][0] == 0
    assert [after for after, _ in spans[:-1]] == [upto for _, upto in spans[1:]]


def test_a_process_that_has_claimed_nothing_looks_everywhere() -> None:
    frontier = Frontier(["mail", "bulk"], RESCAN_S)
    look = frontier.look(0.0)
    assert look == Look(0, None)
    assert frontier.span("bulk", look) == ([0] * 10, None)


def test_a_claim_between_looks_begins_at_the_frontier() -> None:
    process = Process(70)
    process.round()
    assert process.look() is None
    begins, ends = process.frontier.span("mail", None)
    assert (begins[5], begins[4], ends) == (70, 0, None)


@pytest.mark.parametrize("highest", [MILLION, 100 * MILLION])
def test_no_look_goes_further_than_takes_a_moment(highest: int) -> None:
    """The dead are close to the frontier, however many seqs there were before them."""
    process = settled(highest, dead=MILLION)
    for _ in range(3):
        process.round()
    assert max(process.seconds) < 0.02
    assert len(process.seconds) < 3 * 70


@pytest.mark.parametrize("highest", [MILLION, 100 * MILLION])
@pytest.mark.parametrize("dead", [0, 30_000, MILLION])
def test_the_looks_of_a_round_go_over_every_seq_once(highest: int, dead: int) -> None:
    process = Process(highest, dead=dead)
    for _ in range(4):
        seqs_once(process.round(), highest)


def test_a_round_begins_with_a_look_that_finds_what_is_new_and_no_other_does() -> None:
    process = settled(MILLION, dead=MILLION)
    process.round()
    assert process.looks[0].upto is None
    assert all(look.upto is not None for look in process.looks[1:])
    frontier = process.frontier
    assert frontier.span("mail", process.looks[0])[1] is None
    for look in process.looks[1:]:
        begins, ends = frontier.span("mail", look)
        assert ends is not None
        assert begins[5] < ends[5] < process.highest
        assert (begins[4], ends[4]) == (0, 0), "nothing was claimed there: all of it is new"


def test_each_topic_and_priority_is_looked_at_up_to_its_own_frontier() -> None:
    frontier = Frontier(["mail", "bulk"], RESCAN_S)
    jobs = [
        make_job(topic="mail", priority=2, seq=10),
        make_job(topic="mail", priority=5, seq=90),
        make_job(topic="bulk", priority=5, seq=40),
    ]
    frontier.advance(jobs, Likeness.of(jobs))
    spans = {topic: frontier.span(topic, Look(30, 60)) for topic in ("mail", "bulk")}
    begins, ends = zip(*spans.values(), strict=True)
    assert [(one[2], one[5]) for one in begins] == [(10, 30), (0, 30)]
    assert [(one[2], one[5]) for one in ends if one] == [(10, 60), (0, 40)]


@pytest.mark.parametrize("highest", [40_000, 100 * MILLION])
def test_where_looking_is_cheap_one_look_is_a_round(highest: int) -> None:
    process = Process(highest)
    process.round()
    assert len(process.looks) < 6, "as long as it does not know"
    for _ in range(5):
        assert process.round() == [(0, highest)]


def test_a_look_that_met_a_busy_machine_makes_one_more_look_and_not_a_hundred() -> None:
    process = settled(100 * MILLION, dead=0)
    process.slow_s = 0.5
    process.frontier.is_suspect = True
    assert process.look() is not None
    process.slow_s = 0.0
    assert len(process.round()) < 5
    assert len(process.round()) == 1


def test_what_returned_during_a_round_is_looked_for_in_another() -> None:
    process = settled(MILLION, dead=MILLION)
    process.frontier.is_suspect = True
    process.now = process.frontier.look_after
    process.look()
    process.frontier.is_suspect = True
    while process.looks[-1].after > 0:
        assert process.frontier.wants_look
        process.now = max(process.now, process.frontier.look_after)
        process.look()
    assert process.frontier.is_suspect
    process.now = process.frontier.look_after
    again = process.frontier.look(process.now)
    assert again is not None
    assert again.upto is None


def test_a_short_claim_asks_for_a_round_unless_it_belongs_to_one() -> None:
    process = settled(MILLION, dead=MILLION)
    process.is_quiet = True
    process.claim()
    assert process.frontier.is_suspect
    process.now = process.frontier.look_after
    process.look()
    process.claim()
    assert not process.frontier.is_suspect, "the round goes on behind it"


def test_a_round_ends_on_a_quiet_queue() -> None:
    process = settled(MILLION, dead=MILLION)
    process.is_quiet = True
    process.claim()
    for _ in range(500):
        process.now = max(process.now, process.frontier.look_after)
        if process.frontier.wants_look:
            process.look()
    assert [look.upto for look in process.looks].count(None) == 1
    assert process.looks[-1].after == 0


@pytest.mark.parametrize("dead", [0, MILLION])
def test_a_look_that_finds_as_many_as_it_may_leaves_the_others_to_another_round(dead: int) -> None:
    ready = tuple(range(500, MILLION, 3_001))
    process = Process(MILLION, dead=dead, ready=ready)
    process.room = 10
    for _ in range(500):
        process.now = max(process.now, process.frontier.look_after)
        if not process.frontier.wants_look:
            break
        process.look()
    assert not process.ready
    assert not process.frontier.wants_look


def test_a_look_that_did_not_get_far_does_not_make_the_next_one_longer() -> None:
    process = settled(MILLION, dead=MILLION)
    process.frontier.is_suspect = True
    process.now = process.frontier.look_after
    look = process.frontier.look(process.now)
    assert look is not None
    process.ready = {look.after + number for number in range(1, process.room + 1)}
    for _ in range(3):
        process.look()
        process.now = process.frontier.look_after
    assert process.seconds[0] < 2 * CLAIM_S
    assert max(process.seconds) < 0.02


def test_a_look_that_is_full_of_what_is_new_needs_no_other() -> None:
    """Under load all of them are, and claims have to go back to the frontier."""
    frontier = Frontier(["mail"], RESCAN_S)
    for seq in (1, 2):
        frontier.is_suspect = True
        look = frontier.look(0.0)
        assert look is not None
        frontier.begin_look(look, 0.0)
        job = make_job(topic="mail", priority=5, seq=seq)
        frontier.note_look(look, [job], is_full=True, seconds=0.0, now=0.0)
        frontier.advance([job], Likeness.of([job]))
        assert not frontier.wants_look


def test_a_round_that_began_with_a_failure_begins_again() -> None:
    process = settled(MILLION, dead=MILLION)
    process.frontier.is_suspect = True
    process.now = process.frontier.look_after
    look = process.frontier.look(process.now)
    assert look is not None
    process.frontier.begin_look(look, process.now)
    process.frontier.is_suspect = True  # As the claimer says.
    assert process.frontier.look(process.now) == look


def test_a_look_that_failed_is_taken_again_and_then_a_round() -> None:
    process = settled(MILLION, dead=MILLION)
    process.frontier.is_suspect = True
    process.now = process.frontier.look_after
    process.look()
    process.now = process.frontier.look_after
    look = process.frontier.look(process.now)
    assert look is not None
    assert look.upto is not None
    process.frontier.begin_look(look, process.now)
    process.frontier.is_suspect = True
    assert process.look() == look
    assert process.frontier.is_suspect


def test_looks_take_a_fiftieth_of_the_time() -> None:
    for highest, dead in itertools.product([MILLION, 100 * MILLION], [60_000, 200_000]):
        process = settled(highest, dead=dead)
        began = process.now
        for _ in range(10):
            process.round()
        cost_s = sum(seconds - 2 * CLAIM_S for seconds in process.seconds if seconds > 2 * CLAIM_S)
        assert cost_s < (process.now - began) / 40


def grown_dear() -> Process:
    """A process that knows only cheap rounds, and has now left a million dead entries."""
    process = Process(100)
    for _ in range(3):
        process.round()
    process.looks.clear()
    process.seconds.clear()
    process.dead = MILLION
    process.advance(MILLION)
    return process


def test_the_first_dear_round_takes_its_time_too() -> None:
    process = grown_dear()
    began = process.now
    process.round()
    believed_from = 2
    looks_s = [seconds - 2 * CLAIM_S for seconds in process.seconds[believed_from:]]
    assert len(looks_s) > 10
    assert sum(looks_s) < (process.now - began) / 40


def test_one_dear_look_among_cheap_ones_met_a_busy_machine() -> None:
    process = settled(100 * MILLION, dead=0)
    process.slow_s = 0.5
    process.frontier.is_suspect = True
    assert process.look() is not None
    assert process.frontier.look_after <= process.now


def test_a_look_that_found_jobs_does_not_make_the_next_one_longer() -> None:
    """What stepping over the dead cost it is hidden by what the jobs may have cost."""
    process = grown_dear()
    process.ready = set(range(MILLION - 50, MILLION))
    process.round()
    assert process.seconds[1] < 2 * process.seconds[0]


@pytest.mark.parametrize("dead", [MILLION, 10 * MILLION])
def test_the_waits_of_a_round_are_no_longer_than_three_times_the_pause(dead: int) -> None:
    process = settled(10 * MILLION, dead=dead)
    process.now = began = process.frontier.look_after
    claims = len(process.round()) - 1
    waited_s = process.frontier.look_after - began - sum(process.seconds) - claims * CLAIM_S
    assert waited_s <= 3 * RESCAN_S + 0.001


def test_the_waits_of_a_dear_round_are_shared_evenly_by_its_looks() -> None:
    process = settled(10 * MILLION, dead=10 * MILLION)
    process.frontier.is_suspect = True
    waits_s = []
    while not process.looks or process.looks[-1].after > 0:
        process.now = max(process.now, process.frontier.look_after)
        process.look()
        waits_s.append(process.frontier.look_after - process.now)
    assert len(waits_s) > 100
    assert min(waits_s[:-1]) > 0.5 * max(waits_s) > 0


def gaps_s(process: Process, probes: list[int], end: float) -> float:
    """The longest time that a seq behind the frontier was not looked at."""
    seen_at = dict.fromkeys(probes, process.now)
    longest_s = 0.0
    while process.now < end:
        before = process.now
        look = process.look()
        if look is None:
            process.claim()
        for seq in probes:
            if look is not None and look.after < seq <= process.upto(look):
                longest_s = max(longest_s, process.now - seen_at[seq])
                seen_at[seq] = process.now
        new = int((process.now - before) * 20_000)
        process.dead += new
        process.advance(process.highest + new)
    return max(longest_s, process.now - min(seen_at.values()))


@pytest.mark.parametrize("highest", [MILLION, 20 * MILLION])
@pytest.mark.parametrize("dead", [0, MILLION])
def test_nothing_is_overlooked_for_longer_than_four_times_the_pause(
    highest: int, dead: int
) -> None:
    """Nobody says that it is there, and twenty thousand jobs a second leave their dead entries."""
    process = settled(highest, dead=dead)
    end = process.now + 60.0
    probes = [1, highest // 3, highest - dead // 2, highest - 10, highest]
    looks_s = 1.0
    assert gaps_s(process, probes, end) <= 4 * RESCAN_S + looks_s


def test_a_job_at_the_frontier_was_behind_it() -> None:
    """It may have taken the room of one that is less urgent."""
    frontier = Frontier(["mail"], RESCAN_S)
    jobs = [make_job(topic="mail", priority=priority, seq=70) for priority in (1, 9)]
    frontier.advance(jobs, Likeness.of(jobs))
    look = frontier.look(0.0)
    assert look is not None
    frontier.begin_look(look, 0.0)
    frontier.note_look(look, jobs[:1], is_full=True, seconds=0.0, now=0.0)
    assert frontier.is_suspect


def test_a_job_is_behind_only_its_own_frontier() -> None:
    """A low priority lags: what is new there has lower seqs than what was claimed elsewhere."""
    frontier = Frontier(["mail"], RESCAN_S)
    urgent: list[Job] = [make_job(topic="mail", priority=1, seq=MILLION)]
    frontier.advance(urgent, Likeness.of(urgent))
    look = frontier.look(0.0)
    assert look is not None
    frontier.begin_look(look, 0.0)
    late = make_job(topic="mail", priority=9, seq=10)
    frontier.note_look(look, [late], is_full=True, seconds=0.0, now=0.0)
    assert not frontier.is_suspect
