"""What the benchmarks say is what was measured: kept whole, judged, and quoted from the file."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from benchmarks import readme, report
from benchmarks.__main__ import SUITE
from benchmarks.facts import Facts
from benchmarks.guard import Bound, judge, read_floors
from benchmarks.report import Chart, Kept, Report, Series, keep, show

FACTS = Facts(
    date="2026-01-01",
    chronos="0.1.0",
    postgres="18.0",
    python="3.13.0",
    packages={},
    cores=2,
    memory_gb=8,
    processor="a processor",
    system="Linux 6",
)


def make_report(**figures: float) -> Report:
    series = [Series("ours", ["a", "b"], [41_234.5, 2.0]), Series("theirs", ["a", "b"], [1.0, 3.0])]
    lines = [Series("p50", [1.0, 2.0], [3.0, 4.0])]
    return Report(
        name="drain",
        question="how fast?",
        rows=[{"of": "runtime", "jobs/s": 41_234.5}, {"of": "floor", "CPU µs/job": 7}],
        figures=figures,
        charts=[
            Chart("Bars", "", "jobs/s", "bars", series),
            Chart("Lines", "backlog", "ms", "lines", lines, log_y=True),
        ],
    )


def test_a_report_is_kept_with_its_charts_and_what_it_was_measured_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    kept = Kept(make_report(ratio=0.8), FACTS, is_quick=False)
    keep(kept)
    keep(Kept(make_report(ratio=0.1), FACTS, is_quick=True))
    again = msgspec.json.decode((tmp_path / "drain.json").read_bytes(), type=Kept)
    assert again == kept
    assert (tmp_path / "drain.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "drain.svg").read_text(encoding="utf-8")
    assert (tmp_path / "quick" / "drain.json").exists()


def test_a_table_shows_every_column_and_leaves_out_what_is_not_there() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    show(Kept(make_report(ratio=0.8333), FACTS, is_quick=False), console)
    text = console.export_text()
    for word in ("jobs/s", "CPU µs/job", "41,234", "ratio", "0.833", "PostgreSQL 18.0"):
        assert word in text
    assert "None" not in text


@pytest.mark.parametrize(
    ("bound", "value", "holds"),
    [
        (Bound(min=0.8), 0.8, True),
        (Bound(min=0.8), 0.79, False),
        (Bound(max=0), 0.0, True),
        (Bound(max=0), 1.0, False),
        (Bound(max=0), float("nan"), False),
    ],
)
def test_a_guard_holds_a_figure_against_its_bound(bound: Bound, value: float, holds: bool) -> None:
    [verdict] = judge(make_report(figure=value), {"figure": bound})
    assert verdict.holds is holds


def test_a_figure_that_is_gone_does_not_pass_the_guard() -> None:
    [verdict] = judge(make_report(), {"renamed": Bound(min=0.0)})
    assert not verdict.holds


def test_every_floor_belongs_to_a_benchmark() -> None:
    assert set(read_floors()) <= set(SUITE)


def test_the_numbers_of_the_readme_are_those_that_were_measured() -> None:
    text = readme.README.read_text(encoding="utf-8")
    written = text.split(readme.BEGIN)[1].split(readme.END)[0]
    assert written.strip() == readme.section().strip(), "run `make numbers`"
