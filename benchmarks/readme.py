"""Writes the README's section "Numbers" from the results that are kept.

A figure in the README has a file behind it: nobody types one.
"""

from pathlib import Path

import msgspec

from benchmarks.report import RESULTS, Kept, spoken

README = Path(__file__).parents[1] / "README.md"
BEGIN = "<!-- numbers: made by `make numbers` from benchmarks/results; do not edit -->\n"
END = "<!-- end of numbers -->"


class Headline(msgspec.Struct, frozen=True):
    """One line of the table: what a figure means, and where it comes from."""

    benchmark: str
    figure: str
    text: str
    unit: str = ""


HEADLINES = (
    Headline("drain", "jobs_per_s", "No-op jobs, one process, history kept", " jobs/s"),
    Headline("drain", "ratio_to_floor", "… against the same statements on bare asyncpg", " ×"),
    Headline("peers", "drain_ratio_to_graphile_worker", "… against Graphile Worker", " ×"),
    Headline("peers", "drain_ratio_to_pg_boss", "… against pg-boss", " ×"),
    Headline("peers", "drain_ratio_to_pgqueuer", "… against PgQueuer", " ×"),
    Headline("peers", "drain_ratio_to_procrastinate", "… against Procrastinate", " ×"),
    Headline("backlog", "throughput_1m_to_10k", "… with 1,000,000 waiting, to 10,000", " ×"),
    Headline("drain", "transactions_per_job", "Transactions a job"),
    Headline("drain", "wal_bytes_per_job", "WAL a job", " bytes"),
    Headline("drain", "worker_cpu_us_per_job", "Worker CPU a job", " µs"),
    Headline("latency", "idle_p50_ms", "From enqueue to start, idle, median", " ms"),
    Headline("latency", "idle_p99_ms", "… 99th percentile", " ms"),
    Headline(
        "peers", "latency_p50_ratio_to_graphile_worker", "… median against Graphile Worker", " ×"
    ),
    Headline("peers", "latency_p50_ratio_to_pgqueuer", "… median against PgQueuer", " ×"),
    Headline("mixed", "rss_mb_max", "Memory in ten minutes of mixed load, at most", " MB"),
)


def section() -> str:
    """The section's text, from the results there are."""
    kept = {path.stem: _read(path) for path in sorted(RESULTS.glob("*.json"))}
    if not kept:
        return "None are kept here yet: `python -m benchmarks drain` measures on your machine.\n"
    lines = ["| | |", "|---|---:|"]
    for one in HEADLINES:
        figures = kept[one.benchmark].report.figures if one.benchmark in kept else {}
        if (value := figures.get(one.figure)) is not None:  # A peer may have been left out.
            lines.append(f"| {one.text} | {spoken(value)}{one.unit} |")
    lines.append("")
    for name, result in kept.items():
        if result.report.charts:
            lines += [f"![{result.report.question}](benchmarks/results/{name}.svg)", ""]
    sentences = sorted({result.facts.sentence for result in kept.values()})
    return "\n".join([*lines, *(f"{sentence}." for sentence in sentences), ""])


def write() -> None:
    """Put the section between its marks in the README."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{section()}\n{END}{after}", encoding="utf-8")


def _read(path: Path) -> Kept:
    return msgspec.json.decode(path.read_bytes(), type=Kept)
