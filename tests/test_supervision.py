"""Who supervises is decided before anything is written, and what is decided is checked."""

from typing import Any

import pytest

from chronos_runtime import (
    Chronos,
    Client,
    Config,
    Failure,
    GiveUp,
    Job,
    MemoryStore,
    NewAttempt,
    Task,
)
from chronos_runtime.attempts import supervisor_of
from chronos_runtime.definitions import digest_of
from chronos_runtime.errors import ConfigError, InputError
from chronos_runtime.supervision import checked_decision, read_decision, word_of


async def work(job: Job, payload: object) -> None:
    """A handler like any other."""


async def push(task: Task, message: dict[str, str]) -> None:
    """A processor like any other."""


async def decide(failure: Failure) -> GiveUp:
    """A supervisor like any other."""
    return GiveUp()


def new_client(**options: Any) -> Client:
    """A client of an app whose only kind is `mail`."""
    app = Chronos()
    app.handler("mail", **options)(work)
    return Client(MemoryStore(), app)


@pytest.mark.parametrize(
    ("handler", "call", "supervisor"),
    [
        ({}, {}, None),
        ({}, {"attempts": "supervised"}, "mail"),
        ({}, {"attempts": "supervised", "supervisor": "post"}, "post"),
        ({}, {"attempts": "supervised", "supervisor": ""}, ""),
        ({"attempts": "supervised"}, {}, "mail"),
        ({"attempts": "supervised", "supervisor": "post"}, {}, "post"),
        ({"attempts": "supervised", "supervisor": "post"}, {"attempts": "supervised"}, "post"),
        ({"attempts": "supervised"}, {"supervisor": "other"}, "other"),
        ({"attempts": "supervised"}, {"attempts": "retried"}, None),
    ],
)
def test_the_call_decides_over_the_handler(
    handler: dict[str, Any], call: dict[str, Any], supervisor: str | None
) -> None:
    assert new_client(**handler).job("mail", **call).supervisor == supervisor


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"supervisor": "post"}, "supervisor: give attempts='supervised' too"),
        ({"attempts": "retried", "supervisor": "post"}, "supervisor: give attempts"),
        ({"attempts": "always"}, "attempts: 'always' is neither"),
        ({"attempts": "supervised", "supervisor": "a\n"}, "supervisor: .* printable"),
        ({"attempts": "supervised", "supervisor": 7}, "supervisor: 7 must be"),
        ({"attempts": "supervised", "supervisor": "x" * 181}, "supervisor: longer than 180 bytes"),
    ],
)
def test_what_makes_no_sense_is_refused_at_the_call(call: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        new_client().job("mail", **call)
    with pytest.raises(InputError, match=message):
        Chronos().handler("mail", **call)(work)
    with pytest.raises(InputError, match=message):
        Chronos().processor("mail", **call)(push)


def test_a_processor_may_be_supervised() -> None:
    app = Chronos()
    app.processor("push", attempts="supervised")(push)
    assert app.handlers["push"].supervisor == "push"


def test_a_kind_of_our_own_is_supervised_under_its_short_name() -> None:
    assert supervisor_of("chronos.email", "supervised", None) == "email"


async def test_a_fire_of_a_supervised_kind_is_supervised() -> None:
    client = new_client(attempts="supervised")
    schedule = await client.schedules.add("nightly", "mail", cron="@daily")
    assert schedule.supervisor == "mail"
    edited = await client.schedules.edit("nightly", supervisor=None)
    assert edited.supervisor is None
    with pytest.raises(InputError, match="supervisor"):
        await client.schedules.edit("nightly", supervisor="x" * 181)


def test_a_definition_of_before_has_the_digest_it_had() -> None:
    app = Chronos()
    app.schedule("nightly", cron="@daily")(app.handler("mail")(work))
    assert digest_of(app.schedules["nightly"]) == "e1f66be28e0f3815c943edd9a3ae31d6"


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        ("", decide, "give it a name"),
        ("x" * 181, decide, "longer than 180"),
        ("mail", work, "must take exactly one parameter, `failure`"),
        ("mail", lambda failure: GiveUp(), "must be an `async def` function"),
    ],
)
def test_a_supervisor_that_cannot_be_one_is_refused(name: str, function: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Chronos().supervisor(name)(function)


def test_a_name_is_registered_once() -> None:
    app = Chronos()
    app.supervisor("mail")(decide)
    with pytest.raises(InputError, match="has one of the name 'mail' already"):
        app.supervisor("mail")(decide)


@pytest.mark.parametrize(
    ("supervisors", "message"),
    [
        ({"mail": "decide"}, "supervisors: mail: 'decide' is no schema.function"),
        ({"mail": "pg_catalog.now"}, "supervisors: mail: no task may call"),
        ({"": "shop.decide"}, "supervisors: supervisor: None must be"),
    ],
)
def test_a_sql_supervisor_that_could_never_be_called_is_a_mistake_in_the_config(
    supervisors: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.of({"supervisors": supervisors})


def test_decisions_are_told_by_type_and_by_word() -> None:
    assert word_of(checked_decision(NewAttempt(5), "mail")) == "new_attempt"
    decision = read_decision({"decision": "new_attempt", "delay_s": 5, "payload": {"n": 1}}, "mail")
    assert decision == NewAttempt(5.0, {"n": 1})
    several: list[object] = [None, {}, {"decision": "new_attempt", "delay": 5}, {"decision": 7}, []]
    for nonsense in several:
        with pytest.raises(InputError, match="supervisor 'mail' decided nothing we know"):
            read_decision(nonsense, "mail")
