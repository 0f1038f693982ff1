"""What the rounds come to: a row per system, ratios, and three charts."""

from collections.abc import Callable
from statistics import median, quantiles

import msgspec

from benchmarks.peers.workloads import Drained
from benchmarks.report import Chart, Report, Series


class Measured(msgspec.Struct, kw_only=True):
    """All that a system gave in all rounds, and why it stopped if it did."""

    name: str
    jobs: int
    version: str = ""
    drained: list[Drained] = []
    pinned: list[Drained] = []
    latencies_ms: list[float] = []
    failure: str | None = None

    def drained_per_s(self) -> float | None:
        """Jobs per second, the median of the rounds."""
        return _median([one.drained_per_s for one in self.drained])

    def enqueued_per_s(self) -> float | None:
        """Jobs per second in bulk, the median of all loads."""
        return _median([one.enqueued_per_s for one in [*self.drained, *self.pinned]])

    def pinned_ratio(self) -> float | None:
        """The speed under an old snapshot, against that without in the same round."""
        pairs = zip(self.pinned, self.drained, strict=False)
        return _median([held.drained_per_s / free.drained_per_s for held, free in pairs])

    def latency_p50_ms(self) -> float | None:
        """Half of all jobs started sooner."""
        return self._latency_ms(50)

    def latency_p99_ms(self) -> float | None:
        """All but one job in a hundred started sooner."""
        return self._latency_ms(99)

    def _latency_ms(self, percent: int) -> float | None:
        if not self.latencies_ms:
            return None
        return quantiles(self.latencies_ms, n=100, method="inclusive")[percent - 1]


Figure = Callable[[Measured], float | None]


def report(ours: Measured, peers: list[Measured]) -> Report:
    """The report of a run."""
    everybody = [ours, *peers]
    return Report(
        name="peers",
        question="how fast are other job queues on Postgres, each at its best settings?",
        rows=[_row(ours, one) for one in everybody],
        figures={name: value for peer in peers for name, value in _ratios(ours, peer).items()},
        charts=[
            _chart("no-op jobs, one process", "jobs/s", everybody, median=Measured.drained_per_s),
            _chart(
                "enqueue to start, idle worker",
                "ms",
                everybody,
                p50=Measured.latency_p50_ms,
                p99=Measured.latency_p99_ms,
            ),
            _chart("bulk enqueue", "jobs/s", everybody, median=Measured.enqueued_per_s),
        ],
    )


def _row(ours: Measured, one: Measured) -> dict[str, object]:
    return {
        "system": f"{one.name} {one.version}".strip(),
        "jobs": one.jobs,
        "drain jobs/s": one.drained_per_s(),
        "ours ÷ it": None if one is ours else _drain_ratio(ours, one),
        "pinned ÷ drain": one.pinned_ratio(),
        "p50 ms": one.latency_p50_ms(),
        "p99 ms": one.latency_p99_ms(),
        "enqueue jobs/s": one.enqueued_per_s(),
        "note": one.failure,
    }


def _ratios(ours: Measured, peer: Measured) -> dict[str, float]:
    """Ours divided by the peer's: speeds are better above 1, latencies below."""
    ratios = {
        "drain": _drain_ratio(ours, peer),
        "enqueue": _ratio(ours, peer, Measured.enqueued_per_s),
        "latency_p50": _ratio(ours, peer, Measured.latency_p50_ms),
        "latency_p99": _ratio(ours, peer, Measured.latency_p99_ms),
    }
    name = peer.name.replace("-", "_")
    return {f"{what}_ratio_to_{name}": ratio for what, ratio in ratios.items() if ratio is not None}


def _drain_ratio(ours: Measured, peer: Measured) -> float | None:
    """The median over the rounds: both were measured within the same minutes."""
    pairs = zip(ours.drained, peer.drained, strict=False)
    return _median([us.drained_per_s / it.drained_per_s for us, it in pairs])


def _ratio(ours: Measured, peer: Measured, figure: Figure) -> float | None:
    us, it = figure(ours), figure(peer)
    return None if us is None or it is None else us / it


def _chart(title: str, unit: str, everybody: list[Measured], **figures: Figure) -> Chart:
    """Bars of those that have all the figures."""
    shown = [one for one in everybody if all(figure(one) for figure in figures.values())]
    series = [
        Series(name, [one.name for one in shown], [figure(one) or 0.0 for one in shown])
        for name, figure in figures.items()
    ]
    return Chart(title=title, x="", y=unit, kind="bars", series=series)


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
