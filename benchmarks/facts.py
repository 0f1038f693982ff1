"""What a result was measured on: the machine and the versions, and nothing that names a person."""

import datetime as dt
import os
import platform
from importlib.metadata import version
from pathlib import Path

import asyncpg
import msgspec

from chronos_runtime.version import VERSION

_PACKAGES = ("anyio", "asyncpg", "msgspec", "uvloop")


class Facts(msgspec.Struct, frozen=True):
    """The machine, the server and the versions."""

    date: str
    chronos: str
    postgres: str
    python: str
    packages: dict[str, str]
    cores: int
    memory_gb: int
    processor: str
    system: str

    @property
    def sentence(self) -> str:
        """All of it on one line."""
        return (
            f"Chronos {self.chronos}, PostgreSQL {self.postgres}, Python {self.python},"
            f" {self.cores} cores ({self.processor}), {self.memory_gb} GB, {self.date}"
        )


async def read_facts(dsn: str) -> Facts:
    """The facts of this machine and the server behind `dsn`."""
    connection = await asyncpg.connect(dsn)
    try:
        postgres = str(await connection.fetchval("show server_version"))
    finally:
        await connection.close()
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Facts(
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        chronos=VERSION,
        postgres=postgres.split(maxsplit=1)[0],
        python=platform.python_version(),
        packages={name: version(name) for name in _PACKAGES},
        cores=os.cpu_count() or 0,
        memory_gb=round(pages * page_bytes / 2**30),
        processor=_processor(),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
