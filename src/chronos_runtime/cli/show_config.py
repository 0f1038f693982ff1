"""`chronos-runtime config`: the effective settings, and where each came from."""

import os

import msgspec
from rich.text import Text

from chronos_runtime.cli.options import ConfigFile, Dsn, Json
from chronos_runtime.cli.output import clean, print_json, print_line
from chronos_runtime.cli.settings import DSN, Settings, load_settings


def config(*, dsn: Dsn = None, config: ConfigFile = None, json: Json = False) -> None:
    """Print the effective settings as TOML, each with its source; passwords are masked."""
    settings = load_settings({DSN: dsn}, config, os.environ)
    if json:
        print_json(_tree(settings))
        return
    section = ""
    for key, value, source in settings.walk():
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            print_line("")
            print_line(Text(f"[{section}]", style="bold"))
        line = Text(
            f"{name} = {_toml(value)}".ljust(44), style="" if source == "default" else "bold"
        )
        print_line(line.append(f" # {clean(source)}", style="dim"))


def _tree(settings: Settings) -> dict[str, object]:
    tree: dict[str, object] = {}
    for key, value, source in settings.walk():
        table, _, name = key.rpartition(".")
        place = tree.setdefault(table, {}) if table else tree
        assert isinstance(place, dict)
        place[name] = {"value": value, "source": source}
    return tree


def _toml(value: object) -> str:
    """JSON writes strings, numbers, booleans and lists as TOML does; tables it does not."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml(name)} = {_toml(one)}" for name, one in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return clean(msgspec.json.encode(value).decode())
