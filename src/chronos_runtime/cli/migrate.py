"""`chronos-runtime migrate`: bring the schema to the version this program needs."""

from typing import Annotated

import typer

from chronos_runtime.cli.database import existing_database, migrate_schema
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.options import ConfigFile, Dsn, Json
from chronos_runtime.cli.output import print_json, print_line
from chronos_runtime.store.migrations import LOCK_TIMEOUT_S
from chronos_runtime.store.sql import Migration, migrations


def migrate(
    *,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be applied.")
    ] = False,
    lock_timeout_s: Annotated[
        float, typer.Option("--lock-timeout", metavar="SECONDS", help="Give up after so long.")
    ] = LOCK_TIMEOUT_S,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Apply the migrations that are missing, each in a transaction of its own.

    Safe to run at any time, also from many machines at once.
    """

    async def command() -> list[Migration]:
        async with existing_database(dsn, config) as found:
            return await migrate_schema(
                found.database, is_dry=is_dry, lock_timeout_s=lock_timeout_s
            )

    done = [f"{one.number:04}_{one.name}" for one in execute(command)]
    if json:
        print_json({"pending" if is_dry else "applied": done, "version": len(migrations())})
        return
    for name in done:
        print_line(f"{'pending' if is_dry else 'applied'}  {name}")
    if not done:
        print_line(f"the schema is current: version {len(migrations())}")
