"""How the attempts at the work of a supervised task look on a terminal."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from chronos_runtime.cli.job_text import error_line, instant
from chronos_runtime.cli.output import (
    Cell,
    Column,
    ago,
    clean,
    print_line,
    print_table,
    say,
    state_text,
)
from chronos_runtime.lineage import fact_id
from chronos_runtime.store import JobRecord

_COLUMNS = (
    Column("NO", align="right"),
    Column("ID"),
    Column("STATE"),
    Column("RUNS", align="right"),
    Column("WHEN"),
    Column("DECISION", is_whole=False),
)
_DECISION_MAX_CHARS = 100
_ERROR_MAX_CHARS = 500


def print_lineage(attempts: Sequence[JobRecord], facts: Mapping[UUID, JobRecord]) -> None:
    """A line for each attempt, the first one first, with what its supervisor decided; then why.

    Errors stand below the table: beside an id there is no room for one.
    """
    print_table(
        _COLUMNS, [_cells(one, facts.get(fact_id(one.id, one.attempt))) for one in attempts]
    )
    failed = [one for one in attempts if one.errors]
    if failed:
        print_line("")
    for one in failed:
        error = error_line(one.errors[-1])[:_ERROR_MAX_CHARS]
        print_line(f"{one.lineage_no or 1:>2}  {error}")
    supervisor = attempts[0].supervisor
    if supervisor is None:
        say("not supervised: the queue itself tries again")
    else:
        say(f"supervisor: {clean(supervisor)}" if supervisor else "supervisor: nobody is asked")


def _cells(attempt: JobRecord, fact: JobRecord | None) -> tuple[Cell, ...]:
    return (
        str(attempt.lineage_no or 1),
        str(attempt.id),
        state_text(attempt.state),
        str(attempt.attempt),
        ago(instant(attempt)),
        "" if fact is None else clean(_decision(fact))[:_DECISION_MAX_CHARS],
    )


def _decision(fact: JobRecord) -> str:
    """What the supervisor decided, or how far the question came."""
    if not isinstance(fact.result, dict):
        return f"none yet: job {fact.id} is {fact.state}"
    words = str(fact.result.get("decision", "")).replace("_", " ")
    reason = fact.result.get("reason")
    return f"{words}: {reason}" if reason else words
