"""What a parent tells a child process."""

import msgspec

from chronos_runtime.config import Config
from chronos_runtime.errors import ConfigError
from chronos_runtime.ids import Worker
from chronos_runtime.logs import LogFormat, LogLevel

COMMAND = "child"
PORT_MAX = 65_535


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a child needs, the DSN included: on a pipe nobody else can read it."""

    app: str
    config: Config
    log_format: LogFormat
    log_level: LogLevel
    index: int = 0
    identity: str = ""

    @property
    def worker(self) -> Worker:
        """The identity the parent gave it, and will release the leases of."""
        return Worker(bytes.fromhex(self.identity))

    def for_child(self, index: int, worker: Worker) -> "Orders":
        """The same for one child: its identity, and a port of its own unless that is any."""
        config = self.config
        if port := config.exporter.port:
            if port + index > PORT_MAX:
                raise ConfigError(f"exporter.port: {port} leaves none for process {index}")
            exporter = msgspec.structs.replace(config.exporter, port=port + index)
            config = msgspec.structs.replace(config, exporter=exporter)
        identity = worker.id.bytes[:8].hex()
        return msgspec.structs.replace(self, config=config, index=index, identity=identity)

    def encode(self) -> bytes:
        """As one line."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, line: bytes) -> "Orders":
        """From that line."""
        return msgspec.json.decode(line, type=cls)
