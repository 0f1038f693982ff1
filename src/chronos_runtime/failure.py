"""Turns an exception into a record that can always be stored.

Whatever a handler raises must never keep its outcome from being written: NUL bytes and lone
surrogates are replaced, megabytes are cut in the middle, and an exception whose `__str__`
raises is described by its type.
"""

import traceback

import msgspec

MESSAGE_MAX_CHARS = 2_000
TRACEBACK_MAX_CHARS = 8_000
_FRAMES_MAX = 30


def clean_text(text: str, max_chars: int) -> str:
    """`text` as Postgres can store it, cut in the middle to `max_chars`.

    >>> clean_text("a\\x00b", 10)
    'a\\ufffdb'
    >>> clean_text("x" * 100, 20)
    'xxxx… 92 cut …xxxx'
    """
    if len(text) > max_chars:
        note_max = len(f"… {len(text)} cut …")
        half = max((max_chars - note_max) // 2, 1)
        text = f"{text[:half]}… {len(text) - 2 * half} cut …{text[-half:]}"
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def describe(error: BaseException) -> str:
    """The message of an exception, also when asking for it raises.

    >>> describe(ValueError("no"))
    'no'
    """
    try:
        return clean_text(str(error), MESSAGE_MAX_CHARS)
    except Exception as broken:  # The user's __str__: anything may come.
        return f"<{type(error).__name__}.__str__ raised {type(broken).__name__}>"


def _format_traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(error, limit=-_FRAMES_MAX)
    except Exception:  # format_exception calls the user's __str__ of every cause.
        lines = traceback.format_tb(error.__traceback__, limit=-_FRAMES_MAX)
    return clean_text("".join(lines), TRACEBACK_MAX_CHARS)


def failure_record(error: BaseException, *, attempt: int, worker: str) -> str:
    """The JSON that stands in a job's error history; the database adds the time."""
    return _encode(
        type(error).__qualname__,
        describe(error),
        attempt=attempt,
        worker=worker,
        trace=_format_traceback(error),
    )


def reason_record(kind: str, reason: str, *, attempt: int, worker: str) -> str:
    """The same for an end that has no exception: a timeout, a cancellation, a decision."""
    return _encode(kind, clean_text(reason, MESSAGE_MAX_CHARS), attempt=attempt, worker=worker)


def _encode(kind: str, message: str, *, attempt: int, worker: str, trace: str = "") -> str:
    record: dict[str, str | int] = {
        "type": clean_text(kind, 200),
        "message": message,
        "attempt": attempt,
        "worker": worker,
    }
    if trace:
        record["traceback"] = trace
    return msgspec.json.encode(record).decode()
