"""Every example in a docstring runs, and every public name has one."""

import doctest
import importlib
import inspect

import pytest

import chronos_runtime
from tests.project.test_tree import NAMES


@pytest.mark.parametrize("name", sorted(name for name in NAMES if not name.endswith("__main__")))
def test_the_examples_of_a_module_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert failed == 0


@pytest.mark.parametrize("name", chronos_runtime.__all__)
def test_a_public_name_has_an_example(name: str) -> None:
    public = getattr(chronos_runtime, name)
    if isinstance(public, type) and issubclass(public, Exception):
        return  # The tree in errors.py says when each is raised.
    assert ">>> " in (inspect.getdoc(public) or "")
