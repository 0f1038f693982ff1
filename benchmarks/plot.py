"""Charts as PNG and SVG: on paper and on a dark page alike, in colours told apart by everybody."""

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "chronos"  # The same figures make the same file.

from matplotlib.figure import Figure  # noqa: E402 - the backend is chosen before.
from matplotlib.ticker import EngFormatter  # noqa: E402

if TYPE_CHECKING:
    from benchmarks.facts import Facts
    from benchmarks.report import Chart, Report

# Okabe and Ito's colours, for the colour-blind too; ours first.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442")


def draw(report: "Report", facts: "Facts") -> Figure:
    """All charts of a report, side by side."""
    figure = Figure(figsize=(5.2 * len(report.charts), 4.0), layout="constrained")
    for place, chart in enumerate(report.charts, start=1):
        _draw_chart(figure.add_subplot(1, len(report.charts), place), chart)
    figure.supxlabel(facts.sentence, fontsize=7, color="#666666")
    return figure


def _draw_chart(axes: Any, chart: "Chart") -> None:
    if chart.kind == "bars":
        _draw_bars(axes, chart)
    else:
        for one, colour in zip(chart.series, _COLOURS, strict=False):
            axes.plot(one.x, one.y, marker="o", markersize=3, label=one.name, color=colour)
    axes.set_title(chart.title, fontsize=10)
    axes.set_xlabel(chart.x, fontsize=9)
    axes.set_ylabel(chart.y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    if chart.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(chart.series) > 1:
        axes.legend(fontsize=8, frameon=False)


def _draw_bars(axes: Any, chart: "Chart") -> None:
    names = [str(name) for name in chart.series[0].x]
    width = 0.8 / len(chart.series)
    for place, (one, colour) in enumerate(zip(chart.series, _COLOURS, strict=False)):
        offset = (place - (len(chart.series) - 1) / 2) * width
        bars = axes.bar(
            [at + offset for at in range(len(names))], one.y, width, label=one.name, color=colour
        )
        axes.bar_label(bars, fmt=_label, fontsize=7, padding=2)
    turn = 30 if len(names) > 4 else 0
    axes.set_xticks(range(len(names)), names, rotation=turn, ha="right" if turn else "center")


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
