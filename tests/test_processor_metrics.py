"""Outcomes are the words of providers, and yet no more series than a scrape can bear."""

from prometheus_client import CollectorRegistry

from chronos_runtime.processor_metrics import OUTCOMES_MAX, ProcessorMetrics


def test_no_processor_has_more_words_than_the_bound() -> None:
    registry = CollectorRegistry()
    metrics = ProcessorMetrics(registry)
    words = {metrics.note("push", f"word_{number}") for number in range(2 * OUTCOMES_MAX)}
    assert len(words) == OUTCOMES_MAX + 1
    labels = {"processor": "push", "outcome": "other"}
    assert registry.get_sample_value("chronos_processor_runs_total", labels) == OUTCOMES_MAX
    assert metrics.note("push", "word_0") == "word_0"
    assert metrics.note("mail", "word_99") == "word_99"


def test_what_is_no_word_is_counted_as_other() -> None:
    metrics = ProcessorMetrics(CollectorRegistry())
    for outcome in ("", "550 no", "ümlaut", "Rejected", "x" * 41, "a\n", None, 7):
        assert metrics.note("push", outcome) == "other"


def test_a_processor_begins_at_zero() -> None:
    registry = CollectorRegistry()
    ProcessorMetrics(registry).begin("push")
    for outcome in ("succeeded", "failed"):
        labels = {"processor": "push", "outcome": outcome}
        assert registry.get_sample_value("chronos_processor_runs_total", labels) == 0
