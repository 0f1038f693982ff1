"""Alarms are set, shown, put off and cancelled by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.program import Cli
from tests.cli.rows import end_all, fire_all

URL = "https://example.org/wake"
PAST = "2026-01-01T08:00:00Z"
COMING = "2099-01-01T08:00:00Z"
ERROR = '{"type": "DeliveryFailed", "message": "500"}'


def set_alarm(cli: Cli, *arguments: object) -> dict[str, Any]:
    ended = cli("alarms", "set", URL, *arguments, "--json")
    assert ended.code == 0, ended.err
    document: dict[str, Any] = ended.json
    return document


def shown(cli: Cli, name: str) -> dict[str, Any]:
    document: dict[str, Any] = cli("alarms", "show", name, "--json").json
    return document


def test_every_option_reaches_the_alarm(cli: Cli, use: str) -> None:
    set_alarm(
        cli,
        *("--name", "weekly", "--cron", "0 9 * * MON", "--tz", "Europe/Berlin"),
        *("--payload", '{"order": 7}', "--secret", "billing", "--max-failures", 3),
        *("--header", "X-Team: ink", "--header", "X-Ratio: 3:4", "--ends", COMING),
        *("--starts", PAST, "--gap", "skip", "--fold", "both"),
    )
    alarm = shown(cli, "weekly")
    assert (alarm["is_alarm"], alarm["kind"], alarm["max_attempts"]) == (True, "chronos.wake", 3)
    assert (alarm["cron"], alarm["tz"]) == ("0 9 * * MON", "Europe/Berlin")
    assert (alarm["starts_at"], alarm["ends_at"]) == (PAST, COMING)
    assert (alarm["gap"], alarm["fold"]) == ("skip", "both")
    wake = alarm["payload"]
    assert (wake["url"], wake["body"], wake["secret"]) == (URL, {"order": 7}, "billing")
    assert wake["headers"] == {"X-Team": "ink", "X-Ratio": "3:4"}
    assert URL in cli("alarms", "show", "weekly").out


def test_an_alarm_without_a_name_is_called_by_its_id(cli: Cli, use: str) -> None:
    alarm = set_alarm(cli, "--every", "1h")
    assert shown(cli, alarm["id"])["name"] == alarm["id"]


@pytest.mark.parametrize(
    ("complaint", "arguments"),
    [
        ("cron, every_s, at: give one of them", [URL]),
        ("at: '2099-01-01T08:00' has no time zone", [URL, "--at", "2099-01-01T08:00"]),
        ("url: must be https://", ["ftp://example.org", "--at", COMING]),
        ("header: 'X-Team' is not NAME:VALUE", [URL, "--at", COMING, "--header", "X-Team"]),
        ("headers: Host is not yours", [URL, "--at", COMING, "--header", "Host: evil"]),
        ("payload: not JSON", [URL, "--at", COMING, "--payload", "{"]),
        ("max_attempts: 0 is not", [URL, "--at", COMING, "--max-failures", "0"]),
    ],
)
def test_what_cannot_be_an_alarm_is_refused_by_its_field(
    cli: Cli, use: str, complaint: str, arguments: list[str]
) -> None:
    ended = cli("alarms", "set", *arguments)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {complaint}")
    assert cli("alarms", "list").err == "no alarms\n"


def test_a_cancelled_alarm_is_kept_and_its_name_is_free(cli: Cli, use: str) -> None:
    first = set_alarm(cli, "--name", "a", "--at", PAST)
    assert cli("alarms", "cancel", "a").out == "a cancelled\n"
    assert fire_all(use) == 0
    again = cli("alarms", "cancel", "a")
    assert (again.code, "has ended already: cancelled" in again.err) == (5, True)
    second = set_alarm(cli, "--name", "a", "--at", COMING)
    assert shown(cli, "a")["id"] == second["id"]
    page = cli("alarms", "list", "--limit", 1, "--json").json
    rest = cli("alarms", "list", "--after", page["next"], "--json").json
    listed = {one["id"] for one in page["alarms"] + rest["alarms"]}
    assert listed == {first["id"], second["id"]}
    [kept] = cli("alarms", "list", "--status", "cancelled", "--json").json["alarms"]
    assert kept["id"] == first["id"]


def test_fires_of_an_alarm_tell_how_they_ended(cli: Cli, use: str) -> None:
    set_alarm(cli, "--name", "a", "--at", PAST)
    assert fire_all(use) == 1
    end_all(use, "dead", ERROR, topic="chronos", kind="chronos.wake")
    [fire] = cli("alarms", "fires", "a", "--json").json["fires"]
    assert (fire["state"], fire["occurrence"]) == ("dead", PAST)
    assert fire["late_s"] > 0
    assert fire["id"] in cli("alarms", "fires", "a").out
    line = cli("alarms", "list").out.splitlines()[1]
    assert line.split()[:5] == ["a", "at", "2026-01-01", "08:00:00", "UTC"]
    assert line.endswith("failed")


def test_a_snoozed_alarm_waits_as_long_as_it_is_told(cli: Cli, use: str) -> None:
    set_alarm(cli, "--name", "a", "--at", PAST)
    said = cli("alarms", "snooze", "a", "--until", COMING).out
    assert said.startswith("a snoozed: at 2099-01-01 08:00:00 UTC, next in ")
    assert fire_all(use) == 0
    snoozed = cli("alarms", "snooze", "a", "--for", "1h30m", "--json").json
    wait = datetime.fromisoformat(snoozed["next_run_at"]) - datetime.now(UTC)
    assert timedelta(minutes=89) < wait <= timedelta(minutes=90, seconds=5)
    for wrong in ([], ["--for", "1h", "--until", COMING], ["--until", PAST], ["--for", "soon"]):
        assert cli("alarms", "snooze", "a", *wrong).code == 2
    cli("alarms", "cancel", "a")
    assert cli("alarms", "snooze", "a", "--for", "1h").code == 5


def test_alarms_and_schedules_keep_apart(cli: Cli, use: str) -> None:
    set_alarm(cli, "--name", "a", "--at", COMING)
    assert cli("schedules", "list").err == "no schedules\n"
    assert cli("schedules", "show", "a").code == 5
    for command in ("show", "cancel", "fires"):
        ended = cli("alarms", command, "nobody")
        assert (ended.code, ended.err) == (5, "error: no alarm has the name 'nobody'\n")
