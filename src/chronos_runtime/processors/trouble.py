"""Why something did not work, in words that can be kept: ours, or others' cleaned and cut."""

import re
import ssl
from collections.abc import Iterable

from chronos_runtime.logs import CONTROLS

SAID_MAX_CHARS = 200
_SPACE = re.compile(r"\s+")


def network_words(error: BaseException, otherwise: str) -> str:
    """Why there was no answer, in the words of TLS or of the operating system.

    >>> network_words(ConnectionRefusedError(111, "Connection refused"), "no connection")
    'Connection refused'
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not good: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"TLS failed: {cause.reason}"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return otherwise


def is_of_tls(error: BaseException | None) -> bool:
    """Whether it was TLS that failed, and not what carries it."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def said(text: str, secrets: Iterable[str] = ()) -> str:
    """What a server said: one line, cut, and without our secrets should it repeat them.

    >>> said("5.1.1 <bob>:\\r\\n  no\\x1b such user; hunter2", ["hunter2"])
    '5.1.1 <bob>: no such user; ***'
    """
    for secret in secrets:
        text = text.replace(secret, "***")
    line = _SPACE.sub(" ", CONTROLS.sub(" ", text)).strip()
    line = line.encode("utf-8", "replace").decode()
    return line if len(line) <= SAID_MAX_CHARS else f"{line[: SAID_MAX_CHARS - 1]}…"
