"""The channel from the executor to the reporter: plain finishes in columns, all else by itself."""

from chronos_runtime.job import Finish, Job, Outcome, Successes
from chronos_runtime.nudge import Mailbox


class Outbox(Mailbox[Outcome]):
    """What handlers ended with.

    >>> outbox = Outbox(10)
    >>> len(outbox), outbox.take_successes()
    (0, Successes(jobs=[], run_s=[]))
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        # Always the same lists: the executor adds to both, and nudges, by calls that it keeps.
        self.jobs: list[Job] = []
        self.run_s: list[float] = []

    def __len__(self) -> int:
        return len(self.items) + len(self.jobs)

    def put(self, item: Outcome) -> None:
        """Add one outcome."""
        if type(item) is Finish and item.is_plain:
            self.jobs.append(item.job)
            self.run_s.append(item.run_s)
            self.nudge()
        else:
            super().put(item)

    def take_successes(self) -> Successes:
        """The plain finishes there are, which may be none."""
        taken = Successes(self.jobs[:], self.run_s[:])
        self.jobs.clear()
        self.run_s.clear()
        assert len(taken) <= self._capacity, "more items than jobs: a credit was lost"
        return taken

    def take_now(self) -> list[Outcome]:
        """All outcomes there are, each by itself."""
        return [*self.take_successes(), *super().take_now()]
