"""What is installed is what the checkout runs."""

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_the_package_and_its_sql_and_nothing_else(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    package = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    sql = {
        f"chronos_runtime/{path.relative_to(ROOT)}"
        for folder in ("migrations", "queries")
        for path in (ROOT / "schema" / folder).glob("*.sql")
    }
    assert held == package | sql
