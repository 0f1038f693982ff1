"""Every command does what it says, in text and in JSON, and ends with the right code."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from chronos_runtime.version import VERSION
from tests.cli.program import Cli
from tests.cli.rows import enqueued, execute

NOWHERE = "postgresql://ada:hunter2@127.0.0.1:1/app"
NOBODY = UUID(int=7)


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").out == f"chronos-runtime {VERSION}\n"
    shown = cli("--help")
    assert shown.code == 0
    for command in ("run", "enqueue", "jobs", "topics", "migrate", "config", "demo"):
        assert command in shown.out
    assert " child " not in shown.out


def test_migrate_lists_then_applies_then_has_nothing_to_do(cli: Cli, empty_dsn: str) -> None:
    assert "0001_jobs" in cli("migrate", "--dsn", empty_dsn, "--dry-run").out
    assert cli("jobs", "list", "--dsn", empty_dsn).code == 3
    applied = cli("migrate", "--dsn", empty_dsn)
    assert applied.code == 0
    assert "applied  0001_jobs" in applied.out
    again = cli("migrate", "--dsn", empty_dsn)
    assert again.code == 0
    assert "the schema is current" in again.out
    assert cli("migrate", "--dsn", empty_dsn, "--json").json["applied"] == []


def test_a_schema_from_the_future_is_left_alone(cli: Cli, use: str) -> None:
    execute(use, "insert into chronos.migrations (number, name) values (9999, 'later')")
    for command in (["migrate"], ["jobs", "list"]):
        ended = cli(*command)
        assert ended.code == 3
        assert "upgrade" in ended.err


@pytest.mark.parametrize(
    "command",
    [
        ["migrate"],
        ["jobs", "list"],
        ["jobs", "show", NOBODY],
        ["topics", "list"],
        ["topics", "pause", "mail"],
        ["enqueue", "greet"],
    ],
)
def test_a_database_that_is_away_is_one_line_and_exit_4(cli: Cli, command: list[object]) -> None:
    ended = cli(*command, "--dsn", NOWHERE)
    assert ended.code == 4
    assert ended.out == ""
    assert ended.err.startswith("error: postgresql://ada:***@127.0.0.1:1/app: ")
    assert ended.err.count("\n") == 1
    assert "hunter2" not in ended.err


def test_without_any_database_the_ways_to_name_one_are_told(cli: Cli) -> None:
    ended = cli("jobs", "list")
    assert ended.code == 2
    assert "--dsn" in ended.err
    assert "CHRONOS_DSN" in ended.err


@pytest.mark.parametrize(
    "dsn",
    [
        "nonsense",
        "postgresql://ada:hun/ter2@db/app",
        "postgresql://ada:hun#ter2@db/app",
        "postgresql://db/app?sslmode=perhaps",
    ],
)
def test_an_address_that_cannot_be_read_is_a_setting_not_an_outage(cli: Cli, dsn: str) -> None:
    ended = cli("jobs", "list", "--dsn", dsn)
    assert ended.code == 2
    assert ended.err.startswith("error: database.dsn: ")
    assert "hun" not in ended.err


def test_enqueue_takes_every_option(cli: Cli, use: str) -> None:
    run_at = datetime.now(UTC) + timedelta(days=1)
    id = enqueued(
        cli, "greet", '{"name": "Ada"}', "--topic", "mail", "--priority", 0, "--max-attempts", 9,
        "--timeout-s", 5, "--run-at", run_at.isoformat(), "--key", "ada",
    )  # fmt: skip
    job = cli("jobs", "show", id, "--json").json
    assert (job["kind"], job["topic"], job["priority"]) == ("greet", "mail", 0)
    assert (job["max_attempts"], job["timeout_s"], job["unique_key"]) == (9, 5.0, "ada")
    assert job["payload"] == {"name": "Ada"}
    assert job["state"] == "scheduled"
    assert datetime.fromisoformat(job["run_at"]) == run_at


def test_enqueue_says_who_holds_the_key(cli: Cli, use: str) -> None:
    first = enqueued(cli, "greet", "--key", "only")
    again = cli("enqueue", "greet", "--key", "only")
    assert again.code == 0
    assert again.out == f"{first} holds the key already; nothing was enqueued\n"
    assert cli("enqueue", "greet", "--key", "only", "--json").json == {"id": first, "is_new": False}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["greet", "{"], "payload: not JSON"),
        (["greet", "--priority", 10], "priority"),
        (["greet", "--run-at", "tomorrow"], "run_at"),
        (["greet", "--run-at", "2030-01-01T00:00:00"], "time zone"),
        (["greet", "--delay-s", -1], "delay_s"),
        ([], "kind: name one"),
        (["greet", "--from", "jobs.jsonl"], "kind: name one"),
        (["--from", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
    ],
)
def test_enqueue_refuses_what_makes_no_sense(
    cli: Cli, use: str, arguments: list[object], expected: str
) -> None:
    ended = cli("enqueue", *arguments)
    assert ended.code == 2
    assert expected in ended.err
    assert execute(use, "select from chronos.jobs") == []


def test_enqueue_checks_against_the_app(cli: Cli, use: str, folder: Path) -> None:
    app = ["--module", "shop:app"]
    sys.modules.pop("shop", None)
    try:
        id = enqueued(cli, "welcome", '{"email": "ada@example.org"}', *app)
        assert cli("jobs", "show", id, "--json").json["topic"] == "mail"
        assert "this app knows" in cli("enqueue", "welcom", *app).err
        wrong = cli("enqueue", "welcome", '{"mail": 1}', *app)
        assert wrong.code == 2
        assert "email" in wrong.err
    finally:
        sys.modules.pop("shop", None)


def test_enqueue_in_bulk(cli: Cli, use: str) -> None:
    assert cli("enqueue", "greet", "1", "--count", 1_200, "--json").json["enqueued"] == 1_200
    same = '{"kind": "greet", "payload": 1, "key": "same"}'
    lines = [same, same, same, "", '{"kind": "other"}']
    Path("jobs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    done = cli("enqueue", "--from", "jobs.jsonl")
    assert done.code == 0
    assert done.out.startswith("enqueued 2 jobs in ")
    assert "2 not" in done.out
    (count,) = execute(use, "select count(*) as jobs from chronos.jobs")
    assert count["jobs"] == 1_202


def test_a_mistake_in_the_last_line_of_a_file_enqueues_nothing(cli: Cli, use: str) -> None:
    file = Path("jobs.jsonl")
    for mistake in ('{"kind": "b", "priority": 99}', '{"kind": "b", "tpoic": "x"}', "{"):
        file.write_text('{"kind": "a"}\n' + mistake, encoding="utf-8")
        ended = cli("enqueue", "--from", file)
        assert ended.code == 2
        assert "line 2" in ended.err or "job 2 of 2" in ended.err
        assert execute(use, "select from chronos.jobs") == []


def test_topics_show_depths_and_gates(cli: Cli, use: str) -> None:
    for _ in range(3):
        enqueued(cli, "greet")
    enqueued(cli, "later", "--topic", "mail", "--delay-s", 60)
    assert cli("topics", "pause", "mail").out == "mail paused\n"
    listed = cli("topics", "list", "--json").json
    assert not listed["all_paused"]
    rows = {row["topic"]: row for row in listed["topics"]}
    assert (rows["default"]["ready"], rows["default"]["paused"]) == (3, False)
    assert (rows["mail"]["scheduled"], rows["mail"]["paused"]) == (1, True)
    assert cli("topics", "resume", "mail").out == "mail resumed\n"
    assert cli("topics", "pause", "--all").out == "all topics paused\n"
    assert "all topics are paused" in cli("topics", "list").err
    assert cli("topics", "list", "--json").json["all_paused"]
    assert cli("topics", "resume", "--all").code == 0
    assert cli("topics", "pause").code == 2
    assert cli("topics", "pause", "mail", "--all").code == 2


def test_bad_usage_ends_with_2(cli: Cli) -> None:
    assert cli("jobs", "list", "--colour").code == 2
    assert cli("fly").code == 2
