"""What the client answers with."""

from uuid import UUID

import msgspec

from chronos_runtime.store import HistoryCounts, JobRecord, TopicDepth


# A bulk makes tens of thousands, and none can be part of a cycle: 0.6 µs each without gc=False.
class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What `enqueue` did: the job's id, and whether it is new or the holder of the key.

    >>> Enqueued(UUID(int=1), is_new=True).is_new
    True
    """

    id: UUID
    is_new: bool


class Page(msgspec.Struct, frozen=True):
    """One page of jobs; `next` is what to pass as `before` for the following one.

    >>> Page([], None).next is None
    True
    """

    jobs: list[JobRecord]
    next: UUID | None


class Counts(msgspec.Struct, frozen=True):
    """How many jobs there are. A depth with `is_bound` means "at least so many".

    >>> Counts([], HistoryCounts(0, 0, 0, 0)).history.dead
    0
    """

    live: list[TopicDepth]
    history: HistoryCounts
