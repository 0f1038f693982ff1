"""What the README shows works as printed."""

import base64
import os
import re
import shlex
import sys
import textwrap
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import asyncpg
import msgspec
import pytest
import typer
from standardwebhooks import WebhookVerificationError

from chronos_runtime import (
    Chronos,
    Client,
    Config,
    Escalate,
    Failure,
    GiveUp,
    Job,
    JobRecord,
    NewAttempt,
    Runtime,
)
from chronos_runtime.cli import cli
from chronos_runtime.config import DatabaseConfig, ExporterConfig
from chronos_runtime.errors import TargetRefused
from chronos_runtime.processors.egress import Egress
from chronos_runtime.processors.email import Email
from chronos_runtime.processors.signing import load_signers
from chronos_runtime.processors.sms_http import HttpSmsProvider
from chronos_runtime.processors.supervise import failure_of
from chronos_runtime.processors.targets import Target
from chronos_runtime.store.migrations import Connection
from chronos_runtime.supervision import word_of
from tests.eventually import eventually

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE_LINES_MAX = 12


def first_example() -> str:
    found = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_example_is_short() -> None:
    lines = [line for line in first_example().splitlines() if line.strip()]
    assert len(lines) <= EXAMPLE_LINES_MAX


async def test_the_first_example_runs(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shop: Any = ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", shop)
    exec(compile(first_example(), "README.md", "exec"), shop.__dict__)
    database = DatabaseConfig(dsn=dsn)
    runtime = Runtime(shop.app, Config(database=database, exporter=ExporterConfig(port=0)))
    stop = anyio.Event()
    async with Client.connect(dsn, shop.app) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.run, stop)
        await shop.sign_up(client, "ada@example.org")

        async def results() -> list[object]:
            page = await client.list(states=["succeeded"])
            return [job.result for job in page.jobs]

        assert await eventually(results) == ["mail to ada@example.org sent"]
        stop.set()


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of a section that are written in a language."""
    section = README.split(f"\n### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    found = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found
    return found


async def run_block(block: str, **names: object) -> None:
    """Run statements that await, with these names."""
    code = f"async def example():\n{textwrap.indent(block, '    ')}"
    exec(compile(code, "README.md", "exec"), names)
    example: Any = names["example"]
    await example()


class Report(msgspec.Struct):
    day: datetime


async def test_the_examples_of_schedules_run(dsn: str) -> None:
    app = Chronos()
    for kind in ("tidy", "announce"):

        @app.handler(kind)
        async def handler(job: Job, payload: Any) -> None: ...

    [block] = blocks("Schedule", "python")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    async with Client.connect(dsn, app) as client:
        await run_block(
            block, app=app, client=client, Job=Job, Report=Report, tomorrow_at_nine=tomorrow
        )
        [launch, tidy] = await client.schedules.list()
        [fire] = await client.schedules.fires("tidy up")
    assert (launch.name, launch.once_at) == ("launch", tomorrow)
    assert (tidy.interval_s, tidy.paused, fire.state) == (600.0, True, "ready")
    assert app.schedules["report"].kind == "report"


class Transfer(msgspec.Struct):
    source: int
    target: int
    cents: int


async def test_the_example_of_a_transaction_moves_the_money_once(
    dsn: str, connection: Connection
) -> None:
    app = Chronos()
    [block] = blocks("Exactly once inside Postgres", "python")
    exec(compile(block, "README.md", "exec"), {"app": app, "Job": Job, "Transfer": Transfer})
    await connection.execute("create table account (id integer, cents integer)")
    await connection.execute("insert into account values (1, 100), (2, 0)")
    config = Config.of({"database": {"dsn": dsn}, "exporter": {"enabled": False}})
    stop = anyio.Event()
    async with Client.connect(dsn, app) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(Runtime(app, config).run, stop)
        enqueued = await client.enqueue("transfer", Transfer(1, 2, 30))

        async def result() -> object:
            return (await client.get(enqueued.id)).result

        assert await eventually(result) == {"moved": 30}
        stop.set()
    rows = await connection.fetch("select cents from account order by id")
    assert [row["cents"] for row in rows] == [70, 30]


async def test_the_example_of_alarms_runs(dsn: str) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    async with Client.connect(dsn) as client:
        await run_block(blocks("Alarms", "python")[0], client=client, tomorrow_at_nine=tomorrow)
        [alarm] = await client.alarms.list()
    assert (alarm.name, alarm.status) == ("order 7", "cancelled")


async def test_the_example_of_supervisors_decides(dsn: str) -> None:
    app = Chronos()
    [block] = blocks("Supervise", "python")
    names = {"Job": Job, "Invoice": object, "Failure": Failure}
    names |= {"NewAttempt": NewAttempt, "GiveUp": GiveUp, "Escalate": Escalate}
    async with Client.connect(dsn, app) as client:
        [line] = await client.enqueue_many([Client.connect(dsn).job("invoice")])
        await run_block(block, app=app, client=client, id=line.id, **names)
        job = client.job("invoice")
    assert job.supervisor == "billing"
    record = JobRecord(
        **dict.fromkeys(JobRecord.__struct_fields__),  # type: ignore[arg-type]
    )
    decide = app.supervisors["billing"].function
    for attempt, message, word in (
        (1, "550 no such mailbox", "give_up"),
        (2, "timeout", "new_attempt"),
        (3, "timeout", "escalate"),
    ):
        failed = msgspec.structs.replace(
            record,
            errors=[{"message": message}],
            lineage_no=attempt,
            finished_at=datetime.now(UTC),
        )
        assert word_of(await decide(failure_of(failed))) == word


def test_the_receiver_of_the_example_takes_what_we_sign_and_nothing_else() -> None:
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    got: list[object] = []
    names: Any = {"secret": secret, "is_new": lambda id: id == "1", "remind": got.append}
    exec(compile(blocks("Alarms", "python")[1], "README.md", "exec"), names)
    [toml] = blocks("Alarms", "toml")
    wake = Config.of(tomllib.loads(toml)).wake
    [signer] = load_signers(wake.secrets, {"BILLING_SECRET": secret}).values()
    now, body = int(time.time()), b'{"data": {"payload": {"order": 7}}}'

    def receive(id: str, signed: bytes) -> None:
        signature = signer.sign(id, now, signed)
        names["receive"](
            {"webhook-id": id, "webhook-timestamp": str(now), "webhook-signature": signature}, body
        )

    receive("1", body)
    receive("2", body)
    with pytest.raises(WebhookVerificationError):
        receive("1", b"{}")
    assert got == [{"order": 7}]


def test_the_settings_of_the_alarms_let_in_what_they_name() -> None:
    [toml] = blocks("Alarms", "toml")
    wake = Config.of(tomllib.loads(toml)).wake
    egress = Egress(ports=wake.ports, allow=wake.allow)
    egress.check(Target.of("https://hooks.internal:8443/"))
    egress.check(Target.of("https://10.1.2.3/"))
    with pytest.raises(TargetRefused):
        egress.check(Target.of("https://10.2.2.3/"))


async def test_the_example_of_messages_runs(dsn: str) -> None:
    [block] = blocks("E-mails and text messages", "python")
    async with Client.connect(dsn) as client:
        await run_block(block, client=client)
        kinds = {job.kind for job in (await client.list()).jobs}
    assert kinds == {"chronos.email", "chronos.sms"}


def test_the_settings_of_messages_are_settings() -> None:
    [toml] = blocks("E-mails and text messages", "toml")
    config = Config.of(tomllib.loads(toml))
    Email(config.email, environ={"SMTP_PASSWORD": "x"})
    HttpSmsProvider(config.sms, environ={"TWILIO_TOKEN": "x"})


COMMANDS = sorted(set(re.findall(r"^\$ chronos-runtime (.*?)(?:  +#.*)?$", README, re.MULTILINE)))


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_exists_with_its_options(line: str) -> None:
    command: Any = typer.main.get_command(cli)
    words = shlex.split(line)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\$ make (\S+)", README))))
def test_a_make_target_exists(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


async def test_the_function_in_sql_is_called_as_printed(
    dsn: str, connection: asyncpg.Connection
) -> None:
    [sql] = re.findall(r"```sql\n(.*?)```", README, re.DOTALL)
    [payload] = re.findall(r"enqueue chronos.db_function '(.*?)'", README)
    await connection.execute("create schema shop; create table shop.charges (order_id bigint)")
    await connection.execute(sql)
    config = Config(database=DatabaseConfig(dsn=dsn), exporter=ExporterConfig(port=0))
    stop = anyio.Event()
    async with Client.connect(dsn) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(Runtime(Chronos(), config).run, stop)
        job = await client.enqueue("chronos.db_function", msgspec.json.decode(payload))

        async def result() -> object:
            return (await client.get(job.id)).result

        assert await eventually(result) == {"charged": True}
        stop.set()
    assert await connection.fetchval("select order_id from shop.charges") == 7
