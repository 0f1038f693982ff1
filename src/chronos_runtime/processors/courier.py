"""The courier carries one POST to a target and comes back with a verdict.

Its connection pool is httpcore's, and there is no client of httpx on top: what a client adds
(redirects, cookies, proxies from the environment, decompression) is what a delivery must not do.
Of an answer the status is kept and the rest is read only so that the connection can be used
again: a small one to its end, of a large or slow one no more than the bound.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime

import anyio
import httpcore

from chronos_runtime.processor_config import WakeConfig
from chronos_runtime.processors.dialer import VettedBackend
from chronos_runtime.processors.egress import Egress
from chronos_runtime.processors.targets import Target
from chronos_runtime.processors.verdict import Verdict, judge

_KEEPALIVE_S = 30.0  # Below the idle timeout of every usual server and balancer.
_REST_S = 1.0  # How long the rest of an answer may take; its status is known by then.
_CLOSE_S = 1.0


class Courier:
    """Posts to what the egress allows; opens its connections when they are needed.

    >>> Courier(WakeConfig(), Egress(ports=[], allow=[]))  # doctest: +ELLIPSIS
    <...Courier object at ...>
    """

    def __init__(
        self,
        config: WakeConfig,
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
        try:
            with anyio.fail_after(timeout_s):
                return await self._exchange(self._request(target, headers, body))
        except (httpcore.ConnectTimeout, httpcore.PoolTimeout):
            return Verdict("timeout", f"no connection within {self._config.connect_s:g} s")
        except (TimeoutError, httpcore.TimeoutException):
            return Verdict("timeout", f"no answer within {timeout_s:g} s")
        except httpcore.NetworkError as error:
            return Verdict("unreachable", _words(error))
        except httpcore.ProtocolError:
            return Verdict("invalid_answer", "what it answered is not HTTP")

    async def aclose(self) -> None:
        """Close what is open; a later post opens it again."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            with anyio.move_on_after(_CLOSE_S):
                await pool.aclose()

    def _request(self, target: Target, headers: Mapping[str, str], body: bytes) -> httpcore.Request:
        connect_s = self._config.connect_s
        return httpcore.Request(
            b"POST",
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

    async def _exchange(self, request: httpcore.Request) -> Verdict:
        response = await self._opened().handle_async_request(request)
        try:
            asked = [value for name, value in response.headers if name.lower() == b"retry-after"]
            await self._read_rest(response)
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        return judge(
            response.status,
            asked[0].decode("ascii", "replace") if asked else None,
            now=datetime.now(UTC),
            retry_after_max_s=self._config.retry_after_max_s,
        )

    async def _read_rest(self, response: httpcore.Response) -> None:
        left = self._config.response_max_bytes
        try:
            with anyio.move_on_after(_REST_S):
                async for chunk in response.aiter_stream():
                    left -= len(chunk)
                    if left < 0:
                        return
        except (httpcore.NetworkError, httpcore.ProtocolError):
            pass  # The status stands, whatever became of the rest.

    def _opened(self) -> httpcore.AsyncConnectionPool:
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=self._ssl_context,
                max_connections=self._config.connections_max,
                keepalive_expiry=_KEEPALIVE_S,
                network_backend=self._backend,
            )
        return self._pool


def _words(error: BaseException) -> str:
    """Why there was no answer, in the words of TLS or of the operating system."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not good: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason}"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return "no connection" if isinstance(error, httpcore.ConnectError) else "the connection broke"
