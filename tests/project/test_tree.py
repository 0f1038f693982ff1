"""The rules of the source tree that a machine can check."""

import ast
import inspect
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import chronos_runtime

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = "chronos_runtime"
MODULES = sorted(SOURCE.rglob("*.py"))

LINES_MAX = 300

# Who stands above whom: a module imports from its own rank or from below. What is not listed
# is a leaf and imports leaves. The package itself (`__init__`) stands on top.
RANKS = {
    "": 6,
    "__main__": 6,
    "cli": 5,
    "beat_thread": 4,
    "runtime": 4,
    "testing": 4,
    "actors": 3,
    "alarms": 3,
    "answers": 3,
    "app": 3,
    "client": 3,
    "console": 3,
    "definitions": 3,
    "processors": 3,
    "schedules": 3,
    "supervisor": 3,
    "synchronise": 3,
    "store": 2,
}
LEAF_RANK = 1

# The driver is the store's secret. The client takes a caller's connection and a transaction gives
# one, so these name its type; ids are made as its class of uuid.
SPEAKS_ASYNCPG = {"store", "client", "transaction", "ids"}

# Spelled in halves, or this file would be the only one to fail.
LEFTOVERS = re.compile(rf"\b({'|'.join(['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', 'HA' + 'CK'])})\b")
TEXT_SUFFIXES = {".md", ".py", ".sql", ".toml", ".yaml"}


def module_name(path: Path) -> str:
    """The dotted name of a file: store/sql.py is `chronos_runtime.store.sql`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it; `from a import b` gives a.b where b is one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in NAMES else node.module


NAMES = {module_name(path): path for path in MODULES}


def own_imports(path: Path) -> set[str]:
    return {name for name in imported_modules(path) if name.split(".")[0] == PACKAGE}


def place(module: str) -> str:
    """The first name below the package: what the ranks are given to."""
    return module.removeprefix(PACKAGE).removeprefix(".").split(".")[0]


def rank(module: str) -> int:
    return RANKS.get(place(module), LEAF_RANK)


def by_name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_imports_point_down(path: Path) -> None:
    module = module_name(path)
    upward = {name for name in own_imports(path) if rank(name) > rank(module)}
    assert not upward, f"{module} (rank {rank(module)}) imports from above"


def test_there_is_no_import_cycle() -> None:
    graph = {name: own_imports(path) - {name} for name, path in NAMES.items()}
    TopologicalSorter(graph).prepare()


def is_actor(path: Path) -> bool:
    """Whether a module has a class that runs, and not only what an actor is made of."""
    return any(
        isinstance(method, ast.AsyncFunctionDef) and method.name == "run"
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        for method in node.body
    )


def test_actors_never_import_each_other() -> None:
    actors = {
        name
        for name, path in NAMES.items()
        if name.startswith(f"{PACKAGE}.actors.") and is_actor(path)
    }
    assert actors
    for actor in actors:
        others = own_imports(NAMES[actor]) & (actors - {actor})
        assert not others, f"{actor} imports another actor"


def test_only_the_store_speaks_to_the_driver() -> None:
    speakers = {
        place(name)
        for name, path in NAMES.items()
        if any(module.split(".")[0] == "asyncpg" for module in imported_modules(path))
    }
    assert speakers <= SPEAKS_ASYNCPG


def test_nothing_is_left_for_later() -> None:
    for folder in ("src", "tests", "schema", "benchmarks", "examples", "grafana"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in TEXT_SUFFIXES:
                found = LEFTOVERS.search(path.read_text(encoding="utf-8"))
                assert found is None, f"{path}: {found}"


def test_the_public_names_are_exactly_all() -> None:
    public = {
        name
        for name, value in vars(chronos_runtime).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(chronos_runtime.__all__)
    assert list(chronos_runtime.__all__) == sorted(chronos_runtime.__all__)


def test_every_public_name_is_documented() -> None:
    for name in chronos_runtime.__all__:
        value = getattr(chronos_runtime, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, f"{name} has no docstring"
