"""Secrets by reference: the configuration says where one is, and only this module looks there."""

from collections.abc import Mapping
from pathlib import Path

from chronos_runtime.errors import ConfigError

_FILE_MAX_CHARS = 10_000  # More than any key or token; whatever is longer is another file.


def read_secret(where: str, reference: str, environ: Mapping[str, str]) -> str:
    """What a reference leads to, without the space around it. `where` names the setting.

    Read once, at start-up: a secret that is not there must stop a deploy and not a message.

    >>> read_secret("email.password", "env:SMTP_PASSWORD", {"SMTP_PASSWORD": "hunter2"})
    'hunter2'
    >>> read_secret("email.password", "env:SMTP_PASSWORD", {})
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.ConfigError: email.password is to be read from env:SMTP_PASSWORD, \
which is not set or empty
    """
    source, _, place = reference.partition(":")
    text = _from_file(where, place) if source == "file" else environ.get(place, "")
    if not text.strip():
        raise ConfigError(f"{where} is to be read from {reference}, which is not set or empty")
    return text.strip()


def _from_file(where: str, place: str) -> str:
    try:
        with Path(place).open(encoding="utf-8") as file:
            return file.read(_FILE_MAX_CHARS)
    except OSError as error:
        raise ConfigError(f"{where}: cannot read file:{place}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: file:{place} is not text") from None
