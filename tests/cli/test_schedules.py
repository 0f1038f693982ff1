"""Schedules are added, shown and changed by hand; what is wrong names its field."""

from typing import Any

import pytest

from tests.cli.program import Cli
from tests.cli.rows import end_all, execute, fire_all
from tests.cli.test_terminal import COLUMNS, on_terminal, plain

PAST = "2026-01-01T08:00:00Z"
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b2J [bold]\n\u202eevil"
ERROR = '{"type": "ValueError", "message": "no ink", "attempt": 1}'


def added(cli: Cli, name: str, *arguments: object) -> dict[str, Any]:
    ended = cli("schedules", "add", name, "--kind", "greet", *arguments, "--json")
    assert ended.code == 0, ended.err
    document: dict[str, Any] = ended.json
    return document


def shown(cli: Cli, name: str) -> dict[str, Any]:
    document: dict[str, Any] = cli("schedules", "show", name, "--json").json
    return document


def test_every_option_reaches_the_schedule(cli: Cli, use: str) -> None:
    options = {
        "--cron": "0 9 * * MON-FRI",
        "--tz": "Europe/Berlin",
        "--payload": '{"day": "{{occurrence}}"}',
        "--starts": "2026-01-01T00:00:00Z",
        "--ends": "2099-01-01T01:00+01:00",
        "--gap": "skip",
        "--fold": "both",
        "--jitter": "1m30s",
        "--catch-up": "all",
        "--catch-up-max": 7,
        "--overlap": "skip",
        "--topic": "office",
        "--priority": 2,
        "--max-attempts": 3,
        "--timeout": "2m",
        "--expect-success-within": "1d",
        "--expect-url": "https://example.org/absent",
    }
    added(cli, "daily", *(part for option in options.items() for part in option), "--paused")
    schedule = shown(cli, "daily")
    expected = {
        "name": "daily",
        "kind": "greet",
        "cron": "0 9 * * MON-FRI",
        "tz": "Europe/Berlin",
        "payload": {"day": "{{occurrence}}"},
        "starts_at": "2026-01-01T00:00:00Z",
        "ends_at": "2099-01-01T00:00:00Z",
        "gap": "skip",
        "fold": "both",
        "jitter_s": 90.0,
        "catch_up": "all",
        "catch_up_max": 7,
        "overlap": "skip",
        "topic": "office",
        "priority": 2,
        "max_attempts": 3,
        "timeout_s": 120.0,
        "expect_success_within_s": 86_400.0,
        "expect_url": "https://example.org/absent",
        "paused": True,
        "status": "active",
    }
    assert {name: schedule[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--every", "300"], "interval_s", 300.0),
        (["--every", "5m"], "interval_s", 300.0),
        (["--every", "1d2h3m4.5s"], "interval_s", 93_784.5),
        (["--at", "2099-12-24T09:00+01:00"], "once_at", "2099-12-24T08:00:00Z"),
    ],
)
def test_intervals_and_instants_are_read_as_typed(
    cli: Cli, use: str, arguments: list[str], field: str, value: object
) -> None:
    added(cli, "one", *arguments)
    assert shown(cli, "one")[field] == value


@pytest.mark.parametrize(
    ("complaint", "arguments"),
    [
        ("cron, every_s, at: give one of them", []),
        ("cron, every_s: give one of them", ["--cron", "@daily", "--every", "5m"]),
        ("cron: ", ["--cron", "often"]),
        ("every_s: '5 minutes' is no time span", ["--every", "5 minutes"]),
        ("every_s: '' is no time span", ["--every", ""]),
        ("every_s: '-5' is no time span", ["--every", "-5"]),
        (
            "tz: there is no time zone 'Berlin'; did you mean",
            ["--cron", "@daily", "--tz", "Berlin"],
        ),
        ("at: 'soon' is not like", ["--at", "soon"]),
        ("at: '2099-01-01T08:00' has no time zone", ["--at", "2099-01-01T08:00"]),
        ("payload: not JSON", ["--cron", "@daily", "--payload", "{day}"]),
        ("overlap: 'never' is none of", ["--cron", "@daily", "--overlap", "never"]),
        ("ends_at: 'one' has no occurrence", ["--cron", "@daily", "--ends", PAST]),
        ("expect_url: give expect_success", ["--every", "5m", "--expect-url", "https://a.org/"]),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_by_its_field(
    cli: Cli, use: str, complaint: str, arguments: list[str]
) -> None:
    ended = cli("schedules", "add", "one", "--kind", "greet", *arguments)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {complaint}")
    assert ended.err.count("\n") == 1
    assert cli("schedules", "list", "--json").json["schedules"] == []


def test_a_name_that_nobody_bears_ends_with_its_own_code(cli: Cli, use: str) -> None:
    commands = ("show", "pause", "resume", "remove", "run-now", "fires", "preview")
    for command in commands:
        ended = cli("schedules", command, "nobody")
        assert (ended.code, ended.err) == (5, "error: no schedule has the name 'nobody'\n")
    assert cli("schedules", "edit", "nobody", "--priority", 1).code == 5
    added(cli, "one", "--every", "5m")
    assert "name: 'one' is taken" in cli("schedules", "add", "one", "--kind=k", "--every=1m").err


def test_a_kind_is_checked_where_the_handlers_are_given(cli: Cli, use: str, folder: Any) -> None:
    for arguments in (["--kind", "unheard"], ["--kind", "welcome", "--payload", "{}"]):
        ended = cli("schedules", "add", "a", *arguments, "--cron=@daily", "--module=shop:app")
        assert ended.code == 2
    good = ["--kind", "welcome", "--payload", '{"email": "a@b"}', "--cron=@daily"]
    assert cli("schedules", "add", "a", *good, "--module=shop:app").code == 0
    assert shown(cli, "a")["topic"] == "mail"


def test_an_edit_changes_what_it_names_and_none_takes_back(cli: Cli, use: str) -> None:
    added(cli, "one", "--cron", "@daily", "--timeout", "2m", "--ends", "2099-01-01T00:00Z")
    before = shown(cli, "one")
    ended = cli("schedules", "edit", "one", "--timeout", "none", "--ends=none", "--priority=1")
    assert ended.out.startswith("one edited: @daily UTC, next in ")
    after = shown(cli, "one")
    changed = {name for name in before if before[name] != after[name]}
    assert changed - {"updated_at", "version"} == {"timeout_s", "ends_at", "priority"}
    assert (after["timeout_s"], after["ends_at"], after["priority"]) == (None, None, 1)
    cli("schedules", "edit", "one", "--every", "1h", "--payload", "[1]")
    again = shown(cli, "one")
    assert (again["cron"], again["interval_s"], again["payload"]) == (None, 3_600.0, [1])
    assert cli("schedules", "edit", "one").code == 2


def test_a_paused_schedule_fires_nothing_until_it_is_resumed(cli: Cli, use: str) -> None:
    added(cli, "late", "--at", PAST)
    added(cli, "other", "--at", PAST)
    assert cli("schedules", "pause", "late", "other").out == "late paused\nother paused\n"
    assert fire_all(use) == 0
    assert "paused" in cli("schedules", "list").out
    assert cli("schedules", "resume", "late").out == "late resumed\n"
    assert fire_all(use) == 1
    assert cli("schedules", "remove", "other").out == "other removed\n"
    assert cli("schedules", "show", "other").code == 5


def test_fires_tell_how_late_they_were_and_how_they_ended(cli: Cli, use: str) -> None:
    added(cli, "late", "--at", PAST)
    assert cli("schedules", "fires", "late").err == "no fires\n"
    assert fire_all(use) == 1
    end_all(use, "dead", ERROR)
    [fire] = cli("schedules", "fires", "late", "--json").json["fires"]
    assert (fire["occurrence"], fire["state"]) == (PAST, "dead")
    assert fire["late_s"] > 86_400
    assert fire["finished_at"] is not None
    head, line = cli("schedules", "fires", "late").out.splitlines()
    assert head.split() == ["OCCURRENCE", "LATE", "STATE", "TRY", "FINISHED", "JOB"]
    assert line.startswith("2026-01-01 08:00:00")
    assert {"dead", fire["id"]} <= set(line.split())
    [schedule] = cli("schedules", "list", "--json").json["schedules"]
    assert schedule["last_outcome"] == "dead"
    assert schedule["consecutive_failures"] == 1
    assert "ValueError: no ink" in cli("schedules", "show", "late").out


def test_run_now_fires_once_more_and_says_what_it_overlaps(cli: Cli, use: str) -> None:
    added(cli, "one", "--cron", "@daily", "--overlap", "skip", "--paused")
    first = cli("schedules", "run-now", "one", "--json").json
    assert first["overlaps"] is False
    assert cli("jobs", "show", first["id"], "--json").json["kind"] == "greet"
    again = cli("schedules", "run-now", "one")
    assert again.out.endswith(" enqueued: a fire of one\n")
    assert again.err == "another fire of it still lives\n"
    assert len(cli("schedules", "fires", "one", "--json").json["fires"]) == 2


def test_a_list_tells_what_is_wrong_and_comes_by_the_page(cli: Cli, use: str) -> None:
    for name in ("a", "b", "c/d"):
        added(cli, name, "--every", "1h30m")
    execute(use, "update chronos.schedules set is_absent = true where name = 'a'")
    execute(use, "update chronos.schedules set consecutive_failures = 4 where name = 'b'")
    lines = cli("schedules", "list").out.splitlines()
    assert lines[0].split() == ["NAME", "TIMING", "NEXT", "LAST", "FAILS", "STATUS"]
    assert lines[1].endswith("absent")
    assert {line.index("every 1h30m") for line in lines[1:]} == {lines[0].index("TIMING")}
    assert lines[2].split()[-2:] == ["4", "active"]
    names: list[str] = []
    after: list[str] = []
    for _ in range(3):
        page = cli("schedules", "list", "--limit", 1, *after, "--json").json
        names += [one["name"] for one in page["schedules"]]
        after = ["--after", page["next"]]
    assert names == ["a", "b", "c/d"]
    assert cli("schedules", "list", *after, "--json").json == {"schedules": [], "next": None}
    assert cli("schedules", "list", "--status", "broken").err == "no schedules\n"
    assert "'odd' is not one of active" in cli("schedules", "list", "--status", "odd").err
    assert cli("schedules", "list", "--after", "a").code == 2


def test_a_bare_preview_needs_no_database_and_marks_the_turns(cli: Cli) -> None:
    bare = ["schedules", "preview", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--count", 2]
    spring = cli(*bare, "--from", "2026-03-28T12:00Z").out.splitlines()
    assert spring[0].split() == ["UTC", "Europe/Berlin", "TURN", "NOTE"]
    assert spring[1].split() == [
        *("2026-03-29", "01:00:00", "Sun", "2026-03-29", "03:00:00", "CEST"),
        *("gap", "shifted", "from", "02:30,", "which", "does", "not", "exist"),
    ]
    assert spring[2].split() == [
        *("2026-03-30", "00:30:00", "Mon", "2026-03-30", "02:30:00", "CEST"),
    ]
    autumn = cli(*bare, "--fold", "both", "--from", "2026-10-24T12:00Z", "--json").json
    assert autumn["tz"] == "Europe/Berlin"
    assert [(one["at"], one["mark"]) for one in autumn["occurrences"]] == [
        ("2026-10-25T00:30:00Z", "fold"),
        ("2026-10-25T01:30:00Z", "fold"),
    ]
    for wrong in ([], ["one", "--cron", "@daily"], ["--tz", "Europe/Berlin"]):
        assert cli("schedules", "preview", *wrong).code == 2


def test_a_preview_of_a_schedule_is_that_of_its_timing(cli: Cli, use: str) -> None:
    timing = ["--cron", "30 2 * * *", "--tz", "Europe/Berlin"]
    added(cli, "night", *timing)
    since = ["--from", "2026-03-28T12:00Z"]
    bare = cli("schedules", "preview", *timing, *since).out
    assert cli("schedules", "preview", "night", *since).out == bare
    coming = cli("schedules", "preview", "night", "--json").json["occurrences"]
    assert len(coming) == 10
    assert coming[0]["at"] == shown(cli, "night")["next_run_at"]
    added(cli, "over", "--at", PAST)
    assert cli("schedules", "preview", "over").err == "no occurrence is to come\n"


def test_hostile_schedules_are_harmless_on_a_terminal(cli: Cli, use: str) -> None:
    added(cli, "one", "--cron", "@daily", "--payload", '"x"')
    execute(
        use,
        "update chronos.schedules set name = $1, kind = $1, topic = $1, cron = $1, tz = $1,"
        " origin = $1, last_outcome = $1, last_error = $1, broken_error = $1, status = 'broken',"
        " next_run_at = null,"
        " payload = to_jsonb($1::text)",
        HOSTILE,
    )
    for command in (["list"], ["show", HOSTILE]):
        text = cli("schedules", *command)
        assert text.code == 0, text.err
        document = cli("schedules", *command, "--json")
        for out in (text.out, document.out):
            assert all(character.isprintable() or character == "\n" for character in out), out
    assert shown(cli, HOSTILE)["payload"] == HOSTILE


@pytest.mark.slow
def test_tables_of_schedules_fit_a_terminal(cli: Cli, use: str) -> None:
    name = "a-schedule-with-quite-a-long-name-that-somebody-made-up-on-a-long-afternoon"
    cron = ["--cron", "0,10,20,30,40,50 9-17 * * MON-FRI", "--tz", "America/Argentina/Buenos_Aires"]
    added(cli, name, *cron)
    added(cli, "late", "--at", PAST, "--expect-success-within", "1d")
    fire_all(use)
    end_all(use, "succeeded")
    execute(use, "update chronos.schedules set paused = true, is_absent = true")
    for command in (
        ["schedules", "list"],
        ["schedules", "fires", "late"],
        [
            "schedules",
            "preview",
            "--cron=30 2 * * *",
            "--tz=Europe/Berlin",
            "--from=2026-03-28T12Z",
        ],
    ):
        seen = on_terminal(*command, dsn=use)
        assert "\x1b[" in seen
        assert max(map(len, plain(seen).splitlines())) <= COLUMNS, plain(seen)
