"""`chronos-runtime jobs`: look at jobs, cancel them, and decide about dead ones."""

from typing import Annotated, get_args
from uuid import UUID

import msgspec
import typer

from chronos_runtime.cli.arguments import checked_choices
from chronos_runtime.cli.database import open_client, open_store
from chronos_runtime.cli.decide import DISCARD, RETRY, DeadJobs, decide
from chronos_runtime.cli.execute import execute
from chronos_runtime.cli.job_text import print_job, print_jobs
from chronos_runtime.cli.lineage_text import print_lineage
from chronos_runtime.cli.masks import masked_job
from chronos_runtime.cli.options import ConfigFile, Dsn, Json
from chronos_runtime.cli.output import print_json, print_line, say
from chronos_runtime.client import PAGE_MAX, Client
from chronos_runtime.job import State
from chronos_runtime.lineage import fact_id

jobs = typer.Typer(no_args_is_help=True, help="Look at jobs and decide about them.")

Id = Annotated[UUID, typer.Argument(metavar="ID", help="The job's id.")]
Ids = Annotated[list[UUID], typer.Argument(metavar="ID…", help="The jobs' ids.")]
SomeIds = Annotated[
    list[UUID] | None, typer.Argument(metavar="ID…", help="The jobs' ids.", show_default=False)
]
_STATES: tuple[State, ...] = get_args(State)
Topic = Annotated[str | None, typer.Option(help="Only of this topic.", show_default=False)]
Kind = Annotated[str | None, typer.Option(help="Only of this kind.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="All dead jobs of that topic and kind.")]


@jobs.command("list")
def list_jobs(
    *,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only in this state; can be repeated. One of {', '.join(_STATES)}.",
            show_default=False,
        ),
    ] = None,
    topic: Topic = None,
    kind: Kind = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="At most so many.")] = 20,
    before: Annotated[
        UUID | None,
        typer.Option(help="Only older than this id: the next page.", show_default=False),
    ] = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """List jobs, newest first."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            page = await client.list(
                states=checked_choices(states, _STATES, "state"),
                topic=topic,
                kind=kind,
                before=before,
                limit=limit,
            )
        if json:
            jobs = [masked_job(job) for job in page.jobs]
            print_json(msgspec.structs.replace(page, jobs=jobs))
            return
        print_jobs(page.jobs)
        if page.next:
            say(f"older ones: --before {page.next}")

    execute(command)


@jobs.command("show")
def show_job(*, id: Id, dsn: Dsn = None, config: ConfigFile = None, json: Json = False) -> None:
    """Show one job: its state, payload, result and errors; of a message not what it says."""

    async def command() -> None:
        async with open_client(dsn, config) as client:
            job = masked_job(await client.get(id))
        if json:
            print_json(job)
        else:
            print_job(job)

    execute(command)


@jobs.command("lineage")
def show_lineage(*, id: Id, dsn: Dsn = None, config: ConfigFile = None, json: Json = False) -> None:
    """Show all attempts at the work of a supervised task, the first one first."""

    async def command() -> None:
        async with open_store(dsn, config) as store:
            attempts = await Client(store).lineage(id)
            facts = await store.get_jobs([fact_id(one.id, one.attempt) for one in attempts])
        if json:
            shown = [masked_job(one) for one in attempts]
            print_json({"attempts": shown, "facts": list(facts.values())})
        else:
            print_lineage(attempts, facts)

    execute(command)


@jobs.command("cancel")
def cancel_jobs(
    *, ids: Ids, dsn: Dsn = None, config: ConfigFile = None, json: Json = False
) -> None:
    """Cancel jobs: at once while they wait, by asking the handler to stop while they run."""

    async def command() -> None:
        done: dict[str, str] = {}
        async with open_client(dsn, config) as client:
            for id in ids:
                result = done[str(id)] = await client.cancel(id)
                if not json:
                    print_line(f"{id} {'asked to stop' if result == 'requested' else result}")
        if json:
            print_json(done)

    execute(command)


@jobs.command("retry")
def retry_jobs(
    *,
    ids: SomeIds = None,
    is_all: All = False,
    topic: Topic = None,
    kind: Kind = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Bring dead jobs back to life, with at least one more attempt."""
    wanted = DeadJobs(ids or [], is_all=is_all, topic=topic, kind=kind)
    execute(decide, RETRY, wanted, dsn, config, json)


@jobs.command("discard")
def discard_jobs(
    *,
    ids: SomeIds = None,
    is_all: All = False,
    topic: Topic = None,
    kind: Kind = None,
    dsn: Dsn = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Take dead jobs off the dead letters; they stay in the history as cancelled."""
    wanted = DeadJobs(ids or [], is_all=is_all, topic=topic, kind=kind)
    execute(decide, DISCARD, wanted, dsn, config, json)
