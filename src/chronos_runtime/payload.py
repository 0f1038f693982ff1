"""Payloads and results between Python values and the JSON that Postgres keeps.

Checked at enqueue, so that a bad one is the producer's error and never a row; checked again at
run, because rows also come by SQL and from other versions. Postgres's jsonb cannot hold NUL
characters, UTF-8 no lone surrogates, and JSON has no NaN: they are refused in payloads by name
and place, and replaced in results, which must never keep an outcome from being written.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from chronos_runtime.errors import PayloadError

PAYLOAD_MAX_BYTES = 1_048_576

_encoder = msgspec.json.Encoder()
_CANNOT_ENCODE = (TypeError, ValueError, OverflowError, RecursionError)
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_payload(kind: str, payload: object, check: Callable[[bytes], object] | None) -> str:
    """`payload` as JSON text; `check` decodes it as the handler will.

    >>> encode_payload("greet", {"name": "Ada"}, None)
    '{"name":"Ada"}'
    """
    try:
        data = _encoder.encode(payload)
        # Each is rare, so the slow walk is taken only when its traces show.
        if len(data) > PAYLOAD_MAX_BYTES or b"\\u0000" in data or b"null" in data:
            _look_closer(kind, payload, len(data))
        if check is not None:
            check(data)
        return data.decode()
    except PayloadError:
        raise
    except msgspec.ValidationError as error:
        raise PayloadError(f"payload of {kind!r}: {error}") from error
    except _CANNOT_ENCODE as error:
        if isinstance(error, UnicodeEncodeError):
            _refuse_unstorable(kind, _plain(payload), "$")
        raise PayloadError(
            f"payload of {kind!r} cannot be stored as JSON: {error}; use msgspec structs, dicts,"
            " lists, strings, numbers, booleans or None"
        ) from error


def _look_closer(kind: str, payload: object, size: int) -> None:
    if size > PAYLOAD_MAX_BYTES:
        raise PayloadError(
            f"payload of {kind!r} has {size} bytes, more than {PAYLOAD_MAX_BYTES};"
            " store the data elsewhere and enqueue a reference to it"
        )
    _refuse_unstorable(kind, _plain(payload), "$")


def _plain(payload: object) -> object:
    # The one thing the encoder takes that this does not know is JSON already: msgspec.Raw.
    return msgspec.to_builtins(payload, str_keys=True, enc_hook=msgspec.json.decode)


def _refuse_unstorable(kind: str, value: object, place: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise PayloadError(f"payload of {kind!r}: {value} at {place} has no JSON form")
    if isinstance(value, str):
        if "\x00" in value:
            raise PayloadError(f"payload of {kind!r}: NUL character in the string at {place}")
        if _SURROGATE.search(value):
            raise PayloadError(f"payload of {kind!r}: lone surrogate in the string at {place}")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_unstorable(kind, key, f"{place} (a key)")
            _refuse_unstorable(kind, item, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_unstorable(kind, item, f"{place}[{index}]")


def encode_result(result: object, max_bytes: int) -> tuple[str | None, str | None]:
    """A handler's result as JSON text, and what was wrong with it, if anything.

    The work is done, so a result that cannot be kept is replaced by a note, never an error.

    >>> encode_result({"sent": 3}, 100)
    ('{"sent":3}', None)
    >>> encode_result("x" * 200, 100)
    ('{"chronos_result":"dropped: 202 bytes, more than 100"}', 'dropped: 202 bytes, more than 100')
    """
    if result is None:
        return None, None
    try:
        data = _encoder.encode(result)
        if b"\\u0000" in data:
            data = _encoder.encode(_without_nul(msgspec.json.decode(data)))
        text = data.decode()
    except _CANNOT_ENCODE as error:
        trouble = f"dropped: {type(result).__name__} has no JSON form ({type(error).__name__})"
    else:
        if len(data) <= max_bytes:
            return text, None
        trouble = f"dropped: {len(data)} bytes, more than {max_bytes}"
    return _encoder.encode({"chronos_result": trouble}).decode(), trouble


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nul(item) for item in value]
    return value
