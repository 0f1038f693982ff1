"""The pause gates, in the memory store."""

from datetime import UTC, datetime

from chronos_runtime.job import TOPIC_ALL
from chronos_runtime.store import Gate


class Gates:
    """Every gate that was ever touched."""

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def set(self, topic: str, paused: bool, now: float) -> None:
        """Close or open one."""
        self._gates[topic] = Gate(topic, paused, datetime.fromtimestamp(now, UTC))

    def is_open(self, topic: str) -> bool:
        """Whether jobs of this topic may be claimed."""
        gates = (self._gates.get(name) for name in (topic, TOPIC_ALL))
        return not any(gate.paused for gate in gates if gate is not None)

    def all(self) -> list[Gate]:
        """All of them, by name."""
        return [self._gates[topic] for topic in sorted(self._gates)]
