"""The exporter serves /metrics, /healthz and /readyz.

/healthz says that the process is alive; /readyz that the database answers and every actor made
progress lately, and names what does not. It runs on threads of its own, so a blocked event loop
cannot hide itself. It is woken by HTTP. It refuses to serve anything about single jobs.

If it dies right now: it is restarted; nothing else depends on it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

import anyio
from prometheus_client import make_wsgi_app

from chronos_runtime.config import ExporterConfig
from chronos_runtime.errors import ConfigError
from chronos_runtime.metrics import Metrics

_TICK_S = 1.0
# How long the event loop may wait for the server's thread to end, which looks so often.
_SHUTDOWN_S = 0.1

_log = logging.getLogger(__name__)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind, without the look-up of the host's full name that can hang on a broken resolver."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up or falls silent is not news either."""
        _log.debug("request broke off", exc_info=True)


class _QuietHandler(WSGIRequestHandler):
    timeout = 10.0  # A client that sends nothing holds a thread no longer than this.

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not news."""


class Exporter:
    """Serves metrics and health over HTTP."""

    name = "exporter"

    def __init__(
        self, config: ExporterConfig, metrics: Metrics, *, refresh: Callable[[], None]
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._progress = metrics.actors[self.name]
        self._refresh = refresh
        self._metrics_app = make_wsgi_app(metrics.registry)
        self.url = ""

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            server = make_server(
                self._config.host,
                self._config.port,
                self._serve,
                server_class=_Server,
                handler_class=_QuietHandler,
            )
        except OSError as error:
            raise ConfigError(
                f"exporter.port: cannot listen on {self._config.host}:{self._config.port}"
                f" ({error.strerror}); choose another with --metrics-port, 0 for any free one"
            ) from error
        self.url = f"http://{self._config.host}:{server.server_port}"
        _log.info("metrics at %s/metrics", self.url)
        with server:
            # A thread of its own: one of the shared pool may be hours away while handlers fill
            # it, and `shutdown` waits for ever for a `serve_forever` that never began.
            thread = threading.Thread(
                target=server.serve_forever,
                args=(_SHUTDOWN_S,),
                name="chronos-exporter",
                daemon=True,
            )
            thread.start()
            try:
                while True:
                    self._refresh()
                    self._progress.progress()
                    await anyio.sleep(_TICK_S)
            finally:
                server.shutdown()
                thread.join()

    def _serve(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        match environ.get("REQUEST_METHOD"):
            case "GET":
                return self._get(environ, start)
            case "HEAD":
                self._get({**environ, "REQUEST_METHOD": "GET"}, start)
                return []
            case _:
                return _answer(
                    start, "405 Method Not Allowed", "only GET\n", ("Allow", "GET, HEAD")
                )

    def _get(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        match environ.get("PATH_INFO"):
            case "/metrics":
                with self._progress.measure() as rows:
                    self._refresh()
                    body = list(self._metrics_app(environ, start))
                    rows(1)
                return body
            case "/healthz":
                return _answer(start, "200 OK", "ok\n")
            case "/readyz":
                troubles = self.troubles()
                if troubles:
                    return _answer(start, "503 Service Unavailable", "\n".join(troubles) + "\n")
                return _answer(start, "200 OK", "ready\n")
            case _:
                return _answer(start, "404 Not Found", "/metrics /healthz /readyz\n")

    def troubles(self) -> list[str]:
        """Why this process is not ready; empty when it is."""
        now = time.monotonic()
        stale_s = self._config.stale_s
        troubles = []
        if now - self._metrics.answered_at > stale_s or not self._metrics.answered_at:
            troubles.append("database: no answer lately")
        for name, actor in self._metrics.actors.items():
            age = now - actor.progressed_at
            if not actor.is_resting and age > stale_s + actor.interval_s:
                troubles.append(f"{name}: no progress for {age:.0f} s")
        return troubles


def _answer(start: StartResponse, status: str, text: str, *headers: tuple[str, str]) -> list[bytes]:
    plain = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
    start(status, [*plain, *headers])
    return [text.encode()]
