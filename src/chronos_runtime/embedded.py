"""A Postgres of one's own, for laptops, demos and tests: no install, no container, no root.

Starting a server is one `initdb` and one `pg_ctl`. Several processes may use the same data
folder and so share one server; who is still there is known by two locks that the kernel lets go
of when a process dies, whatever it dies of:

    <data_dir>/starting   held alone, for the moment of a start or a stop
    <data_dir>/users      held shared by everybody who uses the server
    <data_dir>/cluster/   the database, its log and, where the path is short enough, its socket

The last user to stop stops the server. A user that is killed leaves it running, and the next
start joins it. Durability is Postgres's own: fsync and synchronous_commit stay on.

`pg_ctl` gives the server a session of its own, so Ctrl-C in the terminal reaches this process
and not the database it still has to drain into.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self
from urllib.parse import quote

from chronos_runtime.embedded_programs import find_programs, make_folder, run_program
from chronos_runtime.errors import ConfigError, StoreUnavailable

DEFAULT_VERSION = 18

DEFAULT_PORT = 5432
"""Names the socket file; nothing listens on TCP unless asked to."""

START_TIMEOUT_S = 120
"""A start after a crash replays up to max_wal_size of log, about a minute on a slow disk."""

SOCKET_PATH_MAX = 100
"""The kernel's limit is 104 bytes on macOS and 108 on Linux."""

LOG_TAIL_CHARS = 2000

CONFIG = """\
# Written once by Chronos; edit freely.
max_connections = 200          # several runtimes, each with a pool, on one machine
shared_buffers = 256MB         # the live jobs and their indexes stay in memory
max_wal_size = 2GB             # a burst of jobs should not cause a checkpoint every few seconds
checkpoint_timeout = 15min     # the same, for a steady load
autovacuum_naptime = 10s       # finished jobs leave dead rows by the thousand per second
log_checkpoints = off          # the log has no rotation: keep it to what matters
"""

StopMode = Literal["fast", "immediate"]


class EmbeddedPostgres:
    """A local Postgres server, started on `start` and stopped by the last of its users.

    `settings` override the configuration file for as long as the server runs. `listen_port`
    opens 127.0.0.1 to everybody on the machine, without a password. `bin_path` names another
    build than the wheel's. A server that is already running is joined as it is.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        version: int = DEFAULT_VERSION,
        settings: Mapping[str, str] | None = None,
        listen_port: int | None = None,
        bin_path: Path | None = None,
    ) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self.bin_path = bin_path or find_programs(version)
        self.log_path = self.data_dir / "cluster" / "server.log"
        self._version = version
        self._settings = dict(settings or {})
        self._listen_port = listen_port
        self._cluster = self.data_dir / "cluster"
        self._users: IO[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Where to connect: the superuser `postgres`, database `postgres`, over the socket."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str) -> str:
        """The same server, another database."""
        _, port, socket_dir = self._postmaster()
        return f"postgresql://postgres@/{quote(database)}?host={quote(socket_dir)}&port={port}"

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._postmaster()[0]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Make the database if it is new, then start the server or join the one that runs."""
        assert self._users is None, "already started"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self._starting():
            if not self._cluster.exists():
                self._initialise()
            self._refuse_other_version()
            if not self._is_running():
                self._pg_ctl("start", f"--log={self.log_path}", f"--options={self._options()}")
            self._users = (self.data_dir / "users").open("ab")
            fcntl.flock(self._users, fcntl.LOCK_SH)

    def stop(self, mode: StopMode = "fast") -> None:
        """Leave; the last one to leave stops the server."""
        if self._users is None:
            return
        with self._starting(), self._users as users:
            self._users = None
            # Let go explicitly: a forked child may have inherited the file, and with it the lock.
            fcntl.flock(users, fcntl.LOCK_UN)
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if self._is_running():
                self._pg_ctl("stop", f"--mode={mode}")
            if self._socket_dir() != self._cluster:
                with suppress(OSError):
                    self._socket_dir().rmdir()

    def restart(self, mode: StopMode = "fast") -> None:
        """Restart under everybody's feet; `immediate` is a crash, recovery included."""
        with self._starting():
            self._pg_ctl("restart", f"--mode={mode}", f"--log={self.log_path}")

    @contextmanager
    def _starting(self) -> Iterator[None]:
        with (self.data_dir / "starting").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _initialise(self) -> None:
        # Under another name until complete: what a killed initdb leaves must not be started.
        draft = self.data_dir / "cluster.draft"
        if draft.exists():
            shutil.rmtree(draft)
        make_folder(draft)
        run_program(
            self.bin_path / "initdb",
            f"--pgdata={draft}",
            "--username=postgres",
            "--auth=trust",  # The folder of the socket lets nobody in but its owner.
            "--encoding=UTF8",
            "--no-locale",  # Exists everywhere, sorts alike everywhere, speaks English.
            "--no-instructions",
            *(["--no-sync"] if self._settings.get("fsync") == "off" else []),
            owned=draft,
        )
        (draft / "chronos.conf").write_text(CONFIG, encoding="utf-8")
        (draft / "chronos.conf").chmod(0o644)  # Ours, if we are root; the server's to read.
        with (draft / "postgresql.conf").open("a", encoding="utf-8") as config:
            config.write("include 'chronos.conf'\n")
        draft.rename(self._cluster)

    def _refuse_other_version(self) -> None:
        made_by = (self._cluster / "PG_VERSION").read_text(encoding="ascii").strip()
        if made_by != str(self._version):
            raise ConfigError(
                f"data_dir: {self.data_dir} was made by PostgreSQL {made_by}, not {self._version}: "
                "choose another folder, or dump it with the old version first"
            )

    def _options(self) -> str:
        settings = {
            # Never left to the environment or a file: a port open by accident asks no password.
            "port": str(self._listen_port or DEFAULT_PORT),
            "listen_addresses": "127.0.0.1" if self._listen_port else "",
            "unix_socket_directories": str(self._socket_dir()),
            **self._settings,
        }
        return " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in settings.items())

    def _socket_dir(self) -> Path:
        """The cluster's own folder, or a short stand-in where its path is too long for a socket."""
        if len(os.fsencode(self._cluster / ".s.PGSQL.65535.lock")) <= SOCKET_PATH_MAX:
            return self._cluster
        digest = hashlib.sha256(os.fsencode(self._cluster)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"chronos-{digest}"
        if not folder.exists():
            make_folder(folder)
        if folder.stat().st_uid != self._cluster.stat().st_uid:
            raise ConfigError(f"data_dir: {folder}, needed for its socket, belongs to another user")
        return folder

    def _is_running(self) -> bool:
        """Whether something answers; a process id alone may since belong to anybody."""
        try:
            _, port, socket_dir = self._postmaster()
        except StoreUnavailable:
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(f"{socket_dir}/.s.PGSQL.{port}") == 0

    def _postmaster(self) -> tuple[int, int, str]:
        """Process id, port and socket folder, as the server itself wrote them down."""
        try:
            lines = (self._cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            return int(lines[0]), int(lines[3]), lines[4]
        except (FileNotFoundError, IndexError) as error:
            raise StoreUnavailable(f"no embedded Postgres runs in {self.data_dir}") from error

    def _pg_ctl(self, command: str, *arguments: str) -> None:
        try:
            run_program(
                self.bin_path / "pg_ctl",
                command,
                f"--pgdata={self._cluster}",
                "--wait",
                f"--timeout={START_TIMEOUT_S}",
                *arguments,
                owned=self._cluster,
            )
        except StoreUnavailable as error:
            if self.log_path.exists():
                error.add_note(self.log_path.read_text(errors="replace")[-LOG_TAIL_CHARS:])
            raise
