"""Who decides after a failed attempt: the queue, by a backoff, or a supervisor, by a new task."""

from typing import Literal

from chronos_runtime.checks import NAME_MAX_BYTES, checked_name
from chronos_runtime.errors import InputError
from chronos_runtime.lineage import SUPERVISE_PREFIX

Attempts = Literal["retried", "supervised"]

NOBODY = ""
"""A supervisor that is not asked: the failed task is recorded, and that is all."""

_SUPERVISOR_MAX_BYTES = 180  # As in 0003_supervised.sql, so that it fits into a kind.
_OWN_PREFIX = "chronos."

assert len(SUPERVISE_PREFIX) + _SUPERVISOR_MAX_BYTES <= NAME_MAX_BYTES


def supervisor_of(
    kind: str, attempts: object, supervisor: object, default: str | None = None
) -> str | None:
    """Who decides after a failed attempt of a kind; None: the queue. `default` is the handler's.

    >>> supervisor_of("mail", "supervised", None), supervisor_of("mail", None, None)
    ('mail', None)
    >>> supervisor_of("chronos.email", "supervised", None)
    'email'
    """
    if attempts not in ("retried", "supervised", None):
        raise InputError(f"attempts: {attempts!r} is neither 'retried' nor 'supervised'")
    if attempts is None and supervisor is None:
        return default
    if attempts == "retried" or (attempts is None and default is None):
        if supervisor is not None:
            raise InputError("supervisor: give attempts='supervised' too, or leave it out")
        return None
    if supervisor is None:
        supervisor = kind.removeprefix(_OWN_PREFIX) if default is None else default
    return checked_supervisor(supervisor)


def checked_supervisor(supervisor: object) -> str:
    """`supervisor`, once it is nobody or fits into a kind."""
    if supervisor == NOBODY:
        return NOBODY
    name = checked_name(supervisor, "supervisor")
    if len(name.encode()) > _SUPERVISOR_MAX_BYTES:
        raise InputError(f"supervisor: longer than {_SUPERVISOR_MAX_BYTES} bytes")
    return name
