"""The courier carries one request to a target and comes back with a verdict.

Its connection pool is httpcore's, and there is no client of httpx on top: what a client adds
(redirects, cookies, proxies from the environment, decompression) is what a delivery must not do.
Of an answer the status stands once it is read. The rest is read so that the connection can be used
again: a small one to its end, of a large or slow one no more than the bounds. Who asked for it
gets it whole or not at all.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

import anyio
import httpcore
import msgspec

from chronos_runtime.processors.dialer import VettedBackend
from chronos_runtime.processors.egress import Egress
from chronos_runtime.processors.targets import Target
from chronos_runtime.processors.trouble import network_words
from chronos_runtime.processors.verdict import Verdict, judge

_KEEPALIVE_S = 30.0  # Below the idle timeout of every usual server and balancer.
REST_S = 1.0  # How long the rest of an answer may take; its status is known by then.
_CLOSE_S = 1.0


class Limits(Protocol):
    """What a courier may take: its time and its room. Sections of the config have these."""

    @property
    def connect_s(self) -> float:
        """For a connection, or for a turn at one."""

    @property
    def connections_max(self) -> int:
        """Open at once."""

    @property
    def response_max_bytes(self) -> int:
        """Of an answer, after its head."""

    @property
    def retry_after_max_s(self) -> float:
        """The longest time that a receiver may ask for."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, if anything did."""

    verdict: Verdict
    status: int | None = None
    """None: there was no answer."""
    was_connected: bool = True
    """Whether the receiver may have heard the request."""
    body: bytes | None = None
    """None: it was too long, took too long, or broke off."""


class Courier:
    """Asks and posts to what the egress allows; opens its connections when they are needed.

    >>> from chronos_runtime.processor_config import WakeConfig
    >>> Courier(WakeConfig(), Egress(ports=[], allow=[]))  # doctest: +ELLIPSIS
    <...Courier object at ...>
    """

    def __init__(
        self,
        config: Limits,
        egress: Egress,
        *,
        network: httpcore.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._backend = VettedBackend(egress, network)
        self._ssl_context = ssl_context
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def post(
        self, target: Target, headers: Mapping[str, str], body: bytes, *, timeout_s: float
    ) -> Verdict:
        """Post, and judge the answer or its absence. Raises `TargetRefused` and nothing else."""
        return (await self.ask("POST", target, headers, body, timeout_s=timeout_s)).verdict

    async def ask(
        self,
        method: str,
        target: Target,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        timeout_s: float,
        rest_s: float = REST_S,
    ) -> Answer:
        """The same with any method, and with what the receiver wrote, if it came in `rest_s`."""
        request = self._request(method, target, headers, body)
        try:
            with anyio.fail_after(timeout_s):
                response = await self._opened().handle_async_request(request)
        except (httpcore.ConnectTimeout, httpcore.PoolTimeout):
            verdict = Verdict("timeout", f"no connection within {self._config.connect_s:g} s")
            return Answer(verdict=verdict, was_connected=False)
        except (TimeoutError, httpcore.TimeoutException):
            return Answer(verdict=Verdict("timeout", f"no answer within {timeout_s:g} s"))
        except httpcore.NetworkError as error:
            was_connected = not isinstance(error, httpcore.ConnectError)
            words = network_words(
                error, "the connection broke" if was_connected else "no connection"
            )
            return Answer(verdict=Verdict("unreachable", words), was_connected=was_connected)
        except httpcore.ProtocolError:
            return Answer(verdict=Verdict("invalid_answer", "what it answered is not HTTP"))
        return await self._answer(response, rest_s)

    async def aclose(self) -> None:
        """Close what is open; a later post opens it again."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            with anyio.move_on_after(_CLOSE_S):
                await pool.aclose()

    def _request(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes
    ) -> httpcore.Request:
        connect_s = self._config.connect_s
        return httpcore.Request(
            method.encode(),
            httpcore.URL(
                scheme=target.scheme.encode(),
                host=target.host.encode(),
                port=target.port,
                target=target.path.encode(),
            ),
            headers=[
                ("host", target.authority),
                ("content-length", str(len(body))),
                *headers.items(),
            ],
            content=body,
            # Reading and writing have the deadline around the whole.
            extensions={"timeout": {"connect": connect_s, "pool": connect_s}},
        )

    async def _answer(self, response: httpcore.Response, rest_s: float) -> Answer:
        body: bytes | None = None
        try:
            with anyio.move_on_after(rest_s):
                body = await self._read_rest(response)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        asked = [value for name, value in response.headers if name.lower() == b"retry-after"]
        verdict = judge(
            response.status,
            asked[0].decode("ascii", "replace") if asked else None,
            now=datetime.now(UTC),
            retry_after_max_s=self._config.retry_after_max_s,
        )
        return Answer(verdict=verdict, status=response.status, body=body)

    async def _read_rest(self, response: httpcore.Response) -> bytes | None:
        body = bytearray()
        try:
            async for chunk in response.aiter_stream():
                body += chunk
                if len(body) > self._config.response_max_bytes:
                    return None
        except (httpcore.NetworkError, httpcore.ProtocolError):
            return None
        return bytes(body)

    def _opened(self) -> httpcore.AsyncConnectionPool:
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=self._ssl_context,
                max_connections=self._config.connections_max,
                keepalive_expiry=_KEEPALIVE_S,
                network_backend=self._backend,
            )
        return self._pool
