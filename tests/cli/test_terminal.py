"""On a terminal the output fits it and is coloured; in a pipe it is plain."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import COMMAND, environment

pytestmark = pytest.mark.slow

COLUMNS = 100
LONG = "a-kind-of-job-with-quite-a-long-name-that-somebody-made-up-on-a-long-afternoon"


def run(*arguments: str, dsn: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(CHRONOS_DSN=dsn, **extra),
        capture_output=True,
        text=True,
        check=False,
    )


def on_terminal(*arguments: str, dsn: str) -> str:
    """What a terminal of 100 columns gets to see."""
    ours, theirs = pty.openpty()
    environ = environment(CHRONOS_DSN=dsn, COLUMNS=str(COLUMNS), TERM="xterm-256color")
    with subprocess.Popen([*COMMAND, *arguments], env=environ, stdout=theirs, stderr=theirs):
        os.close(theirs)
        seen = b""
        while part := _read(ours):
            seen += part
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux says so when the last writer is gone.
        return b""


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_tables_fit_a_terminal_and_are_coloured(dsn: str) -> None:
    for kind in ("welcome", LONG):
        run("enqueue", kind, '{"name": "Ada"}', "--topic", "mail", dsn=dsn)
    for command in (["jobs", "list"], ["topics", "list"], ["config"]):
        shown = on_terminal(*command, dsn=dsn)
        assert "\x1b[" in shown
        if command != ["config"]:  # A DSN is shown whole, however long.
            assert max(map(len, plain(shown).splitlines())) <= COLUMNS
    id = re.findall(r"[0-9a-f-]{36}", plain(on_terminal("jobs", "list", dsn=dsn)))[0]
    assert '"name": "Ada"' in plain(on_terminal("jobs", "show", id, dsn=dsn))


def test_a_bulk_enqueue_shows_a_bar_and_takes_it_away(dsn: str) -> None:
    shown = on_terminal("enqueue", "welcome", "--count", "20000", dsn=dsn)
    assert "enqueuing" in shown
    assert plain(shown).splitlines()[-1].strip().startswith("enqueued 20,000 jobs in")


def test_a_pipe_gets_no_colour_and_may_be_closed_early(dsn: str) -> None:
    run("enqueue", "welcome", "--count", "1000", dsn=dsn)
    for form in ([], ["--json"]):
        _read_one_line(form, dsn)


def _read_one_line(form: list[str], dsn: str) -> None:
    listed = subprocess.Popen(
        [*COMMAND, "jobs", "list", "--limit", "1000", *form],
        env=environment(CHRONOS_DSN=dsn),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert listed.stdout is not None
    assert "\x1b" not in listed.stdout.readline()
    listed.stdout.close()
    assert listed.stderr is not None
    assert listed.stderr.read() == ""
    listed.stderr.close()
    assert listed.wait() == 0


def test_assertions_are_not_optional(tmp_path: Path) -> None:
    for arguments, extra in (["-O"], {}), ([], {"PYTHONOPTIMIZE": "1"}):
        ended = subprocess.run(
            [sys.executable, *arguments, "-m", "chronos_runtime.cli", "--version"],
            env=environment(**extra),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 2
        assert ended.stderr.startswith("error: python -O removes the assertions")
