"""Identities: job ids in order of time, workers that never repeat, lease tokens that fence.

A lease token is 8 random bytes for the process incarnation and an 8-byte counter of its claims,
read as one uuid. With the attempt number it fences other workers, the self-zombie (same worker,
second claim), and an attempt number issued again after a failover lost the claim.

The job of a schedule's occurrence has the one id that follows from both, whoever fires it.
"""

import itertools
import os
import threading
import time
from datetime import UTC, datetime
from random import getrandbits  # Seeded by the system, again in a fork: 0.1 µs, a read of it 0.7.
from uuid import UUID, uuid5

# The driver's own class, in C: 0.06 µs to make one, of the standard library's 0.19.
from asyncpg.pgproto.pgproto import UUID as DriverUUID  # noqa: N811

_WORKER_BYTES = 8
_COUNTED_BITS = 62
_VARIANT = 2  # The bits before them.
_FIRES = UUID("5b1dd8c4-7f0c-4c3a-9d5e-6a2f1c0e8b37")  # Changing it would fire everything again.


class JobIds:
    """Mints UUIDv7 ids that ascend within this process, also within one millisecond.

    >>> ids = JobIds()
    >>> first, second = ids.mint(2)
    >>> first < second and first.version == 7
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # A client may be shared by threads.
        self._ms = 0
        self._high = b""  # The first half of the last id: 48 bits of clock, version 7, 12 bits.
        self._low = 0  # The second: variant 10, and 62 bits that count up from a random start.

    def mint(self, count: int) -> list[UUID]:
        """`count` ids, ascending."""
        high, start = self._reserve(count)
        return [DriverUUID(high + low.to_bytes(8)) for low in range(start, start + count)]

    def mint_one(self) -> UUID:
        """One id: 0.6 µs, in a list of one 1.0."""
        high, low = self._reserve(1)
        return DriverUUID(high + low.to_bytes(8))

    def _reserve(self, count: int) -> tuple[bytes, int]:
        """The first half of so many ids, and the second half of the first of them."""
        with self._lock:
            now_ms = time.time_ns() // 1_000_000
            # The same millisecond again, or a clock that went back. Ahead by a leap, not by one: a
            # forked process goes on from the same place.
            start = self._low + 1 + getrandbits(48)
            if now_ms > self._ms or (start + count) >> _COUNTED_BITS != _VARIANT:
                self._ms = max(now_ms, self._ms + 1)
                self._high = (self._ms << 16 | 7 << 12 | getrandbits(12)).to_bytes(8)
                start = _VARIANT << _COUNTED_BITS | getrandbits(_COUNTED_BITS - 1)
            self._low = start + count
            return self._high, start


_job_ids = JobIds()


def new_job_id() -> UUID:
    """One new job id.

    >>> new_job_id().version
    7
    """
    return _job_ids.mint_one()


def new_job_ids(count: int) -> list[UUID]:
    """`count` new job ids, ascending."""
    return _job_ids.mint(count)


def fire_id(schedule_id: UUID, occurrence: datetime) -> UUID:
    """The id of the job that an occurrence of a schedule fires: the same in every process.

    >>> fire_id(UUID(int=1), datetime(2026, 3, 29, 1, tzinfo=UTC))
    UUID('0131520e-67ed-5278-af08-0386ee3b8e4c')
    """
    assert occurrence.tzinfo is not None
    instant = occurrence.astimezone(UTC).isoformat(timespec="microseconds")
    return uuid5(_FIRES, f"{schedule_id}/{instant}")


class Worker:
    """One incarnation of a process: a random identity and the lease tokens it has issued.

    >>> worker = Worker(bytes(8))
    >>> worker.next_token() == UUID(int=1)
    True
    >>> worker.last_token.hex
    '0000000000000000ffffffffffffffff'
    """

    def __init__(self, identity: bytes | None = None) -> None:
        identity = os.urandom(_WORKER_BYTES) if identity is None else identity
        assert len(identity) == _WORKER_BYTES
        self._high = int.from_bytes(identity) << 64
        self._claims = itertools.count(1)

    @property
    def id(self) -> UUID:
        """The identity as a uuid: the lease token no claim ever bears."""
        return UUID(int=self._high)

    @property
    def name(self) -> str:
        """The identity as it stands in errors, logs and the front half of lease tokens."""
        return str(self.id)[:18]

    @property
    def last_token(self) -> UUID:
        """The greatest lease token this worker could ever issue."""
        return UUID(int=self._high | (1 << 64) - 1)

    def next_token(self) -> UUID:
        """A lease token no other claim ever bears."""
        return UUID(int=self._high | next(self._claims))
