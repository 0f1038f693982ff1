"""The registry: one handler a kind, found by name or by function."""

from typing import Any

import msgspec
import pytest

from chronos_runtime import Chronos, Fixed, InputError, Job, UnknownKind


class Greeting(msgspec.Struct):
    name: str


class Service:
    async def greet(self, job: Job, payload: Greeting) -> None: ...


async def greet(job: Job, payload: Greeting) -> str:
    return payload.name


async def part(job: Job, payload: Greeting) -> None: ...


def test_a_registered_function_stays_what_it_was() -> None:
    app = Chronos()
    assert app.handler("greet")(greet) is greet


def test_a_handler_is_found_by_its_kind_and_by_its_function() -> None:
    app = Chronos()
    app.handler("greet")(greet)
    app.handler("part")(part)
    assert app.find("greet").function is greet
    assert app.find(part).kind == "part"


def test_a_method_is_found_by_itself() -> None:
    app, service, other = Chronos(), Service(), Service()
    app.handler("greet")(service.greet)
    assert app.find(service.greet).kind == "greet"
    with pytest.raises(UnknownKind):
        app.find(other.greet)


def test_a_kind_has_one_handler() -> None:
    app = Chronos()
    app.handler("greet")(greet)
    with pytest.raises(InputError, match="'greet' has a handler already"):
        app.handler("greet")(part)
    assert app.find("greet").function is greet


def test_a_handler_that_is_refused_leaves_no_trace() -> None:
    app = Chronos()
    with pytest.raises(InputError):
        app.handler("greet", priority=10)(greet)
    assert app.handlers == {}
    app.handler("greet")(greet)


def test_options_reach_the_handler() -> None:
    app = Chronos()
    app.handler(
        "greet", topic="mail", priority=1, max_attempts=2, timeout_s=3.0, backoff=Fixed(4.0)
    )(greet)
    handler = app.handlers["greet"]
    assert (handler.topic, handler.priority, handler.max_attempts) == ("mail", 1, 2)
    assert (handler.timeout_s, handler.backoff(9)) == (3.0, 4.0)


def test_topics_are_those_of_the_handlers() -> None:
    app = Chronos()
    assert app.topics == []
    for kind, topic in (("a", "mail"), ("b", "default"), ("c", "mail")):
        app.handler(kind, topic=topic)(greet)
    assert app.topics == ["default", "mail"]


@pytest.mark.parametrize("wrong", ["Greet", "", part, Service().greet, 7])
def test_who_asks_for_a_handler_that_is_not_there_is_told_which_are(wrong: Any) -> None:
    app = Chronos()
    with pytest.raises(UnknownKind, match="this app knows: none"):
        app.find(wrong)
    app.handler("greet")(greet)
    app.handler("bye")(greet)
    with pytest.raises(UnknownKind, match=r"^kind: .*this app knows: bye, greet"):
        app.find(wrong)


@pytest.mark.parametrize("kind", [greet, "", "a\nb", None, ["greet"], 7], ids=type)
def test_a_kind_that_is_no_name_is_refused_at_once(kind: Any) -> None:
    with pytest.raises(InputError, match=r"^kind: "):
        Chronos().handler(kind)  # Also `@app.handler` with its brackets forgotten.


def test_registries_know_nothing_of_each_other() -> None:
    one, other = Chronos(), Chronos()
    one.handler("greet")(greet)
    assert other.handlers == {}
