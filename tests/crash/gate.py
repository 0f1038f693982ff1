"""The gate that handlers wait at, as they see it: a file, which outlives any outage."""

from pathlib import Path


def is_open(gate: str, attempt: int) -> bool:
    """Whether it is open, for everybody or for this attempt."""
    return Path(gate).exists() or Path(f"{gate}.{attempt}").exists()
