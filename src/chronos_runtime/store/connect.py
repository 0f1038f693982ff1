"""How a connection is opened: settings every session of ours has, whatever the server's."""

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from chronos_runtime.config import DatabaseConfig
from chronos_runtime.errors import ConfigError

_NAMED = {
    "application_name": "chronos-runtime",
    "default_transaction_isolation": "read committed",
}
_PLANNED = {
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
    return await _open(config, _NAMED | _planned(config))


async def connect_for_handlers(config: DatabaseConfig) -> asyncpg.Connection:
    """One connection for what handlers send, which may be anything."""
    idle = {"idle_in_transaction_session_timeout": f"{config.transaction_idle_s * 1000:.0f}"}
    return await _open(config, _NAMED | idle)


def settings_of_ours(config: DatabaseConfig) -> str:
    """What makes the rest of a handler's transaction one of ours, in one round trip."""
    settings = {"role": "none"} | _planned(config)
    return "; ".join(f"set local {name} = {value}" for name, value in settings.items())


def _planned(config: DatabaseConfig) -> dict[str, str]:
    # The server gives a statement up when we do, so that its locks go with it.
    return _PLANNED | {"statement_timeout": f"{config.statement_s * 1000:.0f}"}


async def _open(config: DatabaseConfig, settings: dict[str, str]) -> asyncpg.Connection:
    """One connection, to the writable server where the DSN names several."""
    if config.pgbouncer:
        # A pooler in transaction mode: no session settings, no prepared statements.
        settings = {"application_name": _NAMED["application_name"]}
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
