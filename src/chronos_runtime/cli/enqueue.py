"""`chronos-runtime enqueue`: one job, the same one many times, or a file of them."""

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice, repeat
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from chronos_runtime.answers import Enqueued
from chronos_runtime.attempts import Attempts
from chronos_runtime.cli.arguments import document, instant
from chronos_runtime.cli.database import open_client
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.load import load_app
from chronos_runtime.cli.options import AppPath, ConfigFile, Dsn, Json
from chronos_runtime.cli.output import clean, print_json, print_line, progress_bar
from chronos_runtime.client import Client
from chronos_runtime.errors import InputError, StoreError
from chronos_runtime.store import NewJob

_BATCH = 5_000  # Jobs a statement: a COPY of so many takes well under a second.


class JobLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to enqueue: what `Client.job` takes, from flags or from a line of a file."""

    kind: str
    payload: Any = None
    topic: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    run_at: datetime | None = None
    delay_s: float | None = None
    key: str | None = None
    attempts: Attempts | None = None
    supervisor: str | None = None

    def made_by(self, client: Client) -> NewJob:
        """The checked job."""
        return client.job(**{name: getattr(self, name) for name in self.__struct_fields__})


class Batch(msgspec.Struct):
    """What a bulk enqueue did."""

    enqueued: int = 0
    held: int = 0
    """Jobs not inserted because a live job holds their key."""
    seconds: float = 0.0


def enqueue(
    *,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help="Which handler.", show_default=False)
    ] = None,
    payload: Annotated[
        str | None, typer.Argument(metavar="JSON", help="The payload.", show_default=False)
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Which queue.", show_default="default or the handler's")
    ] = None,
    priority: Annotated[
        int | None, typer.Option(help="From 0 (first) to 9.", show_default="5 or the handler's")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(help="Dead after so many.", show_default="5 or the handler's")
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option(help="Stop the handler after so long.", show_default=False)
    ] = None,
    delay_s: Annotated[
        float | None, typer.Option(help="Not before so many seconds.", show_default=False)
    ] = None,
    run_at: Annotated[
        str | None,
        typer.Option(
            metavar="ISO", help="Not before 2030-01-31T08:00:00Z, say.", show_default=False
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Only one live job may bear this key.", show_default=False)
    ] = None,
    supervisor: Annotated[
        str | None,
        typer.Option(help="Who decides after a failed attempt.", show_default="the handler's"),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="So many of the same.")] = 1,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help='Jobs as JSON lines, {"kind": …, "payload": …, …}; - for standard input.',
            show_default=False,
        ),
    ] = None,
    module: AppPath = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Enqueue a job. With --module, kind and payload are checked against its handlers."""
    if (kind is None) == (file is None):
        raise InputError("kind: name one, or give a file of jobs with --from")
    lines: Sequence[JobLine]
    if file is not None:
        lines = list(_read(file))
    else:
        line = JobLine(
            kind=str(kind),
            payload=None if payload is None else document(payload),
            topic=topic,
            priority=priority,
            max_attempts=max_attempts,
            timeout_s=timeout_s,
            run_at=None if run_at is None else instant(run_at, "run_at"),
            delay_s=delay_s,
            key=key,
            attempts=None if supervisor is None else "supervised",
            supervisor=supervisor,
        )
        lines = list(repeat(line, count))
    app = None if module is None else load_app(module)

    async def command() -> None:
        async with open_client(dsn, config, app) as client:
            if file is None and count == 1:
                job = lines[0].made_by(client)
                (enqueued,) = await client.enqueue_many([job])
                _print_one(job, enqueued, is_json=json)
            else:
                _print_batch(await _enqueue_all(client, lines), is_json=json)

    execute(command)


async def _enqueue_all(client: Client, lines: Sequence[JobLine]) -> Batch:
    """Check all, then write all, in batches: a mistake in the last line writes nothing."""
    for number, line in enumerate(lines, 1):
        if number > 1 and line is lines[number - 2]:
            continue  # The same again: --count.
        try:
            line.made_by(client)
        except InputError as error:
            error.add_note(f"(job {number} of {len(lines):,}; none was enqueued)")
            raise
    done = Batch()
    started = time.monotonic()
    jobs = (line.made_by(client) for line in lines)
    with progress_bar("enqueuing", len(lines)) as advance:
        while batch := list(islice(jobs, _BATCH)):
            try:
                enqueued = await client.enqueue_many(batch)
            except StoreError as error:
                error.add_note(f"({done.enqueued:,} jobs had been enqueued by then)")
                raise
            new = sum(one.is_new for one in enqueued)
            done.enqueued += new
            done.held += len(batch) - new
            advance(len(batch))
    done.seconds = time.monotonic() - started
    return done


def _read(file: Path) -> Iterator[JobLine]:
    """The jobs of a file of JSON lines; empty lines are passed over."""
    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise InputError(f"--from: cannot read {file}: {error.strerror}") from error
    decoder = msgspec.json.Decoder(JobLine)
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(f"{file}, line {number}: {error}") from error


def _print_one(job: NewJob, enqueued: Enqueued, *, is_json: bool) -> None:
    if is_json:
        print_json(enqueued)
    elif enqueued.is_new:
        print_line(f"{enqueued.id} enqueued: {clean(job.kind)} on {clean(job.topic)}")
    else:
        print_line(f"{enqueued.id} holds the key already; nothing was enqueued")


def _print_batch(done: Batch, *, is_json: bool) -> None:
    if is_json:
        print_json(done)
        return
    held = f"; {done.held:,} not, a live job holds their key" if done.held else ""
    print_line(f"enqueued {done.enqueued:,} jobs in {done.seconds:.1f} s{held}")
