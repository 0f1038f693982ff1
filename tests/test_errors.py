"""The tree of errors is the one its docstring draws, and every exit code is the one it tells."""

import inspect
import re

import pytest

import chronos_runtime
from chronos_runtime import errors
from chronos_runtime.errors import (
    ChronosError,
    InputError,
    JobNotFound,
    PayloadError,
    StoreError,
    StoreUnavailable,
    UnknownKind,
)

_BRANCH = re.compile(r"(?P<indent> {4}[│ ├└─]*)(?P<name>[A-Z]\w+)( .*?)??(exit (?P<code>\d+))?")

CLASSES = {
    name: found
    for name, found in vars(errors).items()
    if inspect.isclass(found) and issubclass(found, ChronosError)
}


def drawn_tree() -> dict[str, tuple[str | None, int | None]]:
    """Each class in the docstring's drawing: its parent and its exit code."""
    tree: dict[str, tuple[str | None, int | None]] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = _BRANCH.fullmatch(line)
        if match is None:
            continue
        depth = len(match["indent"])
        path = [(indent, name) for indent, name in path if indent < depth]
        code = int(match["code"]) if match["code"] else None
        tree[match["name"]] = (path[-1][1] if path else None, code)
        path.append((depth, match["name"]))
    return tree


def test_the_drawing_shows_every_error_under_its_parent() -> None:
    parents = {
        name: next((base.__name__ for base in found.__bases__ if base in CLASSES.values()), None)
        for name, found in CLASSES.items()
    }
    assert {name: parent for name, (parent, _) in drawn_tree().items()} == parents


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_drawing_tells_the_exit_code(name: str) -> None:
    _, code = drawn_tree()[name]
    if code is not None:
        assert CLASSES[name].exit_code == code
    else:
        assert CLASSES[name].exit_code in {errors.EXIT_BUG, InputError.exit_code}


def test_every_exit_code_is_explained() -> None:
    explained = {int(code) for code in re.findall(r"[:·]\s(\d+) ", errors.__doc__ or "")}
    used = {found.exit_code for found in CLASSES.values()}
    assert used | {0, errors.EXIT_BUG, errors.EXIT_SECOND_SIGNAL} == explained


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(PayloadError, InputError)
    assert issubclass(UnknownKind, InputError)
    assert issubclass(JobNotFound, LookupError)
    assert issubclass(StoreUnavailable, StoreError)


def test_what_a_client_can_raise_is_public() -> None:
    operational = {"CrashLoop", "DeliveryFailed", "SchemaOutdated", "SchemaTooNew"}
    assert set(CLASSES) - operational <= set(chronos_runtime.__all__)
