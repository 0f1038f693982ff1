"""What the code says about schedules is taken over when a process starts, and no more than that."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chronos_runtime import Chronos, Client, Job, MemoryStore
from chronos_runtime.errors import InputError, PayloadError, UnknownKind
from chronos_runtime.schedule import Definition, Schedule
from chronos_runtime.synchronise import synchronise
from tests.actors.bench import on_both_loops

START = datetime(2027, 1, 15, 8, tzinfo=UTC)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=START.timestamp)


def daily(**changes: Any) -> Definition:
    plain: dict[str, Any] = {"kind": "greet", "cron": "@daily"}
    return Definition(**(plain | changes))


async def read(store: MemoryStore, name: str = "daily") -> Schedule:
    return await Client(store).schedules.get(name)


@on_both_loops
async def test_a_schedule_in_code_is_created_once(store: MemoryStore) -> None:
    assert await synchronise(store, "shop", {"daily": daily()}) == {"daily": "created"}
    first = await read(store)
    assert (first.origin, first.next_run_at) == ("shop", datetime(2027, 1, 16, tzinfo=UTC))
    assert await synchronise(store, "shop", {"daily": daily()}) == {"daily": "unchanged"}
    assert (await read(store)).version == first.version


@on_both_loops
async def test_what_an_operator_changed_stays_until_the_code_changes(store: MemoryStore) -> None:
    await synchronise(store, "shop", {"daily": daily()})
    schedules = Client(store).schedules
    await schedules.edit("daily", cron="@hourly")
    await schedules.pause("daily")
    assert await synchronise(store, "shop", {"daily": daily()}) == {"daily": "unchanged"}
    assert (await read(store)).cron == "@hourly"
    changed = {"daily": daily(cron="0 4 * * *")}
    assert await synchronise(store, "shop", changed) == {"daily": "changed"}
    after = await read(store)
    assert (after.cron, after.paused) == ("0 4 * * *", True)
    assert after.next_run_at == datetime(2027, 1, 16, 4, tzinfo=UTC)


@on_both_loops
async def test_a_change_that_is_not_about_time_leaves_the_cursor(store: MemoryStore) -> None:
    await synchronise(store, "shop", {"daily": daily()})
    before = await read(store)
    await synchronise(store, "shop", {"daily": daily(priority=0)})
    after = await read(store)
    assert (after.priority, after.next_run_at) == (0, before.next_run_at)


@on_both_loops
async def test_an_app_with_a_name_removes_what_its_code_no_longer_has(store: MemoryStore) -> None:
    await synchronise(store, "shop", {"daily": daily(), "old": daily()})
    await synchronise(store, "mail", {"theirs": daily()})
    await Client(store).schedules.add("by hand", "greet", cron="@daily")
    assert (await synchronise(store, "shop", {"daily": daily()}))["old"] == "removed"
    names = [one.name for one in await Client(store).schedules.list()]
    assert names == ["by hand", "daily", "theirs"]


@on_both_loops
async def test_an_app_without_a_name_removes_nothing_but_says_so(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await synchronise(store, None, {"daily": daily(), "old": daily()})
    assert (await synchronise(store, None, {"daily": daily()}))["old"] == "vanished"
    assert (await read(store, "old")).status == "active"
    assert "not in this app's code" in caplog.text


@on_both_loops
@pytest.mark.parametrize("elsewhere", ["by hand", "another app"])
async def test_a_schedule_made_elsewhere_is_never_touched(
    store: MemoryStore, elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    if elsewhere == "by hand":
        await Client(store).schedules.add("daily", "greet", cron="@hourly")
    else:
        await synchronise(store, "mail", {"daily": daily(cron="@hourly")})
    before = await read(store)
    assert await synchronise(store, "shop", {"daily": daily()}) == {"daily": "refused"}
    assert await read(store) == before
    assert [one.levelno for one in caplog.records if "made elsewhere" in one.message] == [
        logging.ERROR
    ]


@on_both_loops
async def test_a_single_instant_in_code_never_fires_twice(store: MemoryStore) -> None:
    once = {"once": Definition(kind="greet", once_at=START - timedelta(hours=1))}
    await synchronise(store, "shop", once)
    await Client(store).schedules.run_now("once")
    [due] = (await store.schedules.list_due(9)).schedules
    assert due.next_run_at == START - timedelta(hours=1)
    assert await synchronise(store, "shop", once) == {"once": "unchanged"}


@on_both_loops
async def test_two_processes_that_start_together_make_it_once(store: MemoryStore) -> None:
    add = store.schedules.add_schedules

    async def add_late(schedules: Any) -> Any:
        store.schedules.add_schedules = add  # type: ignore[method-assign]
        await synchronise(store, "shop", {"daily": daily()})
        return await add(schedules)

    store.schedules.add_schedules = add_late  # type: ignore[method-assign]
    assert await synchronise(store, "shop", {"daily": daily()}) == {"daily": "unchanged"}


def make_app() -> Chronos:
    app = Chronos("shop")

    @app.handler("count", topic="numbers", max_attempts=2)
    async def count(job: Job, payload: list[int]) -> None: ...

    return app


def test_a_schedule_stands_above_its_handler() -> None:
    app = Chronos("shop")

    @app.schedule("hourly", cron="@hourly", payload={"at": "{{occurrence}}"})
    @app.schedule("often", every_s=5, priority=1)
    @app.handler("tidy", topic="house", max_attempts=2)
    async def tidy(job: Job, payload: Any) -> None: ...

    assert {name: one.kind for name, one in app.schedules.items()} == {
        "hourly": "tidy",
        "often": "tidy",
    }
    often = app.schedules["often"]
    assert (often.topic, often.max_attempts, often.priority) == ("house", 2, 1)


def test_a_schedule_below_its_handler_is_refused() -> None:
    app = Chronos()

    async def tidy(job: Job, payload: Any) -> None: ...

    with pytest.raises(UnknownKind, match="tidy"):
        app.schedule("hourly", cron="@hourly")(tidy)


def test_a_schedule_may_name_a_kind() -> None:
    app = make_app()
    app.schedule("hourly", kind="count", payload=[1], cron="@hourly")
    assert app.schedules["hourly"].topic == "numbers"


def test_a_bad_schedule_is_found_when_the_code_is_read() -> None:
    app = make_app()
    with pytest.raises(InputError, match=r"^cron:"):
        app.schedule("a", kind="count", payload=[1], cron="often")
    with pytest.raises(PayloadError):
        app.schedule("a", kind="count", payload="text", cron="@daily")
    app.schedule("a", kind="count", payload=[1], cron="@daily")
    with pytest.raises(InputError, match="already"):
        app.schedule("a", kind="count", payload=[1], cron="@daily")
