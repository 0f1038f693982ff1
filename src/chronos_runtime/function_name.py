"""The name of a SQL function, as tasks give it: `schema.function`, and nothing that needs quotes.

A name from a payload is somebody else's text on its way to a statement. So it is one of few shapes
here, looked up in the catalog before it is used (`resolve_function.sql`), and quoted by the server.
"""

import re

import msgspec

from chronos_runtime.errors import InputError

_PART = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)  # 63 bytes: what Postgres keeps of a name.
_RESERVED = ("chronos", "information_schema")
_RESERVED_PREFIX = "pg_"  # pg_catalog, pg_toast, and pg_temp, where anybody may put functions.


class FunctionName(msgspec.Struct, frozen=True, order=True):
    """A schema and a function in it.

    >>> FunctionName.of("shop.charge", "function")
    FunctionName(schema='shop', name='charge')
    >>> FunctionName.of("charge", "function")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: function: 'charge' is no schema.function in lower-case \
letters, digits and _; rename the function, or wrap it in one with such a name
    """

    schema: str
    name: str

    @classmethod
    def of(cls, text: object, field: str) -> "FunctionName":
        """The name that `text` spells, once it can be one that tasks may call."""
        schema, dot, name = text.partition(".") if isinstance(text, str) else ("", "", "")
        if not dot or not _PART.fullmatch(schema) or not _PART.fullmatch(name):
            raise InputError(
                f"{field}: {text!r:.200} is no schema.function in lower-case letters, digits and"
                " _; rename the function, or wrap it in one with such a name"
            )
        return cls(checked_schema(schema, field), name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def checked_schema(schema: object, field: str) -> str:
    """`schema`, once it can be one whose functions tasks may call.

    >>> checked_schema("pg_catalog", "schema")
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.InputError: schema: no task may call what is in 'pg_catalog'; put a \
function of your own in a schema of your own
    """
    if not isinstance(schema, str) or not _PART.fullmatch(schema):
        raise InputError(
            f"{field}: {schema!r:.200} is no schema in lower-case letters, digits and _"
        )
    if schema in _RESERVED or schema.startswith(_RESERVED_PREFIX):
        raise InputError(
            f"{field}: no task may call what is in {schema!r}; put a function of your own in a"
            " schema of your own"
        )
    return schema
