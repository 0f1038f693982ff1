"""What the tallies sum on the hot path is what Prometheus reads."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from chronos_runtime.likeness import UNLIKE, Likeness
from chronos_runtime.tally import Spread, Tally, count_labels
from tests.actors.bench import make_jobs

BY_JOB = ("topic", "kind")
BOUNDS = (0.1, 1, 10)
MAIL = ("mail", "send")

HOSTILE = [
    'say "hello"',
    "back\\slash",
    "two\nlines",
    "{topic='x'}",
    'quote"} 1\nchronos_fake_total{a="',
    "",
    "ünïcödé 🕰",
    "tab\tand\rreturn",
    "# HELP nothing",
]


def in_text(registry: CollectorRegistry) -> dict[str, Metric]:
    return {family.name: family for family in parse_text(generate_latest(registry).decode())}


def in_openmetrics(registry: CollectorRegistry) -> dict[str, Metric]:
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    parsed = parse_openmetrics(text)  # type: ignore[no-untyped-call]
    return {family.name: family for family in parsed}


Read = Callable[[CollectorRegistry], dict[str, Metric]]
FORMATS = pytest.mark.parametrize("read", [in_text, in_openmetrics])


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def tally(registry: CollectorRegistry) -> Tally:
    return Tally(registry, "chronos_claimer_claimed_jobs", "Jobs claimed", BY_JOB)


@pytest.fixture
def spread(registry: CollectorRegistry) -> Spread:
    return Spread(registry, "chronos_executor_wait_seconds", "Waited", BY_JOB, BOUNDS)


def test_a_tally_counts_by_labels(tally: Tally) -> None:
    tally.add(MAIL)
    tally.add(MAIL, 4)
    tally.add(("mail", "sort"), 2)
    assert tally.value(*MAIL) == 5
    assert tally.value("mail", "never") == 0
    assert tally.total == 7


@FORMATS
def test_a_tally_is_a_counter(registry: CollectorRegistry, tally: Tally, read: Read) -> None:
    tally.add(MAIL, 5)
    tally.add(("mail", "sort"), 2)
    family = read(registry)["chronos_claimer_claimed_jobs"]
    assert (family.type, family.documentation) == ("counter", "Jobs claimed")
    assert {
        (sample.name, sample.labels["topic"], sample.labels["kind"], sample.value)
        for sample in family.samples
    } == {
        ("chronos_claimer_claimed_jobs_total", "mail", "send", 5),
        ("chronos_claimer_claimed_jobs_total", "mail", "sort", 2),
    }


@FORMATS
def test_a_zero_shows_so_that_the_first_one_counts(
    registry: CollectorRegistry, tally: Tally, read: Read
) -> None:
    tally.add(MAIL, 0)
    (sample,) = read(registry)["chronos_claimer_claimed_jobs"].samples
    assert sample.value == 0


@FORMATS
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_labels(
    registry: CollectorRegistry, tally: Tally, spread: Spread, read: Read, name: str
) -> None:
    tally.add((name, name), 3)
    spread.observe((name, name), 0.5)
    families = read(registry)
    assert set(families) == {tally.name, spread.name}
    (sample,) = families[tally.name].samples
    assert (sample.labels, sample.value) == ({"topic": name, "kind": name}, 3)
    for sample in families[spread.name].samples:
        assert (sample.labels["topic"], sample.labels["kind"]) == (name, name)


@FORMATS
def test_the_buckets_of_a_spread_are_cumulative(
    registry: CollectorRegistry, spread: Spread, read: Read
) -> None:
    for value in (0.05, 0.1, 0.5, 1.0, 1.001, 99.0):  # A bound belongs to its own bucket.
        spread.observe(MAIL, value)
    family = read(registry)[spread.name]
    assert family.type == "histogram"
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert buckets == {"0.1": 2, "1.0": 4, "10.0": 5, "+Inf": 6}
    values = {s.name.rpartition("_")[2]: s.value for s in family.samples if "le" not in s.labels}
    assert values["count"] == 6
    assert values["sum"] == pytest.approx(101.651)


@given(st.lists(st.floats(min_value=0, max_value=1e6), max_size=50))
def test_a_spread_says_what_a_histogram_of_the_official_client_says(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread(ours, "seconds", "Waited", BY_JOB, BOUNDS)
    histogram = Histogram("seconds", "Waited", BY_JOB, buckets=BOUNDS, registry=theirs)
    for value in values:
        spread.observe(MAIL, value)
        histogram.labels(*MAIL).observe(value)
    assert _samples(ours) == _samples(theirs)


def _samples(registry: CollectorRegistry) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, dict(sample.labels), sample.value)
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def test_a_quantile_of_nothing_is_zero(spread: Spread) -> None:
    assert spread.quantile(0.99) == 0.0


@pytest.mark.parametrize(
    ("q", "bound"), [(0.0, 0.1), (0.5, 0.1), (0.51, 1), (0.9, 1), (0.95, 10), (1.0, math.inf)]
)
def test_a_quantile_is_the_bound_of_its_bucket_over_all_labels(
    spread: Spread, q: float, bound: float
) -> None:
    spread.observe(MAIL, 50.0)
    for value in [0.01] * 50 + [0.5] * 40 + [5.0] * 9:
        spread.observe(("mail", "sort"), value)
    assert spread.quantile(q) == bound


@given(
    st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=50),
    st.floats(min_value=0, max_value=1),
)
def test_a_quantile_is_never_below_the_true_one(values: list[float], q: float) -> None:
    spread = Spread(CollectorRegistry(), "seconds", "Waited", BY_JOB, BOUNDS)
    for value in values:
        spread.observe(MAIL, value)
    true = sorted(values)[max(math.ceil(q * len(values)) - 1, 0)]
    assert spread.quantile(q) == (*BOUNDS, math.inf)[bisect_left(BOUNDS, true)]


def test_registering_twice_is_refused(registry: CollectorRegistry, tally: Tally) -> None:
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Tally(registry, tally.name, "Again", BY_JOB)


def test_a_scrape_may_come_while_the_loop_counts(
    registry: CollectorRegistry, tally: Tally, spread: Spread, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counters(CounterMetricFamily):
        def add_metric(self, labels: Sequence[str], *rest: Any) -> None:
            tally.add((labels[0], f"{labels[1]} again"))  # As if threads took turns right here.
            super().add_metric(labels, *rest)

    class Histograms(HistogramMetricFamily):
        def add_metric(self, labels: Sequence[str], *rest: Any) -> None:
            spread.observe((labels[0], f"{labels[1]} again"), 0.5)
            super().add_metric(labels, *rest)

    monkeypatch.setattr("chronos_runtime.tally.CounterMetricFamily", Counters)
    monkeypatch.setattr("chronos_runtime.tally.HistogramMetricFamily", Histograms)
    tally.add(MAIL)
    spread.observe(MAIL, 0.5)
    scrapes = [len(_samples(registry)) for _ in range(3)]
    assert scrapes == [7, 14, 21]  # A counter and six samples of a histogram for each label.


def test_jobs_are_counted_by_topic_and_kind() -> None:
    jobs = make_jobs(2, topic="mail", kind="send") + make_jobs(1, topic="mail", kind="bill")
    counts = {("mail", "send"): 2, ("mail", "bill"): 1}
    assert dict(count_labels(jobs, UNLIKE)) == counts
    assert dict(count_labels(jobs, Likeness("mail", None))) == counts
    assert dict(count_labels(jobs[:2], Likeness("mail", "send"))) == {("mail", "send"): 2}
    assert dict(count_labels([], UNLIKE)) == {}
