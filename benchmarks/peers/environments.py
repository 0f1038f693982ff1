"""Each peer's own environment: made on demand, at exactly the pinned versions, kept for later.

    .bench-peers/<peer>/   a virtual environment, or a folder with node_modules

A folder carries the pins it was made from; when those change it is made anew.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import anyio
import msgspec

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.child import STDERR_TAIL_CHARS, PeerFailed
from chronos_runtime.version import VERSION

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".bench-peers"
ADAPTERS = HERE / "adapters"
REQUIREMENTS = HERE / "requirements"
NPM = HERE / "npm"

_INSTALL_DEADLINE_S = 600.0


class Environment(msgspec.Struct, frozen=True):
    """Where a peer's adapter runs, and with what."""

    version: str
    program: Path
    script: Path
    folder: Path

    def command(self, workload: str, dsn: str, count: int) -> list[str]:
        """The command line that runs the adapter."""
        return [str(self.program), str(self.script), workload, dsn, str(count)]


async def prepare(peer: Peer) -> Environment:
    """The environment of `peer`, made now if it is not there."""
    match peer.source:
        case "here":
            return Environment(VERSION, Path(sys.executable), ADAPTERS / peer.adapter, ROOT)
        case "pypi":
            return await _from_pypi(peer)
        case "npm":
            return await _from_npm(peer)


async def _from_pypi(peer: Peer) -> Environment:
    pins = REQUIREMENTS / f"{peer.name}.txt"
    folder = CACHE / peer.name
    python = folder / "bin" / "python"
    if not _is_made(folder, pins):
        await _run(sys.executable, "-m", "venv", "--clear", str(folder), folder=ROOT)
        install = ["install", "--quiet", "--no-input", "--disable-pip-version-check"]
        options = ["--require-hashes", "--requirement", str(pins)]
        await _run(str(python), "-m", "pip", *install, *options, folder=folder)
        _mark_made(folder, pins)
    pinned = re.search(rf"^{re.escape(peer.name)}==(\S+)", pins.read_text("utf-8"), re.MULTILINE)
    assert pinned is not None, pins
    return Environment(pinned[1], python, ADAPTERS / peer.adapter, folder)


async def _from_npm(peer: Peer) -> Environment:
    description = NPM / peer.name / "package.json"
    pins = NPM / peer.name / "package-lock.json"
    folder = CACHE / peer.name
    if not _is_made(folder, pins):
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        shutil.copy(description, folder)
        shutil.copy(pins, folder)
        await _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
        _mark_made(folder, pins)
    for script in ADAPTERS.glob("*.mjs"):
        shutil.copy(script, folder)  # Node.js looks for packages around the script only.
    version = json.loads(description.read_text("utf-8"))["dependencies"][peer.name]
    return Environment(version, _node(folder), folder / peer.adapter, folder)


def _node(folder: Path) -> Path:
    """The pinned Node.js, or where none is packaged for the platform, the one on the path."""
    pinned = next(folder.glob("node_modules/node-*/bin/node"), None)
    found = pinned or shutil.which("node")
    if found is None:
        raise PeerFailed("node is not on the path")
    return Path(found)


def _is_made(folder: Path, pins: Path) -> bool:
    stamp = folder / "made-from"
    return stamp.exists() and stamp.read_bytes() == pins.read_bytes()


def _mark_made(folder: Path, pins: Path) -> None:
    """Done last: what an interrupted install leaves behind is made anew."""
    shutil.copy(pins, folder / "made-from")


async def _run(*command: str, folder: Path) -> None:
    try:
        with anyio.fail_after(_INSTALL_DEADLINE_S):
            done = await anyio.run_process(command, cwd=folder, check=False)
    except FileNotFoundError:
        raise PeerFailed(f"{command[0]} is not on the path") from None
    except TimeoutError:
        raise PeerFailed(f"not installed within {_INSTALL_DEADLINE_S:g} s") from None
    if done.returncode != 0:
        tail = done.stderr.decode(errors="replace").strip()[-STDERR_TAIL_CHARS:]
        raise PeerFailed(f"not installed: {tail}")
