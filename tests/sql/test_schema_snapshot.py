"""`schema/schema.sql` is what the migrations make."""

import runpy
from pathlib import Path

import pytest

from tests.postgres import Databases, wanted_version

SCHEMA = Path(__file__).parents[2] / "schema"


def test_the_snapshot_is_what_the_migrations_make(databases: Databases, dsn: str) -> None:
    script = runpy.run_path(str(SCHEMA / "dump.py"))
    if wanted_version() != script["VERSION"]:
        pytest.skip("the snapshot is written by one version of pg_dump")
    made = script["dump"](databases.server, dsn)
    assert (SCHEMA / "schema.sql").read_text(encoding="utf-8") == made, "run `make schema`"
