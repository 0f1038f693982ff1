"""The exporter tells the truth about the process, over real HTTP, and lets go when told to."""

import socket
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from types import SimpleNamespace

import anyio
import anyio.to_thread
import httpx
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from chronos_runtime.actors.exporter import Exporter
from chronos_runtime.config import ExporterConfig
from chronos_runtime.errors import ConfigError
from chronos_runtime.metrics import ACTORS, Metrics
from tests.eventually import eventually

THREAD = "chronos-exporter"
LONG_AGO_S = 1_000.0
PROMPT_S = 1.0  # Twenty times what a stop takes: a busy machine is no failure.


def do_nothing() -> None:
    pass


@asynccontextmanager
async def serving(
    metrics: Metrics, refresh: Callable[[], None] = do_nothing
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an exporter that serves until the block is left."""
    exporter = Exporter(ExporterConfig(port=0), metrics, refresh=refresh)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exporter.run)
        await eventually(lambda: exporter.url)
        async with httpx.AsyncClient(base_url=exporter.url, trust_env=False) as client:
            yield client
        tasks.cancel_scope.cancel()


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of a process in good health."""
    metrics = Metrics()
    metrics.observe_statement("claim_jobs", 0.001, answered=True)
    return metrics


async def test_every_actor_has_its_four_families(metrics: Metrics) -> None:
    async with serving(metrics) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200
    names = {family.name for family in parse_text(answer.text)}
    for actor in ACTORS:
        for what in ("restarts", "pass_seconds", "rows", "last_progress_timestamp_seconds"):
            assert f"chronos_{actor}_{what}" in names


async def test_prometheus_gets_openmetrics_when_it_asks(metrics: Metrics) -> None:
    metrics.claimed.add(("mail", "send"), 3)
    metrics.wait_seconds.observe(("mail", "send"), 0.2)
    accept = "application/openmetrics-text; version=1.0.0"
    async with serving(metrics) as client:
        answer = await client.get("/metrics", headers={"Accept": accept})
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    parsed = parse_openmetrics(answer.text)  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    (sample,) = families["chronos_claimer_claimed_jobs"].samples
    assert (sample.labels, sample.value) == ({"topic": "mail", "kind": "send"}, 3)


async def test_a_scrape_sees_fresh_gauges(metrics: Metrics) -> None:
    scrapes = iter(range(1_000))
    async with serving(metrics, lambda: metrics.claim_ahead.set(next(scrapes))) as client:
        seen = [_value((await client.get("/metrics")).text) for _ in range(2)]
    assert seen[0] < seen[1]


def _value(text: str) -> float:
    return next(
        sample.value
        for family in parse_text(text)
        for sample in family.samples
        if sample.name == "chronos_claimer_ahead_jobs"
    )


async def test_an_actor_at_rest_does_not_age(metrics: Metrics) -> None:
    metrics.actors["reporter"].progress(resting=True)
    metrics.actors["reporter"].progressed_at -= LONG_AGO_S
    metrics.actors["claimer"].progressed_at -= LONG_AGO_S
    async with serving(metrics) as client:
        families = list(parse_text((await client.get("/metrics")).text))
    ages = {
        family.name.split("_")[1]: time.time() - family.samples[0].value
        for family in families
        if family.name.endswith("_last_progress_timestamp_seconds")
    }
    assert ages["reporter"] < 60
    assert ages["claimer"] >= LONG_AGO_S


async def test_a_blocked_event_loop_cannot_hide_itself(metrics: Metrics) -> None:
    async with serving(metrics) as client:
        await client.get("/healthz")
        assert _ask_without_the_loop(f"{client.base_url}/healthz") == b"ok\n"
        assert b"chronos_build_info" in _ask_without_the_loop(f"{client.base_url}/metrics")


def _ask_without_the_loop(url: str) -> bytes:
    """Called from a coroutine, this is what a handler does that blocks."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body


async def test_it_serves_although_handlers_hold_every_thread_of_the_pool(metrics: Metrics) -> None:
    limiter = anyio.to_thread.current_default_thread_limiter()
    total, limiter.total_tokens = limiter.total_tokens, 1
    try:
        async with limiter, serving(metrics) as client:
            assert (await client.get("/healthz")).status_code == 200
    finally:
        limiter.total_tokens = total


async def test_alive_is_not_ready_before_the_database_answered() -> None:
    async with serving(Metrics()) as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text == "database: no answer lately\n"


def test_a_machine_that_just_booted_is_not_ready_either(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Exporter(ExporterConfig(), Metrics(), refresh=do_nothing)
    monkeypatch.setattr("chronos_runtime.actors.exporter.time", SimpleNamespace(monotonic=float))
    assert exporter.troubles() == ["database: no answer lately"]  # Zero may mean now: not here.


async def test_ready_when_the_database_answers_and_everybody_moves(metrics: Metrics) -> None:
    async with serving(metrics) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.text) == (200, "ready\n")


async def test_not_ready_when_the_database_stopped_answering(metrics: Metrics) -> None:
    metrics.answered_at -= LONG_AGO_S
    metrics.observe_statement("claim_jobs", 15.0, answered=False)
    async with serving(metrics) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "database: no answer lately\n")


@pytest.mark.parametrize("actor", [actor for actor in ACTORS if actor != "exporter"])
async def test_a_stale_actor_is_named(metrics: Metrics, actor: str) -> None:
    metrics.actors[actor].progressed_at -= LONG_AGO_S
    async with serving(metrics) as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, f"{actor}: no progress for 1000 s\n")


async def test_an_actor_at_rest_is_not_stale(metrics: Metrics) -> None:
    metrics.actors["reporter"].progress(resting=True)
    metrics.actors["reporter"].progressed_at -= LONG_AGO_S
    async with serving(metrics) as client:
        assert (await client.get("/readyz")).status_code == 200


async def test_an_unknown_page_names_the_known_ones(metrics: Metrics) -> None:
    async with serving(metrics) as client:
        answer = await client.get("/jobs/1")
    assert (answer.status_code, answer.text) == (404, "/metrics /healthz /readyz\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_can_be_written(metrics: Metrics, method: str) -> None:
    async with serving(metrics) as client:
        answer = await client.request(method, "/metrics")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
async def test_head_answers_like_get_without_a_body(metrics: Metrics, path: str) -> None:
    async with serving(metrics) as client:
        answer = await client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        yield holder.getsockname()[1]


async def test_a_port_in_use_names_the_key_and_the_fix(metrics: Metrics, taken_port: int) -> None:
    exporter = Exporter(ExporterConfig(port=taken_port), metrics, refresh=do_nothing)
    with pytest.raises(ConfigError, match=r"^exporter\.port: .*in use.*choose another"):
        await exporter.run()


async def test_a_stop_frees_thread_and_port_at_once(metrics: Metrics) -> None:
    async with serving(metrics) as client:
        await client.get("/healthz")
        port = client.base_url.port
        assert port is not None
        stopping = time.monotonic()
    assert time.monotonic() - stopping < PROMPT_S
    assert THREAD not in {thread.name for thread in threading.enumerate()}
    with closing(socket.create_server(("127.0.0.1", port))):
        pass


async def test_a_silent_client_does_not_hold_up_the_stop(metrics: Metrics) -> None:
    async with serving(metrics) as client:
        silent = socket.create_connection(("127.0.0.1", client.base_url.port or 0))
        await client.get("/healthz")  # Accepted after the silent one.
        stopping = time.monotonic()
    assert time.monotonic() - stopping < PROMPT_S
    silent.close()


def test_a_stop_in_the_first_moment_does_not_deadlock(metrics: Metrics) -> None:
    exporter = Exporter(ExporterConfig(port=0), metrics, refresh=do_nothing)

    async def start_and_stop() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exporter.run)
            tasks.cancel_scope.cancel()

    # On a thread of its own: a deadlock would otherwise hang the tests, not fail them.
    thread = threading.Thread(target=anyio.run, args=(start_and_stop,), daemon=True)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive()


async def test_a_crash_frees_the_port_for_the_restart(metrics: Metrics) -> None:
    def break_down() -> None:
        raise RuntimeError("no gauges today")

    exporter = Exporter(ExporterConfig(port=0), metrics, refresh=break_down)
    with pytest.raises(RuntimeError, match="no gauges today"):
        await exporter.run()
    port = int(exporter.url.rpartition(":")[2])
    with closing(socket.create_server(("127.0.0.1", port))):
        pass
