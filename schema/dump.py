"""Write `schema.sql`: the schema as the migrations leave it, for people to read and to review.

`make schema` runs this; `tests/sql/test_schema_snapshot.py` fails when it was forgotten. Always
by PostgreSQL 18, because every version of pg_dump spells things its own way.
"""

import asyncio
import re
import subprocess
import tempfile
from pathlib import Path

import asyncpg

from chronos_runtime.embedded import EmbeddedPostgres
from chronos_runtime.store.migrations import migrate

SNAPSHOT = Path(__file__).parent / "schema.sql"
VERSION = 18

HEADER = "-- Generated from migrations/ by `make schema`; do not edit.\n\n"

# What depends on the build, the session or the day and not on the migrations.
_NOISE = re.compile(
    r"""
    ^(
        --.*
      | \\(un)?restrict\ .*
      | SET\ .*;
      | SELECT\ pg_catalog\.set_config.*;
    )\n
    """,
    re.MULTILINE | re.VERBOSE,
)


def dump(server: EmbeddedPostgres, dsn: str) -> str:
    """The text of the snapshot, for the migrated database at `dsn`."""
    done = subprocess.run(
        [
            server.bin_path / "pg_dump",
            "--schema-only",
            "--schema=chronos",
            "--no-owner",
            "--no-privileges",
            # Named after days; the janitor makes them, no migration does.
            "--exclude-table=chronos.job_history_[0-9]*",
            f"--dbname={dsn}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return HEADER + re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", done.stdout)).strip() + "\n"


async def _migrate(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await migrate(connection)
    finally:
        await connection.close()


def main() -> None:
    """Migrate an empty database and write down what came of it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder), version=VERSION, settings={"fsync": "off"}) as server,
    ):
        asyncio.run(_migrate(server.dsn))
        SNAPSHOT.write_text(dump(server, server.dsn), encoding="utf-8")


if __name__ == "__main__":
    main()
