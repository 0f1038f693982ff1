"""What the README shows works as printed."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest

from chronos_runtime import Client, Config, Runtime
from chronos_runtime.config import DatabaseConfig, ExporterConfig
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE_LINES_MAX = 12


def first_example() -> str:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_example_is_short() -> None:
    lines = [line for line in first_example().splitlines() if line.strip()]
    assert len(lines) <= EXAMPLE_LINES_MAX


async def test_the_first_example_runs(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shop: Any = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", shop)
    exec(compile(first_example(), "README.md", "exec"), shop.__dict__)
    database = DatabaseConfig(dsn=dsn)
    runtime = Runtime(shop.app, Config(database=database, exporter=ExporterConfig(port=0)))
    stop = anyio.Event()
    async with Client.connect(dsn, shop.app) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.run, stop)
        await shop.sign_up(client, "ada@example.org")

        async def results() -> list[object]:
            page = await client.list(states=["succeeded"])
            return [job.result for job in page.jobs]

        assert await eventually(results) == ["mail to ada@example.org sent"]
        stop.set()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\$ make (\S+)", README))))
def test_a_make_target_exists(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
