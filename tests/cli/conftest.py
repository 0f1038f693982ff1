"""A command line without settings of the developer's own, and an application to run."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Cli

SHOP = '''
import asyncio
import pathlib
import time

import msgspec

from chronos_runtime import Chronos, Fixed, Job

app = Chronos()
empty = Chronos()


class Welcome(msgspec.Struct):
    email: str


@app.handler("welcome", topic="mail")
async def welcome(job: Job, payload: Welcome) -> str:
    return f"mail to {payload.email} sent"


@app.handler("hold")
async def hold(job: Job, path: str) -> int:
    """Says that it runs, and runs until the file is there."""
    pathlib.Path(f"{path}.held-{job.attempt}").touch()
    while not pathlib.Path(path).exists():
        await asyncio.sleep(0.01)
    return job.attempt


@app.handler("block")
async def block(job: Job, seconds: float) -> None:
    time.sleep(seconds)
'''


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variables of ours, no chronos.toml, and a width that does not cut."""
    for name in list(os.environ):
        if name.startswith("CHRONOS_") and not name.startswith("CHRONOS_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, dsn: str) -> str:
    """A migrated database that every command finds."""
    monkeypatch.setenv("CHRONOS_DSN", dsn)
    return dsn


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the application `shop:app`."""
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return tmp_path


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """The same where another user may pass through: root's embedded Postgres runs as one."""
    with tempfile.TemporaryDirectory(prefix="chronos-tests-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        yield folder
