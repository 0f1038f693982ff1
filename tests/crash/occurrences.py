"""The independent checker of schedules: own arithmetic and own SQL, no code of the runtime.

A plan says what a test asked for. What must have fired follows from it by counting steps; what
did fire is read from the queue's tables, and from what handlers have written down themselves.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.crash.checker import DEADLINE_S, LOOK_S, Checker
from tests.eventually import eventually

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# No unique constraint: what runs twice, or under two ids, must show.
SEEN = """
create table seen (
    schedule_id uuid not null,
    occurrence timestamptz not null,
    job_id uuid not null,
    attempt integer not null
)
"""
FIRES = """
select schedule_id, occurrence, id from chronos.jobs where schedule_id is not null
union all
select schedule_id, occurrence, id from chronos.job_history where schedule_id is not null
"""
RAN = "select distinct schedule_id, occurrence, job_id as id from seen"
# A death costs an attempt, so the number of one that starts again is another.
AGAIN = "select job_id from seen group by job_id, attempt having count(*) > 1"
UNFINISHED = """
select count(*) from chronos.schedules where status <> 'finished' and ends_at is not null
"""


@dataclass(frozen=True)
class Plan:
    """What a test asked of one schedule; with no `last_at`, it goes on until its cursor."""

    name: str
    every_s: int
    first_at: datetime
    last_at: datetime | None
    catches_all: bool = True
    is_cron: bool = False

    def occurrences(self, cursor_at: datetime | None) -> set[datetime]:
        """Every instant that was due. The cursor itself is still to come."""
        last_at = self.last_at
        if last_at is None:
            assert cursor_at is not None, f"{self.name} has lost its cursor"
            last_at = cursor_at - timedelta(microseconds=1)
        steps = (last_at - self.first_at) // timedelta(seconds=self.every_s)
        return {self.first_at + timedelta(seconds=self.every_s * n) for n in range(steps + 1)}


class ScheduleChecker(Checker):
    """Holds what fired against what was due."""

    async def now(self) -> datetime:
        """The database's clock."""
        now: datetime = await self.queue.fetchval("select clock_timestamp()")
        return now

    async def ran(self) -> int:
        """How many runs handlers have written down."""
        counted: int = await self.queue.fetchval("select count(*) from seen")
        return counted

    async def wait_ran(self, count: int) -> None:
        """Wait until handlers have written so many runs down."""

        async def enough() -> bool:
            return await self.ran() >= count

        await eventually(enough, DEADLINE_S, poll_s=LOOK_S)

    async def wait_finished(self) -> None:
        """Wait until every schedule that ends has ended, and no job is live."""

        async def finished() -> bool:
            unfinished: int = await self.queue.fetchval(UNFINISHED)
            return unfinished == 0

        await eventually(finished, DEADLINE_S, poll_s=LOOK_S)
        await self.wait_drained()

    async def fired_again(self) -> list[UUID]:
        """Jobs that ran one attempt twice: fired, forgotten, and fired again under the same id."""
        return [row["job_id"] for row in await self.queue.fetch(AGAIN)]

    async def faults(self, plans: Collection[Plan], *, fires: str = FIRES) -> dict[str, list[Any]]:
        """What is wrong with the fires that a statement finds: empty when all is well."""
        read = await self.queue.fetch(
            "select id, name, next_run_at, skipped from chronos.schedules"
        )
        rows = {row["name"]: row for row in read}
        names = {row["id"]: row["name"] for row in read}
        ids: defaultdict[tuple[UUID, datetime], list[UUID]] = defaultdict(list)
        for row in await self.queue.fetch(fires):
            ids[row["schedule_id"], row["occurrence"]].append(row["id"])
        found: defaultdict[str, list[Any]] = defaultdict(list)
        found["fired twice"] += [one for one, given in ids.items() if len(given) > 1]
        found["of no schedule"] += [one for one in ids if one[0] not in names]
        for plan in plans:
            row = rows[plan.name]
            due = plan.occurrences(row["next_run_at"])
            fired = {at for id, at in ids if id == row["id"]}
            found["never due"] += [(plan.name, at) for at in fired - due]
            if plan.catches_all:
                found["missing"] += [(plan.name, at) for at in due - fired]
            elif max(due) not in fired:  # Of what was missed the newest fires.
                found["missing"].append((plan.name, max(due)))
            if len(fired) + row["skipped"] != len(due):
                found["not accounted for"].append((plan.name, len(fired), row["skipped"], len(due)))
        return {what: faults for what, faults in found.items() if faults}

    async def fires(self, name: str) -> dict[datetime, datetime]:
        """When each occurrence of a schedule was fired, by the database's clock."""
        rows = await self.queue.fetch(
            "select fire.occurrence, fire.enqueued_at from chronos.job_history as fire"
            " join chronos.schedules as schedule on schedule.id = fire.schedule_id"
            " where schedule.name = $1",
            name,
        )
        return {row["occurrence"]: row["enqueued_at"] for row in rows}

    async def skipped(self, name: str) -> int:
        """How many occurrences a schedule says that it has left out."""
        skipped: int = await self.queue.fetchval(
            "select skipped from chronos.schedules where name = $1", name
        )
        return skipped

    async def runs_of_fires(self) -> Counter[int]:
        """How many fires ran how often."""
        rows = await self.queue.fetch("select count(*) as runs from seen group by job_id")
        return Counter(row["runs"] for row in rows)


def next_step(instant: datetime, every_s: int) -> datetime:
    """The first full step since 1970 that is not before `instant`."""
    return EPOCH + timedelta(seconds=every_s) * -((EPOCH - instant) // timedelta(seconds=every_s))
