"""What a `chronos.db_function` task says: a function, and the arguments it is called with."""

import msgspec

from chronos_runtime.errors import InputError, ProcessorFailure
from chronos_runtime.function_name import FunctionName
from chronos_runtime.handlers import Handler, HandlerFunction
from chronos_runtime.job import Job

FUNCTION_KIND = "chronos.db_function"
FUNCTION_TOPIC = "chronos"


class FunctionPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which function to call, and with what.

    >>> read = msgspec.json.Decoder(FunctionPayload).decode
    >>> str(read('{"function": "shop.charge", "arguments": {"order": 7}}').name)
    'shop.charge'
    >>> read('{"function": "pg_catalog.pg_sleep"}')
    Traceback (most recent call last):
    ...
    msgspec.ValidationError: function: no task may call what is in 'pg_catalog'; put a function \
of your own in a schema of your own
    """

    function: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    """Its one argument, byte for byte: a number stays as it was written."""

    def __post_init__(self) -> None:
        """Refuse at enqueue what could never be called; the rest waits for the worker."""
        FunctionName.of(self.function, "function")
        if not bytes(self.arguments).lstrip().startswith(b"{"):
            raise InputError("arguments: must be a JSON object")

    @property
    def name(self) -> FunctionName:
        """The function, by schema and name."""
        return FunctionName.of(self.function, "function")


def function_rules(function: HandlerFunction | None = None) -> Handler:
    """What goes for calls of SQL functions: for a worker with what runs them, for a client without.

    >>> function_rules().topic
    'chronos'
    """
    return Handler.of(function or _run_elsewhere, FUNCTION_KIND, topic=FUNCTION_TOPIC)


async def _run_elsewhere(job: Job, payload: FunctionPayload) -> None:  # noqa: ARG001
    raise ProcessorFailure("SQL functions are called by a worker")
