"""What processors tell: how their runs ended, in the words of their providers, and how long."""

import re

from prometheus_client import CollectorRegistry, Counter, Histogram

from chronos_runtime.actor_metrics import JOB_BOUNDS, PASS_BOUNDS

OUTCOMES_MAX = 50  # Of one processor: words are for people, and each is a series for ever.
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_OTHER = "other"


class ProcessorMetrics:
    """How runs of processors end.

    >>> metrics = ProcessorMetrics(CollectorRegistry())
    >>> metrics.note("push", "rejected")
    'rejected'
    >>> metrics.note("push", "550 no such user")
    'other'
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.runs = Counter(
            "chronos_processor_runs",
            "Runs of processors, by how they ended",
            ["processor", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "chronos_processor_seconds",
            "From the start of a processor to its answer, or to its failure",
            ["processor"],
            buckets=JOB_BOUNDS,
            registry=registry,
        )
        self.wake_deliveries = Counter(
            "chronos_wake_deliveries",
            "Deliveries to URLs, by how they ended",
            ["outcome"],
            registry=registry,
        )
        self.wake_seconds = Histogram(
            "chronos_wake_delivery_seconds",
            "From the start of a delivery to its status, or to its failure",
            buckets=PASS_BOUNDS,
            registry=registry,
        )
        self.supervised = Counter(
            "chronos_supervision_decisions",
            "Failed attempts of supervised tasks, by what their supervisor decided",
            ["supervisor", "decision"],
            registry=registry,
        )
        self._words: dict[str, set[str]] = {}

    def begin(self, processor: str) -> None:
        """Let the counters of a processor begin at zero: a rate needs two points."""
        self._words.setdefault(processor, set())
        self.seconds.labels(processor)
        for outcome in ("succeeded", "failed"):
            self._words[processor].add(outcome)
            self.runs.labels(processor, outcome)

    def note(self, processor: str, outcome: object) -> str:
        """Count one run; the word it was counted under."""
        words = self._words.setdefault(processor, set())
        word = outcome if isinstance(outcome, str) and _WORD.fullmatch(outcome) else _OTHER
        if word not in words and len(words) >= OUTCOMES_MAX:
            word = _OTHER
        words.add(word)
        self.runs.labels(processor, word).inc()
        return word
