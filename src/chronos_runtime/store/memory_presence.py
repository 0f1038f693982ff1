"""Who says that it is here, in the memory store."""

from uuid import UUID

from chronos_runtime.store import WorkerInfo

_SEEN_LATELY_S = 180.0  # As survey_unserved.sql.


class Presence:
    """The workers that announced themselves, and when they were seen last."""

    def __init__(self) -> None:
        self._workers: dict[UUID, tuple[WorkerInfo, float]] = {}

    def announce(self, worker: WorkerInfo, now: float) -> None:
        """See a worker; what it said first stands."""
        known, _ = self._workers.get(worker.id, (worker, now))
        self._workers[worker.id] = (known, now)

    def forget(self, worker: UUID) -> None:
        """It left."""
        self._workers.pop(worker, None)

    def prune(self, before: float) -> None:
        """Forget whoever was not seen since."""
        self._workers = {key: seen for key, seen in self._workers.items() if seen[1] >= before}

    @property
    def seen(self) -> set[UUID]:
        """Whoever is here."""
        return set(self._workers)

    def served_kinds(self, now: float) -> set[str]:
        """The kinds that somebody seen lately serves."""
        seen = (
            worker for worker, seen_at in self._workers.values() if seen_at > now - _SEEN_LATELY_S
        )
        return {kind for worker in seen for kind in worker.kinds}
