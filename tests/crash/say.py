"""The type of the fixture that tells figures."""

from collections.abc import Callable

Say = Callable[[str], object]
