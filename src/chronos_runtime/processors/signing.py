"""Signatures by which a receiver knows that a delivery is ours, by Standard Webhooks.

What is signed is `id.timestamp.body`, byte for byte as sent. A name may stand for several
secrets while they rotate: the delivery then carries a signature by each, and the receiver takes
whichever it knows. Secrets stay where the operator keeps them: the configuration refers to an
environment variable or a file, a payload names a secret by its name, and no error says more.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence

from chronos_runtime.errors import ConfigError
from chronos_runtime.processors.references import read_secret

SECRET_PREFIX = "whsec_"  # noqa: S105 - of every secret, none of them
KEY_MIN_BYTES, KEY_MAX_BYTES = 24, 64


class Signer:
    """Signs with every secret of one name.

    >>> signer = Signer([b"0123456789abcdef01234567"])
    >>> signer.sign("01980000", 1_700_000_000, b"{}")
    'v1,gthYYLiaRZoVgs1AauY6cez7lH/QB3dprcO9JxZBczc='
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[bytes]) -> None:
        assert keys
        self._keys = tuple(keys)

    def sign(self, id: str, timestamp: int, body: bytes) -> str:
        """The value of `webhook-signature`: one signature a secret, newest secret first."""
        signed = b"%s.%d.%s" % (id.encode(), timestamp, body)
        digests = (hmac.digest(key, signed, hashlib.sha256) for key in self._keys)
        return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def load_signers(
    references: Mapping[str, str | list[str]], environ: Mapping[str, str]
) -> dict[str, Signer]:
    """The signers of `[wake] secrets`, read once at start-up.

    >>> secret = "whsec_" + base64.b64encode(bytes(24)).decode()
    >>> sorted(load_signers({"billing": ["env:BILLING"]}, {"BILLING": secret}))
    ['billing']
    """
    return {
        name: Signer([_key(f"wake.secrets: {name!r}", one, environ) for one in listed(given)])
        for name, given in references.items()
    }


def listed(references: str | list[str]) -> list[str]:
    """A single reference may be written without brackets."""
    return [references] if isinstance(references, str) else references


def _key(where: str, reference: str, environ: Mapping[str, str]) -> bytes:
    text = read_secret(where, reference, environ)
    encoded = text.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(SECRET_PREFIX) or not KEY_MIN_BYTES <= len(key) <= KEY_MAX_BYTES:
        raise ConfigError(
            f"{where}: what {reference} holds is no secret; it must be {SECRET_PREFIX} and then"
            f" {KEY_MIN_BYTES} to {KEY_MAX_BYTES} random bytes in base64, as of"
            f' `echo "{SECRET_PREFIX}$(head -c 32 /dev/urandom | base64)"`'
        )
    return key
