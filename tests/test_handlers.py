"""A function that could not handle jobs is refused when it is registered, not when it runs."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from chronos_runtime.errors import InputError
from chronos_runtime.handlers import Handler
from chronos_runtime.job import Job


class Greeting(msgspec.Struct):
    name: str


class Farewell(msgspec.Struct):
    name: str


class Unfinished(msgspec.Struct):
    part: "Missing"  # type: ignore[name-defined]  # noqa: F821


class Stranger:
    """What msgspec cannot read from JSON."""


@dataclasses.dataclass
class Address:
    street: str


class Service:
    async def greet(self, job: Job, payload: Greeting) -> None: ...

    async def __call__(self, job: Job, payload: Greeting) -> None: ...


async def greet(job: Job, payload: Greeting) -> str:
    return payload.name


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*arguments: Any, **options: Any) -> Any:
        return await function(*arguments, **options)

    return call


def refusal(function: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        Handler.of(function, "greet", **options)
    return str(caught.value)


def test_the_annotation_of_the_second_parameter_is_the_payloads_type() -> None:
    handler = Handler.of(greet, "greet")
    assert handler.payload_type is Greeting
    assert handler.decode('{"name": "Ada"}') == Greeting("Ada")
    assert handler.decode(b'{"name": "Ada"}') == Greeting("Ada")


def test_a_payload_without_annotation_is_anything() -> None:
    async def handle(job, payload): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    handler = Handler.of(handle, "greet")
    assert handler.payload_type is Any
    assert handler.decode('{"a": [1, null]}') == {"a": [1, None]}


def test_what_is_left_out_is_the_default() -> None:
    handler = Handler.of(greet, "greet")
    assert (handler.topic, handler.priority, handler.max_attempts) == ("default", 5, 5)
    assert handler.timeout_s is None
    assert 30.0 <= handler.backoff(1) <= 33.0


@pytest.mark.parametrize(
    ("payload_type", "text", "value"),
    [
        (Address, '{"street": "x"}', Address("x")),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (list[Greeting], '[{"name": "a"}]', [Greeting("a")]),
        (int | None, "null", None),
        (None, "null", None),
    ],
    ids=str,
)
def test_a_payload_may_have_any_type_msgspec_knows(
    payload_type: Any, text: str, value: object
) -> None:
    async def handle(job: Job, payload: Any) -> None: ...

    handle.__annotations__["payload"] = payload_type
    assert Handler.of(handle, "greet").decode(text) == value


def test_methods_and_decorated_functions_are_handlers_too() -> None:
    assert Handler.of(Service().greet, "greet").payload_type is Greeting
    assert Handler.of(traced(greet), "greet").payload_type is Greeting


def sync(job: Job, payload: Greeting) -> None: ...


async def stream(job: Job, payload: Greeting) -> Any:
    yield 1


@pytest.mark.parametrize(
    "function", [sync, stream, lambda job, payload: None, Service(), Greeting, 7, None], ids=type
)
def test_only_coroutine_functions_are_handlers(function: object) -> None:
    assert "'greet' must be an `async def` function" in refusal(function)


async def none_at_all() -> None: ...


async def one(job: Job) -> None: ...


async def three(job: Job, payload: Greeting, extra: int = 0) -> None: ...


async def by_keyword(job: Job, *, payload: Greeting) -> None: ...


async def scattered(job: Job, **payload: Greeting) -> None: ...


async def rest(job: Job, *payload: Greeting) -> None: ...


@pytest.mark.parametrize("function", [none_at_all, one, three, by_keyword, scattered, rest])
def test_a_handler_takes_a_job_and_a_payload_and_nothing_else(
    function: Callable[..., object],
) -> None:
    text = refusal(function)
    assert "handler of 'greet' must take exactly two parameters, `job` and `payload`" in text


@pytest.mark.parametrize(
    "annotation", ["Missing", "msgspec.Missing", "list[Missing]", "not ] a type"]
)
def test_an_annotation_that_cannot_be_resolved_is_refused(annotation: str) -> None:
    async def handle(job: Job, payload: Any) -> None: ...

    handle.__annotations__["payload"] = annotation
    assert "handler of 'greet': its annotations cannot be read" in refusal(handle)


def test_a_partial_without_readable_annotations_is_refused() -> None:
    async def handle(setting: int, job: Job, payload: Greeting) -> None: ...

    assert "handler of 'greet'" in refusal(functools.partial(handle, 1))


@pytest.mark.parametrize("payload_type", [Stranger, Greeting | Farewell, Unfinished, 7], ids=str)
def test_a_payload_type_msgspec_does_not_know_is_refused(payload_type: Any) -> None:
    async def handle(job: Job, payload: Any) -> None: ...

    handle.__annotations__["payload"] = payload_type
    assert "payload type of 'greet' is not one msgspec knows" in refusal(handle)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("topic", ""),
        ("topic", "*"),
        ("topic", None),
        ("priority", 10),
        ("priority", True),
        ("max_attempts", 0),
        ("max_attempts", 2.5),
        ("timeout_s", 0),
        ("timeout_s", "soon"),
        ("backoff", 30),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_its_name(option: str, wrong: object) -> None:
    assert refusal(greet, **{option: wrong}).startswith(option)


@pytest.mark.parametrize("kind", ["", "a\nb", 7, None], ids=ascii)
def test_a_kind_that_is_no_name_is_refused(kind: Any) -> None:
    with pytest.raises(InputError, match=r"^kind: "):
        Handler.of(greet, kind)
