"""Alarms go off once, are kept, and can be put off."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from chronos_runtime import Client, MemoryStore
from chronos_runtime.errors import InputError, JobStateError, ScheduleNotFound
from chronos_runtime.fires import firing_of
from chronos_runtime.ids import Worker
from chronos_runtime.job import Finish, Job, Return
from chronos_runtime.processors.wake_payload import WakePayload
from chronos_runtime.store import Wanted
from tests.actors.bench import on_both_loops

pytestmark = on_both_loops

START = datetime(2027, 1, 15, 8, tzinfo=UTC)
URL = "https://example.org/wake"
ERROR = '{"type": "DeliveryFailed", "message": "500"}'


class Night:
    """Alarms on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = START
        self.store = MemoryStore(clock=self._clock)
        self.client = Client(self.store)
        self.alarms = self.client.alarms

    def _clock(self) -> float:
        return self.now.timestamp()

    async def pass_time(self, **how: float) -> list[Job]:
        """Let time pass, fire, and claim what is there to be delivered."""
        self.now += timedelta(**how)
        due = await self.store.schedules.list_due(100)
        await self.store.schedules.fire_schedules(
            [firing_of(one, due.read_at) for one in due.schedules]
        )
        await self.store.promote_jobs(100)
        return await self.store.claim_jobs(
            Worker().next_token(),
            [Wanted("chronos", 100, [0] * 10)],
            kinds=["chronos.wake"],
            room=100,
            lease_s=30.0,
            claimed_at=0.0,
        )

    async def finish(self, job: Job, state: Any = "succeeded") -> None:
        error = None if state == "succeeded" else ERROR
        await self.store.finish_jobs([Finish(job, state, 0.1, error=error)])


async def test_an_alarm_wakes_its_url_with_its_name_and_its_occurrence() -> None:
    night = Night()
    alarm = await night.alarms.set(
        URL, {"order": 7}, name="order 7", at=START + timedelta(hours=1), secret="billing"
    )
    [job] = await night.pass_time(hours=1)
    payload = msgspec.json.decode(job.payload, type=WakePayload)
    assert (payload.url, payload.body, payload.secret) == (URL, {"order": 7}, "billing")
    assert (payload.alarm, payload.occurrence) == ("order 7", START + timedelta(hours=1))
    assert (job.max_attempts, job.schedule_id) == (5, alarm.id)
    assert (await night.alarms.get("order 7")).status == "active"
    await night.finish(job)
    assert (await night.alarms.get("order 7")).status == "fired"


async def test_an_alarm_that_exhausts_its_ladder_has_failed_and_says_why() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", at=START, max_failures=2)
    [job] = await night.pass_time(seconds=1)
    assert job.max_attempts == 2
    await night.finish(job, "dead")
    alarm = await night.alarms.get("a")
    assert (alarm.status, alarm.last_error) == ("failed", "DeliveryFailed: 500")


async def test_a_series_survives_a_bad_fire_and_never_has_two_under_way() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", cron="0 * * * *")
    [job] = await night.pass_time(hours=1)
    assert await night.pass_time(hours=1) == []
    await night.finish(job, "dead")
    [again] = await night.pass_time(hours=1)
    assert again.occurrence == START + timedelta(hours=3)
    alarm = await night.alarms.get("a")
    assert (alarm.status, alarm.consecutive_failures, alarm.skipped) == ("active", 1, 1)


async def test_an_alarm_without_a_name_gets_one() -> None:
    night = Night()
    alarm = await night.alarms.set(URL, at=START)
    assert (await night.alarms.get(str(alarm.id))).id == alarm.id


@pytest.mark.parametrize(
    ("match", "given"),
    [
        ("^url:", {"url": "ftp://example.org", "at": START}),
        ("cron, every_s, at", {"url": URL}),
        ("^at: has no time zone", {"url": URL, "at": datetime(2027, 1, 1)}),  # noqa: DTZ001
        ("^max_attempts", {"url": URL, "at": START, "max_failures": 0}),
        ("^name", {"url": URL, "at": START, "name": ""}),
    ],
)
async def test_what_cannot_be_an_alarm_is_refused(match: str, given: dict[str, Any]) -> None:
    night = Night()
    with pytest.raises(InputError, match=match):
        await night.alarms.set(**given)
    assert await night.alarms.list() == []


async def test_a_cancelled_alarm_does_not_fire_and_is_kept() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", at=START + timedelta(hours=1))
    await night.alarms.cancel("a")
    assert await night.pass_time(hours=2) == []
    [kept] = await night.alarms.list(statuses=["cancelled"])
    assert kept.name == "a"
    with pytest.raises(JobStateError, match="cancelled"):
        await night.alarms.cancel("a")


async def test_a_cancel_takes_the_waiting_fire_along() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", at=START)
    [job] = await night.pass_time(seconds=1)
    await night.store.return_jobs([Return(job, "retry", delay_s=30.0, error=ERROR)])
    await night.alarms.cancel("a")
    assert await night.pass_time(hours=1) == []
    [fire] = await night.alarms.fires("a")
    assert fire.state == "cancelled"


async def test_the_name_of_an_ended_alarm_is_free() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", at=START)
    await night.alarms.cancel("a")
    again = await night.alarms.set(URL, name="a", at=START)
    assert (await night.alarms.get("a")).id == again.id
    assert len(await night.alarms.list()) == 2


@pytest.mark.parametrize("timing", [{"at": START + timedelta(hours=1)}, {"cron": "0 * * * *"}])
async def test_a_snoozed_alarm_goes_off_later(timing: dict[str, Any]) -> None:
    night = Night()
    await night.alarms.set(URL, name="a", **timing)
    until = await night.alarms.snooze("a", for_s=5_400)
    assert until == START + timedelta(minutes=90)
    assert await night.pass_time(minutes=89) == []
    [job] = await night.pass_time(minutes=1)
    assert job.occurrence == until
    await night.finish(job)
    status = "fired" if "at" in timing else "active"
    assert (await night.alarms.get("a")).status == status


async def test_a_snooze_puts_off_a_waiting_retry() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", at=START)
    [job] = await night.pass_time(seconds=1)
    with pytest.raises(JobStateError, match="being delivered"):
        await night.alarms.snooze("a", for_s=60)
    await night.store.return_jobs([Return(job, "retry", delay_s=30.0, error=ERROR)])
    await night.alarms.snooze("a", until=night.now + timedelta(hours=1))
    assert await night.pass_time(minutes=59) == []
    [again] = await night.pass_time(minutes=1)
    assert again.id == job.id


async def test_a_snooze_is_refused_where_it_makes_no_sense() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", at=START + timedelta(hours=1))
    with pytest.raises(InputError, match=r"^until, for_s"):
        await night.alarms.snooze("a")
    with pytest.raises(InputError, match="is past"):
        await night.alarms.snooze("a", until=START)
    await night.alarms.cancel("a")
    with pytest.raises(JobStateError, match="ended"):
        await night.alarms.snooze("a", for_s=1)


async def test_alarms_and_schedules_keep_apart() -> None:
    night = Night()
    await night.alarms.set(URL, name="a", at=START)
    await night.client.schedules.add("s", "greet", cron="@daily")
    assert [one.name for one in await night.alarms.list()] == ["a"]
    assert [one.name for one in await night.client.schedules.list()] == ["s"]
    with pytest.raises(ScheduleNotFound):
        await night.client.schedules.get("a")
    with pytest.raises(ScheduleNotFound):
        await night.alarms.get("s")
