"""From four sources to one config: defaults < TOML file < environment < flags.

Every value remembers where it came from, so that `chronos-runtime config` can say it and an
error can name it. A key nobody knows is refused, with the nearest one that exists: a setting
that is silently ignored is worse than none.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from chronos_runtime.config import Config
from chronos_runtime.errors import ConfigError

DEFAULT_FILE = Path("chronos.toml")
DSN = "database.dsn"
PREFIX = "CHRONOS_"

_NOT_SETTINGS = {"CHRONOS_CONFIG", "CHRONOS_LOG_FORMAT", "CHRONOS_LOG_LEVEL", "CHRONOS_PROCESSES"}
_TEST_PREFIX = "CHRONOS_TEST_"  # The test suite's own.

# What Kubernetes sets in every pod next to a service called `chronos` or `chronos-…`.
_SERVICE_NAME = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)")
_SERVICE_VALUE = re.compile(r"(tcp|udp|sctp)://")

Layer = dict[str, tuple[object, str]]
"""Dotted key → value and source."""


class Settings(msgspec.Struct, frozen=True):
    """The effective config, and where each of its values came from."""

    config: Config
    sources: dict[str, str]

    def walk(self) -> Iterator[tuple[str, object, str]]:
        """Every key with its value, secrets masked, and its source; in the config's order."""
        for key, value in flatten(self.config).items():
            shown = mask_dsn(str(value)) if key == DSN else value
            yield key, shown, self.sources.get(key, "default")


def load_settings(
    flags: Mapping[str, object], file: Path | None, environ: Mapping[str, str]
) -> Settings:
    """The settings of a command; flags that are None were not given."""
    given: Layer = _from_file(file)
    given |= _from_environment(environ)
    given |= {
        key: (_of_text(key, value), _flag_name(key))
        for key, value in flags.items()
        if value is not None
    }
    sources = {key: source for key, (_, source) in given.items()}
    try:
        config = Config.of(_nested(given), is_text=True)
    except ConfigError as error:
        raise _with_source(error, sources) from error
    return Settings(config, sources)


def flatten(section: msgspec.Struct, prefix: str = "") -> dict[str, object]:
    """The values of a config by dotted key."""
    values: dict[str, object] = {}
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, msgspec.Struct):
            values |= flatten(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values


_DEFAULTS = flatten(Config())
_SECTIONS = {key.partition(".")[0] for key in _DEFAULTS if "." in key}
_VARIABLES = {f"{PREFIX}{key.upper().replace('.', '__')}": key for key in _DEFAULTS}
_VARIABLES["CHRONOS_DSN"] = DSN
_FLAGS = {
    DSN: "--dsn",
    "executor.concurrency": "--concurrency",
    "executor.drain_s": "--drain-s",
    "exporter.port": "--metrics-port",
    "topics": "--topics",
}


def mask_dsn(dsn: str) -> str:
    """The DSN without its secrets; rather too much is masked than too little.

    >>> mask_dsn("postgresql://ada:se/cr@t@db.example:5432/app?sslpassword=x&sslmode=require")
    'postgresql://ada:***@db.example:5432/app?sslpassword=***&sslmode=require'
    """
    if not dsn:
        return ""
    if not re.match("postgres(ql)?://", dsn):
        return "***"  # Not an address we could take apart.
    masked = re.sub(r"://([^:/]*):.*@", r"://\1:***@", dsn, flags=re.DOTALL)
    if "@" not in masked:  # What stands in a port's place may be a password, wrongly written.
        masked = re.sub(r"://([^:/]*):(?!\d*([/?,]|$))[^?]*", r"://\1:***", masked)
    return re.sub(r"(?i)(password=)[^&\s]*", r"\1***", masked)


def _from_file(file: Path | None) -> Layer:
    if file is None:
        if not DEFAULT_FILE.is_file():
            return {}
        file = DEFAULT_FILE
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config: cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    return {key: (value, str(file)) for key, value in _leaves(tree, file)}


def _leaves(tree: dict[str, Any], file: Path) -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if name in _SECTIONS:
            if not isinstance(value, dict):
                raise ConfigError(f"{file}: {name} is a table; write [{name}] above its keys")
            for key, one in value.items():
                yield _known(f"{name}.{key}", file), one
        else:
            yield _known(name, file), value


def _known(key: str, file: Path) -> str:
    if key in _DEFAULTS:
        return key
    by_name = {known.rpartition(".")[2]: known for known in _DEFAULTS}
    near = _nearest(key, [*_DEFAULTS, *_SECTIONS])
    near = near or by_name.get(_nearest(key.rpartition(".")[2], by_name) or "")
    raise ConfigError(f"{file}: unknown key {key}{_hint(near)}")


def _from_environment(environ: Mapping[str, str]) -> Layer:
    layer: Layer = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or _is_not_ours(variable, value):
            continue
        key = _VARIABLES.get(variable)
        if key is None:
            known = {name.removeprefix(PREFIX) for name in {*_VARIABLES, *_NOT_SETTINGS}}
            near = _nearest(variable.removeprefix(PREFIX), known)
            hint = _hint(near and PREFIX + near)
            raise ConfigError(f"unknown environment variable {variable}{hint}")
        if not value.strip():
            continue  # Compose files and charts pass on what was never set as empty.
        if key in layer and layer[key][0] != _of_text(key, value):
            raise ConfigError(f"{layer[key][1]} and {variable} differ; give one of them")
        layer[key] = (_of_text(key, value), variable)
    return layer


def _is_not_ours(variable: str, value: str) -> bool:
    return (
        variable in _NOT_SETTINGS
        or variable.startswith(_TEST_PREFIX)
        or _SERVICE_NAME.fullmatch(variable) is not None
        or _SERVICE_VALUE.match(value) is not None
    )


def _of_text(key: str, value: object) -> object:
    """A list is written `a,b` and a table `a=1,b=2` where there is only text."""
    if not isinstance(value, str):
        return value
    default = _DEFAULTS[key]
    words = [word.strip() for word in value.split(",") if word.strip()]
    if isinstance(default, list):
        return words
    if isinstance(default, dict):
        pairs = [word.partition("=") for word in words]
        return {name.strip(): number.strip() for name, _, number in pairs}
    return value.strip()


def _nested(layer: Layer) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, (value, _) in layer.items():
        section, _, name = key.rpartition(".")
        (tree.setdefault(section, {}) if section else tree)[name] = value
    return tree


def _with_source(error: ConfigError, sources: Mapping[str, str]) -> ConfigError:
    key = re.split(r"[:\[]", str(error), maxsplit=1)[0]
    source = sources.get(key)
    return ConfigError(f"{error} (from {source})" if source else str(error))


def _flag_name(key: str) -> str:
    return _FLAGS[key]


def _nearest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)), None)


def _hint(near: str | None) -> str:
    return f"; did you mean {near}?" if near else "; `chronos-runtime config` lists all"
