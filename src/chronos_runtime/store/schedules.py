"""What is asked of durable state about schedules and alarms; the manners are the store's."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from chronos_runtime.schedule import Absence, Due, Fired, FireRecord, Firing, Schedule, Status


class ScheduleStore(Protocol):
    """Schedules, one method per statement."""

    async def add_schedules(self, schedules: Sequence[Schedule]) -> set[UUID]:
        """Insert; the ids that went in. Others clash with the name of a living schedule."""

    async def edit_schedule(
        self, read: Schedule, edited: Schedule, *, expects_anew: bool = False
    ) -> bool:
        """Write `edited` if the schedule still stands as `read`; whether it did.

        `expects_anew` lets the time within which a success is expected begin now.
        """

    async def get_schedules(self, names: Sequence[str]) -> tuple[datetime, list[Schedule]]:
        """The store's clock, and the schedules of these names, oldest first."""

    async def list_schedules(
        self,
        *,
        is_alarm: bool,
        statuses: Sequence[Status] | None,
        after: tuple[str, UUID],
        limit: int,
    ) -> list[Schedule]:
        """One page, by name."""

    async def list_origin(self, origin: str) -> list[Schedule]:
        """The schedules that the code of this app made."""

    async def remove_schedules(self, ids: Sequence[UUID]) -> set[UUID]:
        """Forget schedules; the ids removed. What they fired stays."""

    async def list_due(self, limit: int) -> Due:
        """What is to be fired now."""

    async def fire_schedules(self, firings: Sequence[Firing]) -> dict[UUID, Fired]:
        """Move cursors and insert jobs; those of the firings whose schedule stood as read."""

    async def break_schedules(self, troubles: Sequence[tuple[Schedule, str]]) -> set[UUID]:
        """Mark schedules as broken, each with its error; those that stood as read."""

    async def run_schedule(
        self, id: UUID, *, occurrence: datetime, job_id: UUID, payload: str
    ) -> bool | None:
        """Fire once more, now; whether another fire lives. None: no such schedule."""

    async def list_fires(self, id: UUID, limit: int) -> list[FireRecord]:
        """The fires of a schedule, newest occurrence first."""

    async def postpone_fires(self, id: UUID, until: datetime) -> set[UUID]:
        """Let the fires that wait go on waiting; the jobs postponed."""

    async def end_alarm(self, id: UUID, status: Status, error: str | None = None) -> bool:
        """End an active alarm; whether it was one."""

    async def mark_absent(self, limit: int, *, kind: str, topic: str) -> list[Absence]:
        """Mark schedules whose success is overdue, and enqueue their wakes; those marked."""

    async def prune_schedules(self, older_than_s: float, limit: int) -> int:
        """Forget what ended before that and was made by hand; how many."""
