"""What an answer means: the one place where a status is judged."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal, get_args

import msgspec

Outcome = Literal[
    "succeeded",
    "gone",
    "throttled",
    "redirected",
    "client_error",
    "server_error",
    "refused",
    "timeout",
    "unreachable",
    "invalid_answer",
    "unsigned",
    "deferred",
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
RETRY_AFTER_MIN_S = 1.0  # A receiver that says "at once" meets five attempts, but not in one go.

_TOO_MANY_REQUESTS = 429


class Verdict(msgspec.Struct, frozen=True):
    """How a delivery ended, in words that may be stored and logged."""

    outcome: Outcome
    reason: str
    after_s: float | None = None
    """When the receiver wants to be asked again, if it said so."""


def judge(
    status: int, retry_after: str | None, *, now: datetime, retry_after_max_s: float
) -> Verdict:
    """What a status means. Its words are ours, never the receiver's.

    >>> now = datetime(2025, 1, 1, tzinfo=UTC)
    >>> judge(204, None, now=now, retry_after_max_s=3600)
    Verdict(outcome='succeeded', reason='204 No Content', after_s=None)
    >>> judge(503, "Wed, 01 Jan 2025 00:02:00 GMT", now=now, retry_after_max_s=3600)
    Verdict(outcome='throttled', reason='503 Service Unavailable', after_s=120.0)
    """
    reason = _words(status)
    if 200 <= status < 300:
        return Verdict("succeeded", reason)
    if status == HTTPStatus.GONE:
        return Verdict("gone", reason)
    if 300 <= status < 400:
        return Verdict("redirected", f"{reason}; redirects are not followed")
    if status < 200 or status >= 600:
        return Verdict("invalid_answer", reason)
    after_s = _seconds(retry_after, now)
    if after_s is not None:
        bounded_s = min(max(after_s, RETRY_AFTER_MIN_S), retry_after_max_s)
        return Verdict("throttled", reason, bounded_s)
    if status == _TOO_MANY_REQUESTS:
        return Verdict("throttled", reason)
    return Verdict("client_error" if status < 500 else "server_error", reason)


def _words(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _seconds(retry_after: str | None, now: datetime) -> float | None:
    """Retry-After in either form, seconds or a date; whatever else it says is passed over."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:12])  # A thousand thousand years are enough.
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - now).total_seconds()
