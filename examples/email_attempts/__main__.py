"""Twenty e-mails by SQL alone: `python -m examples.email_attempts [FOLDER]`.

It asks for e-mails the way an application would, by SQL, waits until every line of attempts has
ended, and says what became of each. Its servers are its own and leave nothing behind, but for the
database, if a folder to keep it in is named.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from chronos_runtime.embedded import EmbeddedPostgres
from examples.email_attempts.relay import Relay
from examples.email_attempts.servers import (
    CHRONOS,
    Trouble,
    connected,
    serving,
    still_running,
    worker,
)

SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
NAMES = ("ada", "grace", "edsger", "barbara", "donald", "frances", "tony", "radia")
MOODS = ("busy", "grey", "full", "gone", "spam")  # relay.py says what each means.
BOUNCES = "lost.ada@example.org"
RECIPIENTS = [
    *(f"{name}@example.org" for name in NAMES),
    *(f"{mood}.{name}@example.org" for mood in MOODS for name in NAMES[:2]),
    BOUNCES,
]
DEADLINE_S = 90.0

SUMS = """
select
    (select count(*) from mail.email) as emails,
    (select count(*) from chronos.job_history where kind = 'chronos.email') as tasks,
    (select count(*) from mail.email_attempt_sent) as sent,
    (select count(*) from mail.email_attempt_failed) as failed,
    (select count(*) from mail.email_attempt_decided) as decided,
    (select count(*) from chronos.job_history where state = 'dead') as dead
"""


async def example(folder: Path) -> None:
    """The servers, and what is done with them."""
    relay = Relay()
    async with (
        serving(relay),
        worker(folder, relay) as process,
        asyncio.timeout(DEADLINE_S),
        connected(folder, process) as connection,
    ):
        say(
            f"a relay listens on 127.0.0.1:{relay.port}, chronos-runtime run - has its own Postgres"
        )
        await send_all(connection, process, relay)
        await show(connection, relay)
        await show_line(connection, EmbeddedPostgres(folder).dsn)


async def send_all(connection: asyncpg.Connection, process: Process, relay: Relay) -> None:
    """E-mails, a bounce, and one more to whom it bounced from."""
    await connection.execute(SCHEMA)
    await ask_for(connection, RECIPIENTS)
    await all_ended(connection, process)
    for message_id in relay.bounces:
        await report_bounce(connection, message_id)
    await all_ended(connection, process)
    await ask_for(connection, [BOUNCES])
    await all_ended(connection, process)


async def ask_for(connection: asyncpg.Connection, recipients: Sequence[str]) -> None:
    """Ask for e-mails, in one transaction: the rows and their tasks, or neither."""
    say(f"select mail.send(…), {len(recipients)} times" if recipients[1:] else "and once more")
    await connection.executemany(
        "select mail.send($1, 'Your order', 'It is on its way.')", [(one,) for one in recipients]
    )


async def report_bounce(connection: asyncpg.Connection, message_id: str) -> None:
    """What a reader of the bounce mailbox does: a task that calls a SQL function."""
    say("a mail has bounced: a task of chronos.db_function calls mail.record_bounce")
    await connection.execute(
        """
        select chronos.enqueue(
            'chronos.db_function',
            jsonb_build_object(
                'function', 'mail.record_bounce',
                'arguments', jsonb_build_object('message_id', $1::text, 'reason', 'mailbox lost')
            ),
            unique_key => 'bounce ' || $1
        )
        """,
        message_id,
    )


async def all_ended(connection: asyncpg.Connection, process: Process) -> None:
    """Wait until no task is left: a line that goes on always has one, or a question about one."""
    while await connection.fetchval("select exists (select from chronos.jobs)"):
        await still_running(process)


async def show(connection: asyncpg.Connection, relay: Relay) -> None:
    """The fate of each e-mail, and the sums."""
    fates = await connection.fetch("select * from mail.email_fate order by id")
    rows = [(one["recipient"], str(one["attempts"]), one["outcome"], one["facts"]) for one in fates]
    table = [("E-MAIL", "ATTEMPTS", "OUTCOME", "FACTS"), *rows]
    widths = [max(len(row[place]) for row in table) for place in range(3)]
    say("")
    for email, attempts, outcome, facts in table:
        say(f"{email:{widths[0]}}  {attempts:>{widths[1]}}  {outcome:{widths[2]}}  {facts}")
    sums = await connection.fetchrow(SUMS)
    assert sums is not None
    say(
        "\n{emails} e-mails, {tasks} attempts: {sent} sent, {failed} failed; {decided} decisions;"
        " {dead} dead letters".format(**sums)
    )
    again = relay.taken.total() - len(relay.taken)
    say(f"the relay took {len(relay.taken)} mails, {again} of them again")
    if sums["sent"] + sums["failed"] != sums["tasks"] or sums["failed"] != sums["decided"]:
        raise Trouble("a fact is missing, or there twice")


async def show_line(connection: asyncpg.Connection, dsn: str) -> None:
    """`chronos-runtime jobs lineage`, for the e-mail that took the longest to send."""
    task = await connection.fetchval(
        "select id from chronos.job_history where lineage_no is not null"
        " order by lineage_no desc, state, id limit 1"
    )
    say("\nchronos-runtime jobs lineage ID, for an e-mail that was busy twice:\n")
    shown = await asyncio.create_subprocess_exec(
        *(*CHRONOS, "jobs", "lineage", str(task), "--dsn", dsn)
    )
    if await shown.wait() != 0:
        raise Trouble("chronos-runtime jobs lineage failed")


def say(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(folder: Path) -> int:
    """The exit code; Ctrl-C ends it as cleanly as its own end does."""
    shown = asyncio.create_task(example(folder / "postgres"))

    def stop() -> None:
        if not shown.cancelling():  # Once: a second one would tear the draining of the worker.
            shown.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await shown
    except asyncio.CancelledError:
        say("stopped")
    except (Trouble, TimeoutError) as trouble:
        say(f"the example failed: {str(trouble) or 'it took too long'}")
        return 1
    return 0


def run(keep: Path | None) -> int:
    """The example, in a new folder; the exit code."""
    if keep is not None:
        if keep.exists():
            say(f"{keep} is there already: name a new folder")
            return 2
        keep.mkdir(parents=True)
        return asyncio.run(main(keep.resolve()))
    # Resolved: on macOS the temporary folder is a link.
    folder = Path(tempfile.mkdtemp(prefix="chronos-example-")).resolve()
    try:
        return asyncio.run(main(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]) if sys.argv[1:] else None))
