"""The worked example runs by the command in its README, and its sums are right."""

import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import psutil
import pytest

from chronos_runtime.embedded import EmbeddedPostgres
from tests.cli.program import QUIET_S, environment
from tests.eventually import eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "email_attempts"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
WIDTH = 100
RUN_S = 100.0  # It gives up by itself after 90.

OUTCOMES = {
    "": ("1", "sent"),
    "busy": ("2", "sent"),
    "grey": ("3", "sent"),
    "full": ("3", "given up"),
    "gone": ("1", "given up"),
    "spam": ("1", "escalated"),
}


def command() -> list[str]:
    """What `make example` runs: the README names it, the Makefile says what it is."""
    assert "$ make example\n" in README
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^example: setup .*\n\t\$\(BIN\)/python (.*)$", makefile, re.MULTILINE)
    assert found is not None
    return [sys.executable, *shlex.split(found[1])]


def extra(folder: Path) -> dict[str, str]:
    """An environment that a careless example would send its e-mails into production by."""
    return environment(TMPDIR=str(folder), CHRONOS_DSN="postgresql://nobody@127.0.0.1:1/production")


class Shown:
    """What a run of the example said, and the database it kept."""

    def __init__(self, text: str, connection: asyncpg.Connection) -> None:
        self.text = text
        self.connection = connection

    @property
    def table(self) -> list[list[str]]:
        """The rows of the table of e-mails, cell by cell."""
        lines = self.text.split("\nE-MAIL ")[1].split("\n\n")[0].splitlines()[1:]
        return [re.split(r" {2,}", line, maxsplit=3) for line in lines]


def run_example(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), str(folder / "kept")],
        cwd=ROOT,
        env=extra(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket; pytest's own are too long."""
    with tempfile.TemporaryDirectory(prefix="chronos-") as made:
        folder = Path(made).resolve()
        folder.chmod(0o711)  # Root's embedded Postgres runs as another user.
        yield folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the temporary files of a run go; what it left running ends here."""
    with short_folder() as made:
        yield made
        for pid in programs_of(made):
            psutil.Process(pid).kill()


@pytest.fixture(scope="module")
def kept() -> Iterator[Path]:
    """Where the run that all look at keeps its database."""
    with short_folder() as made:
        yield made


@pytest.fixture(scope="module")
async def shown(kept: Path, anyio_backend: object) -> AsyncIterator[Shown]:
    """One run for all of these tests."""
    done = run_example(kept)
    assert done.returncode == 0, done.stdout + done.stderr
    with EmbeddedPostgres(kept / "kept" / "postgres") as server:
        connection = await asyncpg.connect(server.dsn)
        try:
            yield Shown(done.stdout, connection)
        finally:
            await connection.close()


async def test_it_shows_what_became_of_each_email(shown: Shown) -> None:
    assert len(shown.table) == 20
    for email, attempts, outcome, facts in shown.table:
        mood = email.partition(".")[0] if email.count(".") == 2 else ""
        if mood != "lost":
            assert (attempts, outcome) == OUTCOMES[mood], email
        assert len(facts.split(", ")) >= int(attempts)
    lost = [row for row in shown.table if row[0].startswith("lost.")]
    assert [row[2] for row in lost] == ["bounced", "escalated"]
    assert "20 e-mails, 30 attempts: 13 sent, 17 failed; 17 decisions; 3 dead letters" in shown.text
    assert "the relay took 13 mails, 0 of them again" in shown.text


async def test_its_table_fits_a_terminal(shown: Shown) -> None:
    table = shown.text.split("\n\nchronos-runtime jobs lineage")[0]
    assert max(map(len, table.splitlines())) <= WIDTH


async def test_every_line_of_attempts_has_ended(shown: Shown) -> None:
    assert await shown.connection.fetchval("select count(*) from chronos.jobs") == 0
    fates = await shown.connection.fetch("select outcome from mail.email_fate")
    assert Counter(row["outcome"] for row in fates) == Counter(row[2] for row in shown.table)


async def test_every_attempt_left_one_fact(shown: Shown) -> None:
    rows = await shown.connection.fetch(
        """
        select task.id, task.state::text as state, count(sent.task_id) as sent,
            count(failed.task_id) as failed, count(decided.task_id) as decided
        from chronos.job_history as task
        left join mail.email_attempt_sent as sent
            on (sent.task_id, sent.attempt) = (task.id, coalesce(task.lineage_no, 1))
        left join mail.email_attempt_failed as failed
            on (failed.task_id, failed.attempt) = (task.id, coalesce(task.lineage_no, 1))
        left join mail.email_attempt_decided as decided
            on (decided.task_id, decided.attempt) = (task.id, coalesce(task.lineage_no, 1))
        where task.kind = 'chronos.email'
        group by task.id, task.state
        """
    )
    for row in rows:
        expected = (1, 0, 0) if row["state"] == "succeeded" else (0, 1, 1)
        assert (row["sent"], row["failed"], row["decided"]) == expected, row
    for table, count in (("sent", 13), ("failed", 17), ("decided", 17)):
        facts = await shown.connection.fetchval(f"select count(*) from mail.email_attempt_{table}")
        assert facts == count  # And none of a task that does not exist.


async def test_attempts_are_linked_and_none_was_run_again_by_the_queue(shown: Shown) -> None:
    rows = await shown.connection.fetch(
        """
        select task.attempt, task.lineage_no, task.lineage_id, before.id as before_id,
            before.state::text as before_state, coalesce(before.lineage_no, 1) as before_no,
            task.payload = before.payload as is_same
        from chronos.job_history as task
        left join chronos.job_history as before on before.id = task.retry_of
        where task.kind = 'chronos.email'
        """
    )
    assert {row["attempt"] for row in rows} == {1}
    later = [row for row in rows if row["lineage_no"] is not None]
    assert len(later) == 10  # Two each of busy, and four each of grey and full.
    for row in later:
        assert row["before_state"] == "failed"
        assert row["lineage_no"] == row["before_no"] + 1
        assert row["is_same"]
    assert Counter(row["lineage_no"] for row in later) == {2: 6, 3: 4}


async def test_what_was_escalated_stands_with_the_dead_letters(shown: Shown) -> None:
    rows = await shown.connection.fetch(
        """
        select email.recipient
        from chronos.job_history as task
        join mail.email as email on email.id = (task.payload ->> 'email')::bigint
        where task.state = 'dead'
        order by email.id
        """
    )
    escalated = [row[0] for row in shown.table if row[2] == "escalated"]
    assert [row["recipient"] for row in rows] == escalated


async def test_ctrl_c_ends_it_cleanly(folder: Path) -> None:
    process, log = start(folder)
    try:
        await eventually(lambda: "select mail.send" in log.read_text(encoding="utf-8"), QUIET_S)
        assert len(programs_of(folder)) >= 2  # Postgres has several.
        process.send_signal(signal.SIGINT)
        assert await eventually(lambda: process.poll() is not None, QUIET_S)
    finally:
        process.kill()
        process.wait()
    text = log.read_text(encoding="utf-8")
    assert process.returncode == 0, text
    assert text.endswith("stopped\n")
    assert "Traceback" not in text
    assert leftovers(folder) == []
    assert programs_of(folder) == []


def start(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """The example under way, and where it says how far it is."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(), cwd=ROOT, env=extra(folder), stdout=output, stderr=output
        )
    return process, log


def leftovers(folder: Path) -> list[Path]:
    return list(folder.glob("chronos-example-*"))


def programs_of(folder: Path) -> list[int]:
    """The processes that work in a folder: its Postgres, and the worker by its settings."""
    found = []
    for process in psutil.process_iter():
        try:
            told = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any("chronos-example-" in one and str(folder) in one for one in told):
            found.append(process.pid)
    return found
