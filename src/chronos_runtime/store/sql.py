"""Where the SQL lives: one file per statement, one file per migration, read once.

The `schema/` folder stands at the root of a checkout and inside the package in a wheel, so
that people read SQL as SQL and the program needs no build step.
"""

import re
from functools import cache
from pathlib import Path

import msgspec

_PACKAGE = Path(__file__).resolve().parents[1]
_MIGRATION_NAME = re.compile(r"(?P<number>\d{4})_(?P<name>[a-z0-9_]+)")


class Migration(msgspec.Struct, frozen=True):
    """One numbered, forward-only step of the schema."""

    number: int
    name: str
    sql: str


@cache
def query(name: str) -> str:
    """The text of `schema/queries/<name>.sql`."""
    return (_schema_folder() / "queries" / f"{name}.sql").read_text(encoding="utf-8")


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration this program knows, in order; the last number is the version it needs."""
    found = tuple(
        _read_migration(path) for path in sorted((_schema_folder() / "migrations").glob("*.sql"))
    )
    # A gap or a number used twice is two branches merged carelessly; some databases would then
    # never see one of the files.
    assert [migration.number for migration in found] == list(range(1, len(found) + 1)), (
        f"migrations must be numbered 1, 2, 3, …: {[m.number for m in found]}"
    )
    return found


def _read_migration(path: Path) -> Migration:
    match = _MIGRATION_NAME.fullmatch(path.stem)
    assert match is not None, f"a migration is named NNNN_name.sql: {path.name}"
    return Migration(
        number=int(match["number"]), name=match["name"], sql=path.read_text(encoding="utf-8")
    )


@cache
def _schema_folder() -> Path:
    installed, checkout = _PACKAGE / "schema", _PACKAGE.parents[1] / "schema"
    folder = installed if installed.is_dir() else checkout
    assert (folder / "migrations").is_dir(), (
        f"the schema folder is in neither {installed} nor {checkout}"
    )
    return folder
