"""The only door to the network: dials vetted addresses, and nothing else.

It sits under the connection pool, below TLS and HTTP. The pool asks for a host; what is dialled
is an address that was judged a moment ago, while TLS goes on checking the certificate of the
name and HTTP goes on saying it. Whatever a URL may have meant to the layers above, a connection
that was not vetted does not exist.
"""

from collections.abc import Iterable

import anyio
import httpcore
from httpcore import SOCKET_OPTION

from chronos_runtime.errors import TargetRefused
from chronos_runtime.processors.egress import Egress

_TRIES_MAX = 3  # Addresses of one name; the next attempt of the job may try again.


class VettedBackend(httpcore.AsyncNetworkBackend):
    """Connects to what the egress allows, through another backend.

    >>> VettedBackend(Egress(ports=[], allow=[]))  # doctest: +ELLIPSIS
    <...VettedBackend object at ...>
    """

    def __init__(self, egress: Egress, network: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._egress = egress
        self._network = network or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the pool gives it
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, judge, and dial one address after the other within `timeout`."""
        trouble: Exception = httpcore.ConnectTimeout("the name did not resolve in time")
        with anyio.move_on_after(timeout):
            try:
                addresses = await self._egress.vetted(host, port)
            except OSError as error:
                raise httpcore.ConnectError(str(error)) from error
            for address in addresses[:_TRIES_MAX]:
                try:
                    return await self._network.connect_tcp(
                        address, port, timeout, local_address, socket_options
                    )
                except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                    trouble = error
            raise trouble
        raise httpcore.ConnectTimeout("no connection in time") from trouble

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: a URL has no business with the files of this machine."""
        raise TargetRefused("a socket of this machine may not be reached")

    async def sleep(self, seconds: float) -> None:
        """Wait, for the pool."""
        await anyio.sleep(seconds)
