"""The options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

Dsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        help="postgresql://user@host/database. Others on the machine can read your command line:"
        " with a password, rather set CHRONOS_DSN.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="CHRONOS_CONFIG",
        help="The TOML file; else ./chronos.toml where there is one.",
        show_default=False,
        show_envvar=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
AppPath = Annotated[
    str | None,
    typer.Option(
        "--module",
        metavar="MODULE:APP",
        help="Where the Chronos app is, for example shop.jobs:app.",
        show_default=False,
    ),
]
