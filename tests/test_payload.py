"""A payload that goes in comes out the same; one that cannot is refused by name and place."""

import dataclasses
import enum
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chronos_runtime.errors import PayloadError
from chronos_runtime.payload import PAYLOAD_MAX_BYTES, encode_payload, encode_result
from chronos_runtime.store.migrations import Connection

THROUGH_JSONB = """
select payload
from unnest($1::jsonb[]) with ordinality as given (payload, place)
order by place
"""

STORABLE_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | STORABLE_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STORABLE_TEXT, inner, max_size=4),
    max_leaves=12,
)

DATABASE = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


class Color(enum.Enum):
    RED = "red"


class Item(msgspec.Struct):
    name: str
    price: float = 0.0


class Order(msgspec.Struct):
    id: int
    items: list[Item]


@dataclasses.dataclass
class Point:
    x: int
    label: str


def encode(payload: object, shape: Any = None) -> str:
    return encode_payload("order", payload, msgspec.json.Decoder(shape).decode if shape else None)


def refusal(payload: object, shape: Any = None) -> str:
    with pytest.raises(PayloadError) as caught:
        encode(payload, shape)
    text = str(caught.value)
    assert text.startswith("payload of 'order'"), "the message names the kind"
    return text


def nested(depth: int, leaf: object) -> object:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def same(given: Any, found: Any) -> bool:
    """Equal but for what jsonb does to numbers: it has one type for them, exact and decimal."""
    if isinstance(given, dict):
        return given.keys() == found.keys() and all(same(given[key], found[key]) for key in given)
    if isinstance(given, list):
        return len(given) == len(found) and all(map(same, given, found))
    if isinstance(given, float):
        return not isinstance(found, bool) and given == float(found)
    return type(given) is type(found) and bool(given == found)


@DATABASE
@given(st.lists(JSON, min_size=5, max_size=20))
async def test_every_json_value_comes_back_from_the_database_as_it_went_in(
    connection: Connection, payloads: list[object]
) -> None:
    rows = await connection.fetch(THROUGH_JSONB, [encode(payload, Any) for payload in payloads])
    for payload, row in zip(payloads, rows, strict=True):
        assert same(payload, msgspec.json.decode(row["payload"]))


@DATABASE
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=20, max_size=50))
async def test_floats_come_back_to_the_last_bit(
    connection: Connection, numbers: list[float]
) -> None:
    [row] = await connection.fetch(THROUGH_JSONB, [encode(numbers, list[float])])
    assert msgspec.json.decode(row["payload"], type=list[float]) == numbers


async def test_typed_payloads_come_back_from_the_database_as_their_type(
    connection: Connection,
) -> None:
    payloads: list[tuple[Any, Any]] = [
        (Order(7, [Item("a", 1.5), Item("é😀")]), Order),
        (Point(1, "p"), Point),
        ({1, 2, 3}, set[int]),
        ((1, "a"), tuple[int, str]),
        (b"\x00\xff", bytes),
        (datetime(2026, 11, 16, 3, 4, 5, 678, tzinfo=UTC), datetime),
        (UUID(int=2**127 + 1), UUID),
        (Decimal("0.1000"), Decimal),
        (Color.RED, Color),
        ({1: "a", 2: "b"}, dict[int, str]),
        (None, None),
        (True, bool),
        ("", str),
    ]
    texts = [encode(payload, shape) for payload, shape in payloads]
    rows = await connection.fetch(THROUGH_JSONB, texts)
    for (payload, shape), row in zip(payloads, rows, strict=True):
        assert msgspec.json.decode(row["payload"], type=shape) == payload


async def test_integers_of_any_size_come_back_exactly_or_are_refused(
    connection: Connection,
) -> None:
    for number in (2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -(2**63), -(10**30)):
        try:
            text = encode({"n": number}, dict[str, int])
        except PayloadError:
            assert not -(2**63) <= number < 2**64, "these every version of msgspec takes"
            continue
        [row] = await connection.fetch(THROUGH_JSONB, [text])
        assert msgspec.json.decode(row["payload"], type=dict[str, int]) == {"n": number}


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ("a\x00", "$"),
        ({"name": "a\x00"}, "$.name"),
        ({"rows": [1, {"name": "\x00"}]}, "$.rows[1].name"),
        ({"bad\x00key": 1}, "$ (a key)"),
        ({"rows": [{"\x00": None}]}, "$.rows[0] (a key)"),
        (Order(1, [Item("a"), Item("b\x00")]), "$.items[1].name"),
        (Point(1, "\x00"), "$.label"),
        ({"\\u0000": "\x00"}, "$.\\u0000"),
    ],
    ids=repr,
)
def test_a_nul_character_is_refused_by_its_place(payload: object, place: str) -> None:
    assert refusal(payload).endswith(f"NUL character in the string at {place}")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_json_does_not_have_is_refused_by_its_place(number: float) -> None:
    assert f"{number} at $ has no JSON form" in refusal(number)
    assert f"{number} at $.a[1] " in refusal({"a": [1.0, number]})
    assert f"{number} at $.items[0].price " in refusal(Order(1, [Item("a", number)]), Order)
    assert f"{number} at $[0][1] " in refusal([(1, number)])


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ("x\ud800", "$"),
        ({"a": ["", "\udfff"]}, "$.a[1]"),
        ({"\ud800": 1}, "$ (a key)"),
        (Item("\ud800"), "$.name"),
        (Order(1, [Item("😀"), Item("\ude00\ud83d")]), "$.items[1].name"),
    ],
    ids=ascii,
)
def test_a_lone_surrogate_is_refused_by_its_place(payload: object, place: str) -> None:
    assert refusal(payload).endswith(f"lone surrogate in the string at {place}")


async def test_what_only_looks_unstorable_is_stored(connection: Connection) -> None:
    payloads: list[object] = [
        "\\u0000",
        {"\\u0000": "\\\\u0000"},
        "null",
        {"null": None},
        [None, "nullify"],
        "NaN",
        {"NaN": "Infinity"},
        Decimal("NaN"),
        msgspec.Raw(b'{"a": null}'),
    ]
    texts = [encode(payload) for payload in payloads]
    rows = await connection.fetch(THROUGH_JSONB, texts)
    found = [msgspec.json.decode(row["payload"]) for row in rows]
    assert found == [msgspec.json.decode(text) for text in texts]
    assert found[:7] == payloads[:7]


@pytest.mark.parametrize(
    "payload", [object(), 1j, encode, {None: 1}, {"a": [object()]}, 10**5000], ids=type
)
def test_what_json_cannot_say_is_refused_with_advice(payload: object) -> None:
    assert "cannot be stored as JSON" in refusal(payload)
    assert "use msgspec structs, dicts, lists" in refusal(payload)


def test_json_made_by_the_caller_is_looked_into_too() -> None:
    assert "NUL character in the string at $.a" in refusal({"a": msgspec.Raw(b'"\\u0000"')})
    for text in (b"{null", b'"\xff"'):
        assert "cannot be stored as JSON" in refusal([msgspec.Raw(text)])


@pytest.mark.parametrize("leaf", [1, None, "\\u0000"])
def test_a_payload_too_deep_is_refused_wherever_the_limit_strikes(leaf: object) -> None:
    # The encoder, the walk and the decoder run out of stack a few levels apart.
    for depth in range(900, 1_001):
        try:
            encode(nested(depth, leaf), Any)
        except PayloadError as error:
            assert "order" in str(error)  # noqa: PT017
    refusal(nested(100_000, leaf))
    loop: list[object] = []
    loop.append(loop)
    refusal(loop)


async def test_the_deepest_payload_that_is_taken_is_one_postgres_takes(
    connection: Connection,
) -> None:
    depth = 500
    while True:
        try:
            text = encode(nested(depth + 10, 1))
        except PayloadError:
            break
        depth += 10
    [row] = await connection.fetch(THROUGH_JSONB, [text])
    assert str(row["payload"]).count("[") >= 500


def test_a_payload_may_have_a_mebibyte_and_not_a_byte_more() -> None:
    quotes = 2
    for size in (PAYLOAD_MAX_BYTES - 1, PAYLOAD_MAX_BYTES):
        assert len(encode("x" * (size - quotes))) == size
    text = refusal("x" * (PAYLOAD_MAX_BYTES + 1 - quotes))
    assert f"{PAYLOAD_MAX_BYTES + 1} bytes, more than {PAYLOAD_MAX_BYTES}" in text
    assert "enqueue a reference" in text
    refusal("é" * (PAYLOAD_MAX_BYTES // 2))


@pytest.mark.parametrize(
    ("payload", "shape", "place"),
    [
        ({"id": "seven", "items": []}, Order, "$.id"),
        ({"id": 7, "items": [{"name": "a"}, {"name": 5}]}, Order, "$.items[1].name"),
        ({"id": 7}, Order, "missing required field `items`"),
        (7, Order, "Expected `object`, got `int`"),
        (Item("a"), Order, "missing required field"),
        ({"x": 1.5, "label": ""}, Point, "$.x"),
    ],
    ids=repr,
)
def test_a_payload_that_does_not_fit_its_type_is_refused_by_the_fields_path(
    payload: object, shape: Any, place: str
) -> None:
    assert place in refusal(payload, shape)


def test_a_payload_that_fits_its_type_in_another_shape_is_taken() -> None:
    assert encode({"id": 7, "items": ({"name": "a"},)}, Order) == '{"id":7,"items":[{"name":"a"}]}'


def test_a_result_is_kept_as_json_and_none_as_nothing() -> None:
    assert encode_result(None, 100) == (None, None)
    assert encode_result(Item("a", 2.0), 100) == ('{"name":"a","price":2.0}', None)
    assert encode_result(False, 100) == ("false", None)


def test_a_result_may_have_so_many_bytes_and_not_one_more() -> None:
    assert encode_result("x" * 98, 100) == (f'"{"x" * 98}"', None)
    text, trouble = encode_result("x" * 99, 100)
    assert trouble == "dropped: 101 bytes, more than 100"
    assert msgspec.json.decode(text or "") == {"chronos_result": trouble}


@pytest.mark.parametrize(
    "result", [object(), 1j, "\ud800", nested(100_000, 1), nested(960, "\x00"), {None: 1}], ids=type
)
def test_a_result_that_cannot_be_kept_leaves_a_note(result: object) -> None:
    text, trouble = encode_result(result, 10_000)
    assert trouble is not None
    assert "has no JSON form" in trouble
    assert msgspec.json.decode(text or "") == {"chronos_result": trouble}


@DATABASE
@given(
    st.lists(
        st.recursive(
            st.none() | st.floats() | st.text(st.characters(codec=None, exclude_categories=[])),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        ),
        min_size=5,
        max_size=20,
    )
)
async def test_postgres_takes_whatever_a_result_becomes(
    connection: Connection, results: list[object]
) -> None:
    texts = [encode_result(result, 1_000)[0] for result in results]
    assert len(await connection.fetch(THROUGH_JSONB, texts)) == len(results)
