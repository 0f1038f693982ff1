"""Holds the figures of quick runs against the floors in a file, so that a regression is seen."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.report import Report

FLOORS = Path(__file__).parent / "floors.toml"


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Between what a figure must lie."""

    min: float = -float("inf")
    max: float = float("inf")

    def __str__(self) -> str:
        """As people say it."""
        return f"≥ {self.min:g}" if self.min > -float("inf") else f"≤ {self.max:g}"


class Verdict(msgspec.Struct, frozen=True):
    """One figure beside its bound."""

    benchmark: str
    figure: str
    value: float
    bound: Bound

    @property
    def holds(self) -> bool:
        """Whether the figure lies where it must; one that is not a number does not."""
        return self.bound.min <= self.value <= self.bound.max


Floors = Mapping[str, Mapping[str, Bound]]


def read_floors(path: Path = FLOORS) -> Floors:
    """The bounds by benchmark and figure.

    >>> str(read_floors()["drain"]["duplicates"])
    '≤ 0'
    """
    with path.open("rb") as file:
        return msgspec.convert(tomllib.load(file), dict[str, dict[str, Bound]])


def judge(report: Report, bounds: Mapping[str, Bound]) -> list[Verdict]:
    """Every bound of a benchmark beside the figure it is for; a missing figure is not a number."""
    return [
        Verdict(report.name, figure, report.figures.get(figure, float("nan")), bound)
        for figure, bound in bounds.items()
    ]
