"""The wake: POST a job's payload to a URL, signed, and only where the egress lets it.

Success is an answer of 2xx and nothing else. A receiver that asks for time gets it, within a
bound; one that is gone for good is not asked again; one that is slow holds up nobody: at most
`per_host` deliveries stand at one host, the rest wait a moment and are then snoozed, which costs
them no attempt. Everything else is a failed attempt, and comes back by the backoff of the kind.
"""

import logging
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
import httpcore

from chronos_runtime.errors import DeliveryFailed, InputError
from chronos_runtime.handlers import Handler
from chronos_runtime.job import Discard, Job, Retry, Snooze
from chronos_runtime.metrics import Metrics
from chronos_runtime.processor_config import WakeConfig
from chronos_runtime.processors.courier import Courier
from chronos_runtime.processors.egress import Egress, Resolve, checked_url, resolve_name
from chronos_runtime.processors.signing import load_signers
from chronos_runtime.processors.targets import Target
from chronos_runtime.processors.verdict import OUTCOMES, Verdict
from chronos_runtime.processors.wake_payload import WakePayload, wake_body, wake_rules
from chronos_runtime.version import VERSION

_BUSY_S = 5.0  # A host that is full is tried again after so long, and up to twice that.

Gone = Callable[[Job, WakePayload], Awaitable[None]]

_log = logging.getLogger(__name__)


class Wake:
    """Delivers wakes; one for a process, closed with it.

    >>> wake = Wake(WakeConfig(allow=["localhost:8080"]), Metrics())
    >>> checked_url("http://localhost:8080/hook", wake.egress)
    'http://localhost:8080/hook'
    >>> Wake(WakeConfig(secrets={"billing": "env:NOWHERE"}), Metrics(), environ={})
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.ConfigError: wake.secrets: 'billing' is to be read from env:NOWHERE, \
which is not set or empty
    """

    def __init__(
        self,
        config: WakeConfig,
        metrics: Metrics,
        *,
        gone: Gone | None = None,
        environ: Mapping[str, str] = os.environ,
        resolve: Resolve = resolve_name,
        network: httpcore.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.egress = Egress(ports=config.ports, allow=config.allow, resolve=resolve)
        self._config = config
        self._metrics = metrics
        self._gone = gone
        self._signers = load_signers(config.secrets, environ)
        self._courier = Courier(config, self.egress, network=network, ssl_context=ssl_context)
        # Only hosts that somebody stands at or waits for: never more than there are slots.
        self._limiters: dict[str, anyio.CapacityLimiter] = {}
        for outcome in OUTCOMES:
            metrics.processors.wake_deliveries.labels(
                outcome
            )  # A rate needs two points: begin at zero.

    async def __call__(
        self, job: Job, payload: WakePayload
    ) -> dict[str, str] | Retry | Discard | Snooze:
        """Deliver once: what the receiver answered, a decision, or `DeliveryFailed`."""
        host = ""
        try:
            target = Target.of(checked_url(payload.url, self.egress))
            host = target.host
            async with self._turn(host) as is_ours:
                verdict = await self._deliver(job, payload, target) if is_ours else _DEFERRED
        except InputError as error:  # Refused, here or when it was dialled.
            verdict = Verdict("refused", str(error))
        self._metrics.processors.wake_deliveries.labels(verdict.outcome).inc()
        return await self._decide(job, payload, host, verdict)

    async def aclose(self) -> None:
        """Close the connections; a later delivery opens new ones."""
        await self._courier.aclose()

    @asynccontextmanager
    async def _turn(self, host: str) -> AsyncIterator[bool]:
        """A place at a host, if one was to be had."""
        limiter = self._limiters.get(host)
        if limiter is None:
            limiter = self._limiters[host] = anyio.CapacityLimiter(self._config.per_host)
        is_ours = False
        try:
            with anyio.move_on_after(self._config.busy_wait_s):
                await limiter.acquire()
                is_ours = True
            yield is_ours
        finally:
            if is_ours:
                limiter.release()
            if not limiter.borrowed_tokens and not limiter.statistics().tasks_waiting:
                self._limiters.pop(host, None)

    async def _deliver(self, job: Job, payload: WakePayload, target: Target) -> Verdict:
        body = wake_body(job, payload)
        id, timestamp = str(job.id), int(time.time())
        headers = {name.lower(): value for name, value in payload.headers.items()} | {
            "content-type": "application/json",
            "user-agent": f"chronos-runtime/{VERSION}",
            "chronos-attempt": str(job.attempt),
            "webhook-id": id,
            "webhook-timestamp": str(timestamp),
        }
        if payload.secret is not None:
            signer = self._signers.get(payload.secret)
            if signer is None:  # Perhaps only here, and only until this process is restarted.
                return Verdict("unsigned", f"wake.secrets has no {payload.secret!r}; name it there")
            headers["webhook-signature"] = signer.sign(id, timestamp, body)
        timeout_s = payload.timeout_s or self._config.timeout_s
        with self._metrics.processors.wake_seconds.time():
            return await self._courier.post(target, headers, body, timeout_s=timeout_s)

    async def _decide(
        self, job: Job, payload: WakePayload, host: str, verdict: Verdict
    ) -> dict[str, str] | Retry | Discard | Snooze:
        if verdict.outcome == "succeeded":
            return {"answer": verdict.reason}
        if verdict.outcome == "deferred":
            return Snooze(_BUSY_S * random.uniform(1.0, 2.0))
        # The host and no more: a path or a query may hold a token.
        _log.warning(
            "wake not delivered: %s",
            verdict.reason,
            extra={
                "host": host,
                "outcome": verdict.outcome,
                "job": str(job.id),
                "attempt": job.attempt,
            },
        )
        if verdict.outcome == "refused":
            return Discard(f"refused: {verdict.reason}")
        if verdict.outcome == "gone":
            if self._gone is not None:
                await self._gone(job, payload)
            return Discard(f"gone: {host} answered {verdict.reason}")
        if verdict.after_s is not None:
            return Retry(verdict.after_s, f"throttled: {host} answered {verdict.reason}")
        raise DeliveryFailed(f"{verdict.outcome}: {host}: {verdict.reason}")


_DEFERRED = Verdict("deferred", "enough deliveries stand at this host already")


def wake_handler(wake: Wake) -> Handler:
    """The handler of `chronos.wake` in a process.

    >>> wake_handler(Wake(WakeConfig(), Metrics())).topic
    'chronos'
    """
    return wake_rules(wake.__call__)
