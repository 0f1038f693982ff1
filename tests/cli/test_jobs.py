"""Jobs are shown as they are, harmlessly, and decided about one by one or all at once."""

from uuid import UUID

from chronos_runtime.lineage import fact_id
from tests.cli.program import Cli
from tests.cli.rows import end_all, enqueued, execute

NOBODY = UUID(int=7)
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\x9b2J [bold]\n\u202eevil"


def test_jobs_are_listed_newest_first_by_page_and_filter(cli: Cli, use: str) -> None:
    ids = [enqueued(cli, "greet") for _ in range(3)]
    other = enqueued(cli, "other", "--topic", "mail", "--delay-s", 60)
    page = cli("jobs", "list", "--limit", 2, "--json").json
    assert [job["id"] for job in page["jobs"]] == [other, ids[2]]
    rest = cli("jobs", "list", "--before", page["next"], "--json").json
    assert [job["id"] for job in rest["jobs"]] == [ids[1], ids[0]]
    assert rest["next"] is None
    for arguments in (["--topic", "mail"], ["--kind", "other"], ["--state", "scheduled"]):
        found = cli("jobs", "list", *arguments, "--json").json["jobs"]
        assert [job["id"] for job in found] == [other]
    assert "'gone' is not one of scheduled, ready" in cli("jobs", "list", "--state", "gone").err


def test_text_is_aligned_and_plain_where_nobody_looks(cli: Cli, use: str) -> None:
    for _ in range(2):
        enqueued(cli, "greet")
    lines = cli("jobs", "list").out.splitlines()
    assert lines[0].split() == ["ID", "STATE", "KIND", "TOPIC", "TRY", "WHEN", "LAST", "ERROR"]
    assert {line.index("greet") for line in lines[1:]} == {lines[0].index("KIND")}
    assert "\x1b" not in "".join(lines)
    assert cli("jobs", "list", "--kind", "none").err == "no jobs\n"


def test_show_tells_everything_about_a_job(cli: Cli, use: str) -> None:
    id = enqueued(cli, "greet", '{"name": "Ada"}')
    end_all(use, "dead", '{"type": "ValueError", "message": "no", "attempt": 1, "traceback": "T"}')
    shown = cli("jobs", "show", id).out
    for part in (id, "dead", "greet", "1 of 5", '"name": "Ada"', "ValueError: no", "  T"):
        assert part in shown
    missing = cli("jobs", "show", NOBODY)
    assert missing.code == 5
    assert missing.err == f"error: no job has the id {NOBODY}\n"
    assert cli("jobs", "show", "seven").code == 2


def test_hostile_job_data_is_harmless_on_a_terminal(cli: Cli, use: str) -> None:
    id = enqueued(cli, "greet", "--key", HOSTILE)
    execute(
        use, "update chronos.jobs set kind = $1, topic = $1, payload = to_jsonb($1::text)", HOSTILE
    )
    for command in (["jobs", "list"], ["jobs", "show", id], ["topics", "list"]):
        shown = cli(*command).out
        assert "owned" not in shown or command[1] == "show"  # There it is JSON, spelled out.
        assert all(character.isprintable() or character == "\n" for character in shown), shown
        document = cli(*command, "--json")
        assert all(character.isprintable() or character == "\n" for character in document.out)
        assert document.json
    assert cli("jobs", "show", id, "--json").json["payload"] == HOSTILE


def test_cancel_ends_what_waits_and_asks_what_runs(cli: Cli, use: str) -> None:
    waiting = enqueued(cli, "greet")
    assert cli("jobs", "cancel", waiting).out == f"{waiting} cancelled\n"
    running = enqueued(cli, "greet")
    execute(
        use,
        "update chronos.jobs set lease_token = gen_random_uuid(),"
        " lease_until = now() + interval '1 minute'",
    )
    assert cli("jobs", "cancel", running, "--json").json == {running: "requested"}
    again = cli("jobs", "cancel", waiting)
    assert again.code == 5
    assert "has ended already: cancelled" in again.err
    assert cli("jobs", "cancel", NOBODY).code == 5


def test_dead_jobs_are_retried_and_discarded(cli: Cli, use: str) -> None:
    ids = [enqueued(cli, "greet") for _ in range(4)]
    assert cli("jobs", "retry", ids[0]).code == 5
    end_all(use, "dead")
    assert cli("jobs", "retry", ids[0]).out == f"{ids[0]} retried\n"
    assert cli("jobs", "show", ids[0], "--json").json["state"] == "ready"
    assert cli("jobs", "discard", ids[1], "--json").json == {"discarded": 1}
    assert cli("jobs", "show", ids[1], "--json").json["state"] == "cancelled"
    assert cli("jobs", "discard", ids[1]).code == 5
    assert cli("jobs", "retry").code == 2
    assert cli("jobs", "retry", ids[2], "--all").code == 2
    assert cli("jobs", "retry", "--all", "--kind", "other").out == "retried 0 jobs\n"
    assert cli("jobs", "retry", "--all").out == "retried 2 jobs\n"
    assert cli("jobs", "discard", "--all", "--json").json == {"discarded": 0}


def test_one_job_whose_key_is_taken_does_not_hold_up_the_others(cli: Cli, use: str) -> None:
    clashing = enqueued(cli, "greet", "--key", "k")
    free = [enqueued(cli, "greet") for _ in range(2)]
    end_all(use, "dead")
    enqueued(cli, "greet", "--key", "k")
    ended = cli("jobs", "retry", "--all")
    assert ended.out == "retried 2 jobs\n"
    assert f"{clashing} not retried" in ended.err
    assert {cli("jobs", "show", id, "--json").json["state"] for id in free} == {"ready"}


def test_what_a_message_says_and_whose_telephone_it_goes_to_is_not_shown(
    cli: Cli, use: str
) -> None:
    said, number = "canary of the body", "+4915112345678"
    ids = [
        enqueued(cli, "chronos.sms", f'{{"to": "{number}", "text": "{said}"}}'),
        enqueued(
            cli,
            "chronos.sms",
            f'{{"before_handler": "shop.sms", "customer": {{"phones": ["{number}"]}}}}',
        ),
        enqueued(
            cli,
            "chronos.email",
            f'{{"to": "ada@example.org", "subject": "Hi", "text": "{said}", "html": "{said}"}}',
        ),
    ]
    schedule = ("--kind", "chronos.sms", "--payload", f'{{"to": "{number}", "text": "{said}"}}')
    assert cli("schedules", "add", "sms", "--every", "5m", *schedule).code == 0
    for arguments in (
        *(("jobs", "show", id) for id in ids),
        *(("jobs", "show", id, "--json") for id in ids),
        *(("jobs", "lineage", id, "--json") for id in ids),
        ("jobs", "list", "--json"),
        ("schedules", "show", "sms"),
        ("schedules", "show", "sms", "--json"),
        ("schedules", "list", "--json"),
    ):
        ended = cli(*arguments)
        assert ended.code == 0
        assert said not in ended.out
        assert number[1:] not in ended.out
    assert "+49…78" in cli("jobs", "show", ids[0]).out
    assert "*** (18 characters)" in cli("jobs", "show", ids[2]).out
    assert "ada@example.org" in cli("jobs", "show", ids[2]).out


def test_lineage_shows_every_attempt_and_what_was_decided(cli: Cli, use: str) -> None:
    first = enqueued(cli, "mail", "--supervisor", "post")
    end_all(use, "failed", '{"type": "OSError", "message": "down", "attempt": 1}', kind="mail")
    fact = str(fact_id(UUID(first), 1))
    assert f"none yet: job {fact} is ready" in cli("jobs", "lineage", first).out
    execute(use, "delete from chronos.jobs where id = $1", UUID(fact))
    execute(
        use,
        "insert into chronos.jobs (id, kind, supervisor, retry_of, lineage_id, lineage_no)"
        " values (gen_random_uuid(), 'mail', 'post', $1, $1, 2)",
        UUID(first),
    )
    execute(
        use,
        "insert into chronos.job_history (id, kind, topic, state, run_at, enqueued_at, attempt,"
        " max_attempts, priority, payload, result) values ($1, 'chronos.supervise.post', 'chronos',"
        " 'succeeded', now(), now(), 1, 20, 5, 'null', '{\"decision\": \"new_attempt\"}')",
        UUID(fact),
    )
    listed = cli("jobs", "list", "--state", "ready", "--json").json["jobs"]
    [second] = [job["id"] for job in listed]
    for id in (first, second):
        lines = cli("jobs", "lineage", id).out.splitlines()
        assert lines[1].split()[:3] == ["1", first, "failed"]
        assert "new attempt" in lines[1]
        assert lines[2].split()[:3] == ["2", second, "ready"]
        assert lines[3:] == ["", " 1  OSError: down"]
    shown = cli("jobs", "lineage", first, "--json").json
    assert [one["id"] for one in shown["attempts"]] == [first, second]
    assert [one["id"] for one in shown["facts"]] == [fact]
    assert f"{first}, as attempt 2 of {first}" in cli("jobs", "show", second).out
    assert cli("jobs", "list", "--state", "failed").out.count(first) == 1
    assert cli("jobs", "lineage", NOBODY).code == 5
    refused = cli("jobs", "retry", first)
    assert refused.err == f"error: job {first} is failed: only a dead job can be retried\n"
