"""Where a supervised task stands in its line: the attempts at one piece of work, each a task.

The first attempt begins the line and gives it its id; each later one names the attempt before it.
"""

from hashlib import sha256
from uuid import UUID

import msgspec

SUPERVISE_PREFIX = "chronos.supervise."
SUPERVISE_TOPIC = "chronos"


class Line(msgspec.Struct, frozen=True, array_like=True):
    """What a claim tells of a supervised task, as `claim_jobs.sql` writes it.

    >>> read_line('["mail", null, null, null]').supervisor
    'mail'
    """

    supervisor: str
    retry_of: UUID | None
    id: UUID | None
    """The first task of the line; None: this one."""
    number: int | None
    """None: the first."""


read_line = msgspec.json.Decoder(Line).decode


def supervise_kind(supervisor: str) -> str:
    """The kind of a supervisor's failure facts.

    >>> supervise_kind("mail")
    'chronos.supervise.mail'
    """
    return SUPERVISE_PREFIX + supervisor


def fact_id(task: UUID, run: int) -> UUID:
    """The id of a failure fact: the job that tells a supervisor of one failed run of a task.

    >>> fact_id(UUID("018bcfe5-6800-7000-8000-000000000001"), 1)
    UUID('018bcfe5-6800-7000-808f-b134ac271a20')
    """
    return UUID(bytes=task.bytes[:9] + sha256(f"{task}/{run}".encode()).digest()[:7])
