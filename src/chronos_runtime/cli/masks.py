"""What a command does not show: what messages say, and whose telephone they go to.

Terminals are recorded and tickets are pasted from them. Whoever must know asks the database,
which knows who asked.
"""

import re
from typing import Any

import msgspec

from chronos_runtime.processors.email_message import EMAIL_KIND
from chronos_runtime.processors.sms_message import SMS_KIND
from chronos_runtime.store import JobRecord

_SAID = {"text", "html", "body"}
_TELEPHONE = re.compile(r"\+?[0-9][0-9 ()./-]{4,}[0-9]")


def is_masked(kind: str) -> bool:
    """Whether jobs of this kind are messages."""
    return kind in (EMAIL_KIND, SMS_KIND)


def masked_job(job: JobRecord) -> JobRecord:
    """The job without what its message says."""
    return msgspec.structs.replace(job, payload=masked(job.kind, job.payload))


def masked(kind: str, payload: Any) -> Any:
    """A payload without what it says, if it is one of a message.

    >>> masked("chronos.sms", {"to": "+4915112345678", "text": "Hello"})
    {'to': '+49…78', 'text': '*** (5 characters)'}
    >>> masked("greet", {"text": "Hello"})
    {'text': 'Hello'}
    """
    if not is_masked(kind):
        return payload
    if isinstance(payload, dict):
        return {
            key: f"*** ({len(value)} characters)"
            if key in _SAID and isinstance(value, str)
            else masked(kind, value)
            for key, value in payload.items()
        }
    if isinstance(payload, list):
        return [masked(kind, value) for value in payload]
    if kind == SMS_KIND and isinstance(payload, str) and _TELEPHONE.fullmatch(payload):
        return f"{payload[:3]}…{payload[-2:]}"
    return payload
