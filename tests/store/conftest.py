"""Every test that asks for a `world` runs on both stores, and on both event loops in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.store.world import World, open_world


@pytest.fixture(params=["memory-asyncio", "memory-trio", "postgres"])
def setting(request: pytest.FixtureRequest) -> str:
    """Which store on which event loop."""
    return str(request.param)


@pytest.fixture
def anyio_backend(setting: str) -> tuple[str, dict[str, Any]]:
    """The event loop of the setting."""
    return ("trio", {}) if setting == "memory-trio" else ("asyncio", {"use_uvloop": True})


@pytest.fixture
def world_dsn(setting: str, request: pytest.FixtureRequest) -> str | None:
    """A database where one is needed."""
    return request.getfixturevalue("dsn") if setting == "postgres" else None


@pytest.fixture
async def world(world_dsn: str | None, anyio_backend: object) -> AsyncIterator[World]:
    """An empty store, and time at hand."""
    async with open_world(world_dsn) as world:
        yield world
