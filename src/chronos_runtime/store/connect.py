"""How a connection is opened: settings every session of ours has, whatever the server's."""

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.errors import ConfigError

_SESSION = {
    "application_name": "chronos-runtime",
    "default_transaction_isolation": "read committed",
    # The statements' shapes leave one good plan; planning arrays of thousands anew costs more.
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # Every statement has its index; a plan made while the table is empty must serve a million
    # rows, and rows are locked in the order of the index, not in that of a bitmap.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}


async def connect(config: DatabaseConfig) -> asyncpg.Connection:
    """One connection for our own statements."""
    # The server gives a statement up when we do, so that its locks go with it.
    return await _open(config, _SESSION | {"statement_timeout": f"{config.statement_s * 1000:.0f}"})


async def connect_for_handlers(config: DatabaseConfig) -> asyncpg.Connection:
    """One connection for what handlers send, which may be anything."""
    names = ("application_name", "default_transaction_isolation")
    idle = {"idle_in_transaction_session_timeout": f"{config.transaction_idle_s * 1000:.0f}"}
    return await _open(config, {name: _SESSION[name] for name in names} | idle)


async def _open(config: DatabaseConfig, settings: dict[str, str]) -> asyncpg.Connection:
    """One connection, to the writable server where the DSN names several."""
    if config.pgbouncer:
        # A pooler in transaction mode: no session settings, no prepared statements.
        settings = {"application_name": _SESSION["application_name"]}
    try:
        return await asyncpg.connect(
            config.dsn,
            timeout=config.connect_s,
            server_settings=settings,
            statement_cache_size=0 if config.pgbouncer else 100,
            target_session_attrs=SessionAttribute.read_write,
        )
    except ValueError:
        # Without what the driver says: it quotes the part it stumbled over, often of a password.
        raise ConfigError(
            "database.dsn: cannot be read; write postgresql://user:password@host:5432/name, with"
            " special characters of the password percent-encoded"
        ) from None
