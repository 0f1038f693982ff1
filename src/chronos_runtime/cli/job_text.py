"""How jobs look on a terminal."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from chronos_runtime.cli.facts import clock, print_block, print_document, print_facts, print_heading
from chronos_runtime.cli.output import (
    Cell,
    Column,
    ago,
    clean,
    clean_lines,
    duration,
    print_line,
    print_table,
    say,
    state_text,
)
from chronos_runtime.store import JobRecord

_LIST_COLUMNS = (
    Column("ID"),
    Column("STATE"),
    Column("KIND", is_whole=False),
    Column("TOPIC", is_whole=False),
    Column("TRY", align="right"),
    Column("WHEN"),
    Column("LAST ERROR", is_whole=False),
)
_ERROR_MAX_CHARS = 200


def print_jobs(jobs: Sequence[JobRecord]) -> None:
    """Many jobs, a line each."""
    if not jobs:
        say("no jobs")
        return
    print_table(
        _LIST_COLUMNS,
        [
            (
                str(job.id),
                state_text(job.state),
                clean(job.kind),
                clean(job.topic),
                f"{job.attempt}/{job.max_attempts}",
                ago(instant(job)),
                error_line(job.errors[-1])[:_ERROR_MAX_CHARS] if job.errors else "",
            )
            for job in jobs
        ],
    )


def print_job(job: JobRecord) -> None:
    """One job with everything that is known about it."""
    print_facts(_facts(job))
    print_document("payload", job.payload)
    if job.result is not None:
        print_document("result", job.result)
    if job.errors:
        _print_errors(job.errors)


def _facts(job: JobRecord) -> Iterator[tuple[str, Cell]]:
    yield "id", str(job.id)
    yield "state", state_text(job.state)
    yield "kind", clean(job.kind)
    yield "topic", clean(job.topic)
    yield "priority", f"{job.priority} (0 is first, 9 last)"
    yield "attempt", f"{job.attempt} of {job.max_attempts}"
    if job.timeout_s is not None:
        yield "timeout", duration(job.timeout_s)
    if job.supervisor is not None:
        yield "supervisor", clean(job.supervisor) or "nobody is asked"
    if job.retry_of is not None:
        yield "retry of", f"{job.retry_of}, as attempt {job.lineage_no} of {job.lineage_id}"
    if job.unique_key is not None:
        yield "key", clean(job.unique_key)
    yield "enqueued at", clock(job.enqueued_at)
    yield "due at", clock(job.run_at)
    if job.lease_until is not None:
        yield "lease until", clock(job.lease_until)
        yield "worker", str(job.lease_token)[:18]
    if job.cancel_requested:
        yield "cancel", "requested"
    if job.finished_at is not None:
        yield "finished at", clock(job.finished_at)
    if job.run_s is not None:
        yield "ran for", duration(job.run_s)


def _print_errors(errors: Sequence[dict[str, object]]) -> None:
    print_heading(f"errors, oldest first ({len(errors)})" if len(errors) > 1 else "error")
    for error in errors:
        head = Text(f"  attempt {error.get('attempt', '?')}  ")
        head.append(clean(str(error.get("at", ""))[:19].replace("T", " ")), style="dim")
        print_line(head.append(f"  {error_line(error)}", style="red"))
    if trace := errors[-1].get("traceback"):
        print_block(clean_lines(str(trace)), style="dim")


def error_line(error: dict[str, object]) -> str:
    """An error in one line."""
    return clean(f"{error.get('type', 'Error')}: {error.get('message', '')}")


def instant(job: JobRecord) -> datetime:
    """The instant that matters in this state: its end, its start to come, or its arrival."""
    if job.finished_at is not None:
        return job.finished_at
    return job.run_at if job.state == "scheduled" else job.enqueued_at
