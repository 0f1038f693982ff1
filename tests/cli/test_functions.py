"""Which SQL functions tasks may call is said, shown and taken back by hand."""

import anyio
import asyncpg
import pytest

from tests.cli.program import Cli

CREATE = (
    "create schema shop; create function shop.charge(j jsonb) returns jsonb language sql as"
    " 'select j'; create function shop.refund(j jsonb) returns jsonb language sql as 'select j';"
    " create function shop.other(t text) returns jsonb language sql as 'select null::jsonb'"
)


async def create_functions(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(CREATE)
    await connection.close()


def test_at_first_nothing_is_allowed(cli: Cli, use: str) -> None:
    ended = cli("functions", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "tasks may call no function: chronos-runtime functions allow" in ended.err
    assert cli("functions", "list", "--json").json == []


def test_functions_are_allowed_shown_changed_and_denied(cli: Cli, use: str) -> None:
    anyio.run(create_functions, use)
    ended = cli("functions", "allow", "shop.charge", "shop", "--role", "clerk", "--timeout", "1m")
    assert (ended.code, ended.out) == (0, "shop.charge allowed\nall of shop allowed\n")
    assert ended.err == ""
    whole, charge = cli("functions", "list", "--json").json
    assert (whole["schema_name"], whole["function_name"], whole["functions"]) == ("shop", None, 2)
    assert (charge["function_name"], charge["role"], charge["timeout_s"]) == ("charge", "clerk", 60)
    assert charge["functions"] == 1
    assert cli("functions", "allow", "shop.charge").code == 0
    table = cli("functions", "list").out.splitlines()
    assert table[0].split() == ["FUNCTION", "ROLE", "TIMEOUT", "COVERS"]
    assert table[1].split() == ["shop.*", "clerk", "1m", "2"]
    assert table[2].split() == ["shop.charge", "1"]
    assert cli("functions", "deny", "shop.charge").out == "shop.charge denied\n"
    assert [one["function_name"] for one in cli("functions", "list", "--json").json] == [None]
    assert cli("functions", "deny", "shop").out == "all of shop denied\n"
    ended = cli("functions", "deny", "shop")
    assert (ended.code, "all of shop was not allowed" in ended.err) == (2, True)


def test_a_permission_for_nothing_says_what_to_create(cli: Cli, use: str) -> None:
    ended = cli("functions", "allow", "shop.charge")
    assert (ended.code, ended.out) == (0, "shop.charge allowed\n")
    assert "create function shop.charge(jsonb) returns jsonb" in ended.err


@pytest.mark.parametrize(
    ("complaint", "arguments"),
    [
        ("schema: no task may call what is in 'pg_catalog'", ["pg_catalog"]),
        ("function: no task may call what is in 'chronos'", ["chronos.note_fires"]),
        ("function: 'Shop.charge' is no schema.function", ["Shop.charge"]),
        ("schema: 'shop;' is no schema", ["shop;"]),
        ("timeout: 'soon' is no time span", ["shop.charge", "--timeout", "soon"]),
        ("timeout_s: below 0.001", ["shop.charge", "--timeout", "0"]),
        ("role: 'none' is no role", ["shop.charge", "--role", "none"]),
    ],
)
def test_what_cannot_be_allowed_is_bad_usage(
    cli: Cli, use: str, complaint: str, arguments: list[str]
) -> None:
    ended = cli("functions", "allow", *arguments)
    assert (ended.code, complaint in ended.err) == (2, True), ended.err
    assert cli("functions", "list", "--json").json == []
