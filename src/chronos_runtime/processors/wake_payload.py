"""What a wake says: its payload as enqueued, and the body made of it.

The body is the same, byte for byte, in every attempt, as the `webhook-id` is: a receiver that
knows the one may forget the other. So it tells nothing of the attempt; a header does.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from chronos_runtime.backoff import Exponential
from chronos_runtime.errors import DeliveryFailed, InputError
from chronos_runtime.handlers import Handler, HandlerFunction
from chronos_runtime.job import Job
from chronos_runtime.processors.headers import HeaderRules
from chronos_runtime.processors.targets import Target

WAKE_KIND = "chronos.wake"
WAKE_TOPIC = "chronos"

# Reserved: ours to say, or the business of each connection (RFC 9110, 7.6.1).
HTTP_HEADERS = HeaderRules(
    name=re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"),
    reserved=frozenset(
        {
            "accept-encoding",
            "connection",
            "content-encoding",
            "content-length",
            "content-type",
            "expect",
            "host",
            "keep-alive",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "user-agent",
        }
    ),
    prefixes=("webhook-", "proxy-", "chronos-"),
    value_max_chars=1_000,
)

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class WakePayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom to wake and what to say.

    >>> WakePayload(url="https://example.org/hook", body={"order": 7}, secret="billing").secret
    'billing'
    >>> WakePayload(url="ftp://example.org")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: url: must be https://host/path, without a fragment; other \
characters than a URL's own are percent-encoded in a path and punycode (xn--…) in a host
    """

    url: str
    body: Any = None
    """Any JSON; the receiver finds it as `data.payload`."""
    secret: Text | None = None
    """The name of a secret in `[wake] secrets`, never a secret; None: not signed."""
    headers: dict[str, str] = {}
    """Stored with the job and shown with it: not the place for a password."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] | None = None
    alarm: Text | None = None
    """The name of the alarm that this is a fire of, and the instant it was due."""
    occurrence: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse at enqueue what no configuration would allow; the rest waits for the worker."""
        Target.of(self.url)
        if self.occurrence is not None and self.occurrence.utcoffset() is None:
            raise InputError("occurrence: has no time zone")
        HTTP_HEADERS.check(self.headers)


def wake_body(job: Job, payload: WakePayload) -> bytes:
    """The body of a wake, by Standard Webhooks: what happened, when, and its data.

    >>> from uuid import UUID
    >>> id = UUID("018bcfe5-6800-7000-8000-000000000001")
    >>> job = Job(
    ...     id, 7, "chronos", "chronos.wake", 5, 1, 5, None, b"{}", 0.0, None, None, None,
    ...     UUID(int=1),
    ... )
    >>> wake_body(job, WakePayload(url="https://example.org", body={"order": 7})).decode()
    '{"type":"chronos.wake","timestamp":"2023-11-14T22:13:20Z",\
"data":{"job":"018bcfe5-6800-7000-8000-000000000001","payload":{"order":7}}}'
    """
    data: dict[str, object] = {"job": job.id}
    if payload.alarm is not None:
        data["alarm"] = payload.alarm
    if payload.occurrence is not None:
        data["occurrence"] = payload.occurrence
    data["payload"] = payload.body
    happened = payload.occurrence or _minted_at(job)
    return msgspec.json.encode(
        {"type": WAKE_KIND, "timestamp": happened.astimezone(UTC), "data": data}
    )


def _minted_at(job: Job) -> datetime:
    """When the job was made, which its id tells unless somebody else minted it."""
    if job.id.version != 7:
        return datetime.now(UTC).replace(microsecond=0)
    return datetime.fromtimestamp((job.id.int >> 80) // 1_000, UTC)


def wake_rules(function: HandlerFunction | None = None) -> Handler:
    """What goes for wakes: for a worker with what runs them, for a client without.

    A topic of its own, so that receivers that are slow delay nothing else (topics take turns, and
    `executor.topic_concurrency` can limit this one), and all wakes can be paused at once.
    """
    return Handler.of(
        function or _run_elsewhere,
        WAKE_KIND,
        topic=WAKE_TOPIC,
        backoff=Exponential(),
    )


async def _run_elsewhere(job: Job, payload: WakePayload) -> None:  # noqa: ARG001
    raise DeliveryFailed("wakes are delivered by a worker")
