"""Every metric is declared once, named by the rules, and bounded in its series."""

import re
import time
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from chronos_runtime.actor_metrics import ActorMetrics
from chronos_runtime.metrics import ACTORS, Metrics
from chronos_runtime.version import VERSION

OWNERS = (*ACTORS, "store", "wake", "processor", "supervision", "build")
# A name ends with what is counted or with a unit. Counters get `_total` on top when scraped.
ENDS = re.compile(
    r"_(jobs|rows|seconds|ratio|state|connections|errors|restarts|rescans|blocks|notifications"
    r"|partitions|deliveries|runs|decisions|occurrences|races|schedules|absences)$"
)
# What comes from a closed set, or is bounded by the surveyor. An id is neither.
LABELS = {
    "topic",
    "kind",
    "place",
    "channel",
    "action",
    "state",
    "lane",
    "outcome",
    "statement",
    "why",
    "le",
}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def claimer(metrics: Metrics) -> ActorMetrics:
    return metrics.actors["claimer"]


def families(metrics: Metrics) -> Iterator[Metric]:
    """Every family as Prometheus parses it."""
    text = generate_latest(metrics.registry).decode()  # type: ignore[no-untyped-call]
    yield from text_string_to_metric_families(text)  # type: ignore[no-untyped-call]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_names_tell_the_actor_and_the_unit(metrics: Metrics) -> None:
    for family in families(metrics):
        prefix, owner, _ = f"{family.name}_".split("_", 2)
        assert prefix == "chronos", family.name
        assert owner in OWNERS, family.name
        assert family.name == "chronos_build" or ENDS.search(family.name), family.name


def test_every_family_says_what_it_is(metrics: Metrics) -> None:
    for family in families(metrics):
        assert len(family.documentation) > 10, family.name


def test_labels_never_hold_ids(metrics: Metrics) -> None:
    for job in (metrics.claimed, metrics.lost, metrics.reaped):
        job.add(("mail", "send"))
    metrics.wait_seconds.observe(("mail", "send"), 1.0)
    metrics.inflight.labels("queued").set(1)
    metrics.depth.labels("mail", "ready").set(1)
    metrics.connections.labels("claim", "used").set(1)
    metrics.observe_statement("claim_jobs", 0.1, answered=False)
    for family in families(metrics):
        if family.name != "chronos_build":
            for sample in family.samples:
                assert set(sample.labels) <= LABELS, sample.name


def test_two_processes_in_one_interpreter_do_not_share_metrics(metrics: Metrics) -> None:
    metrics.actors["claimer"].restarts.inc()
    assert value(Metrics(), "chronos_claimer_restarts_total") == 0


def test_a_pass_is_timed_counted_and_noted(metrics: Metrics, claimer: ActorMetrics) -> None:
    claimer.progressed_at -= 1_000.0
    with claimer.measure() as rows:
        rows(7)
    assert value(metrics, "chronos_claimer_rows_total") == 7
    assert value(metrics, "chronos_claimer_pass_seconds_count") == 1
    last = value(metrics, "chronos_claimer_last_progress_timestamp_seconds")
    assert last == pytest.approx(time.time(), abs=10)


def test_a_pass_that_raises_is_no_progress(metrics: Metrics, claimer: ActorMetrics) -> None:
    claimer.progressed_at -= 1_000.0
    with pytest.raises(RuntimeError), claimer.measure():
        raise RuntimeError
    assert value(metrics, "chronos_claimer_pass_seconds_count") == 0
    last = value(metrics, "chronos_claimer_last_progress_timestamp_seconds")
    assert last == pytest.approx(time.time() - 1_000, abs=10)


def test_a_pass_that_hangs_ages_although_its_actor_rested_before(
    metrics: Metrics, claimer: ActorMetrics
) -> None:
    claimer.progress(resting=True)
    claimer.progressed_at -= 1_000.0
    last = "chronos_claimer_last_progress_timestamp_seconds"
    assert value(metrics, last) == pytest.approx(time.time(), abs=10)
    with claimer.measure():
        assert value(metrics, last) == pytest.approx(time.time() - 1_000, abs=10)


@pytest.mark.parametrize(("pass_s", "rest_s"), [(0.001, 2.0), (0.25, 5.0), (60.0, 10.0)])
def test_dear_sweeps_rest_twenty_times_as_long_but_no_more_than_five_intervals(
    claimer: ActorMetrics, pass_s: float, rest_s: float
) -> None:
    claimer.passes_s.extend([pass_s, 2 * pass_s])
    assert claimer.rest_s(2.0) == pytest.approx(rest_s)
    assert claimer.interval_s == pytest.approx(rest_s)  # So that nobody takes it for dead.


def test_one_sweep_that_was_slow_is_forgiven(claimer: ActorMetrics) -> None:
    claimer.passes_s.extend([0.001, 60.0])
    assert claimer.rest_s(2.0) == pytest.approx(2.0)
    with claimer.measure():
        pass
    assert claimer.rest_s(2.0) == pytest.approx(2.0)


def test_what_a_meter_gathered_is_counted_once_by_whoever_looks(metrics: Metrics) -> None:
    mail = {"topic": "mail", "kind": "send"}
    meter = metrics.meter("mail", "send")
    assert metrics.meter("mail", "send") is meter
    meter.waits += [0.2, 7.0]
    meter.runs.append(0.1)
    for _ in range(2):
        assert value(metrics, "chronos_executor_started_jobs_total", **mail) == 2
        assert value(metrics, "chronos_executor_wait_seconds_count", **mail) == 2
        assert value(metrics, "chronos_executor_wait_seconds_sum", **mail) == pytest.approx(7.2)
        assert value(metrics, "chronos_executor_run_seconds_count", **mail) == 1
    assert (meter.waits, meter.runs) == ([], [])


def test_an_answer_of_the_database_is_noted_and_its_silence_counted(metrics: Metrics) -> None:
    assert metrics.answered_at == 0
    metrics.observe_statement("claim_jobs", 15.0, answered=False)
    assert metrics.answered_at == 0
    metrics.observe_statement("claim_jobs", 0.001, answered=True)
    assert metrics.answered_at == pytest.approx(time.monotonic(), abs=10)
    count, errors = "chronos_store_statement_seconds_count", "chronos_store_statement_errors_total"
    assert value(metrics, count, statement="claim_jobs") == 2
    assert value(metrics, errors, statement="claim_jobs") == 1


def test_the_build_is_told(metrics: Metrics) -> None:
    (sample,) = next(one for one in families(metrics) if one.name == "chronos_build").samples
    assert sample.labels["version"] == VERSION
