"""The few words that the contract's tests of schedules are written in."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from chronos_runtime.schedule import Fire, Fired, Firing, Schedule
from tests.store.world import World


def new_schedule(name: str = "nightly", **changes: Any) -> Schedule:
    """A schedule like any other, but for the changes."""
    plain: dict[str, Any] = {"id": uuid4(), "kind": "greet", "cron": "0 3 * * *"}
    return Schedule(name=name, **(plain | changes))


async def clock(world: World) -> datetime:
    """What time the store thinks it is."""
    now, _ = await world.store.schedules.get_schedules([])
    return now


async def add(world: World, name: str = "nightly", *, due_s: float = -10, **changes: Any) -> UUID:
    """Add a schedule that is due so many seconds from now; its id."""
    next_run_at = await clock(world) + timedelta(seconds=due_s)
    schedule = new_schedule(name, **({"next_run_at": next_run_at} | changes))
    assert await world.store.schedules.add_schedules([schedule]) == {schedule.id}
    return schedule.id


async def read(world: World, name: str = "nightly") -> Schedule:
    """The newest schedule of that name."""
    _, found = await world.store.schedules.get_schedules([name])
    return found[-1]


def firing(
    schedule: Schedule, *occurrences: datetime, next_s: float | None = 3_600, missed: int = 0
) -> Firing:
    """A firing of these occurrences, or of the cursor and what waits."""
    cursor = schedule.next_run_at
    given = occurrences or tuple(at for at in (schedule.queued_at, cursor) if at is not None)
    next_at = None if next_s is None else max(given) + timedelta(seconds=next_s)
    fires = [Fire(uuid4(), at, at, '{"n": 1}') for at in given]
    return Firing(schedule, fires, next_at, missed)


async def fire(world: World, name: str = "nightly", **how: Any) -> Fired:
    """Fire the schedule of that name as it stands."""
    one = firing(await read(world, name), **how)
    return (await world.store.schedules.fire_schedules([one]))[one.schedule.id]
