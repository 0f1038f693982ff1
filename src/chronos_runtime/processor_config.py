"""The settings of what Chronos does by itself: one section for each built-in processor."""

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from chronos_runtime.attempts import checked_supervisor
from chronos_runtime.checks import checked_reference
from chronos_runtime.errors import ConfigError, InputError
from chronos_runtime.function_name import FunctionName
from chronos_runtime.setting import Count, Port, Seconds, Section


class WakeConfig(Section, frozen=True, kw_only=True):
    """How `chronos.wake` posts to URLs."""

    timeout_s: Seconds = 15.0
    """Of a whole delivery; Standard Webhooks asks senders to wait 15 to 30 s."""
    connect_s: Seconds = 5.0
    per_host: Count = 10
    """Deliveries to one host at once, in this process: no receiver asked to be load-tested."""
    busy_wait_s: Seconds = 1.0
    """How long a delivery waits for its turn at a host, in a slot that others could use; then it
    is snoozed."""
    connections_max: Count = 100
    response_max_bytes: Count = 65_536
    """Read so that the connection can be used again; nothing of it is kept."""
    retry_after_max_s: Seconds = 3_600.0
    """A receiver may ask for more time, but not for ever."""
    ports: list[Port] = []
    """Besides 443, and 80 for what is allowed."""
    allow: list[str] = []
    """What is not public and may be reached: hosts, host:port, networks (egress.py)."""
    secrets: dict[str, str | list[str]] = {}
    """By name, where to read signing secrets from: env:NAME or file:/path, the newest first."""

    def check(self) -> None:
        """Refuse a name without a secret, and a secret that is no reference."""
        for name, references in self.secrets.items():
            listed = [references] if isinstance(references, str) else references
            if not listed:
                raise ConfigError(
                    f"wake.secrets: {name!r} has no secret; give one, or leave it out"
                )
            for reference in listed:
                _check_reference(f"wake.secrets: {name!r}", reference)


class EmailConfig(Section, frozen=True, kw_only=True):
    """How `chronos.email` hands mail to a relay."""

    host: str = ""
    """Empty: this process sends no mail and claims none; it waits for one that does."""
    port: Port = 465
    """465 is for `tls`, 587 for `starttls`, 25 for `none`."""
    tls: Literal["tls", "starttls", "none"] = "tls"
    """From the first byte, as RFC 8314 asks: STARTTLS can be taken away by whoever is in between.
    With `starttls` it is demanded, never merely tried; `none` is for a relay on this machine."""
    ca_file: str = ""
    """Certificates to trust beside the system's, for a relay with an authority of its own."""
    username: str = ""
    password: str = ""
    """Where to read it from: env:NAME or file:/path."""
    sender: str = ""
    """The From of messages that have none."""
    domain: str = ""
    """What Message-IDs end with; empty: the domain of the sender."""
    connect_s: Seconds = 10.0
    timeout_s: Seconds = 60.0
    """Of a whole send. RFC 5321 would wait ten minutes for the last reply; a lease is kept
    meanwhile, but a slot is held, and a relay that slow is better asked again."""
    connections_max: Count = 10
    """To the relay at once, in this process: what most relays grant one client."""
    busy_wait_s: Seconds = 5.0
    """How long a mail waits for one of them, in a slot that others could use; then it is
    snoozed."""
    idle_s: Seconds = 20.0
    """How long a connection is kept for the next mail; relays hang up after 30 s or more."""
    recipients_max: Count = 100
    """RFC 5321 promises room for a hundred."""
    message_max_kb: Count = 10_240
    """With its attachments, encoded. Many receivers refuse more than 10 to 25 MB."""
    attachments_dir: str = ""
    """Attachments by `file` are read below it; empty: there are none."""
    ports: list[Port] = []
    """For attachments by `url`, as of `[wake]`."""
    allow: list[str] = []

    def check(self) -> None:
        """Refuse a password that is no reference, or that would travel in the clear."""
        if self.password:
            _check_reference("email.password", self.password)
        if bool(self.username) != bool(self.password):
            raise ConfigError("email.username: goes with email.password; give both or neither")
        if self.password and self.tls == "none" and self.host not in _LOOPBACK:
            raise ConfigError(
                'email.tls: "none" would send the password in the clear; use "tls" or "starttls"'
            )


class SmsConfig(Section, frozen=True, kw_only=True):
    """How `chronos.sms` asks a provider over HTTP."""

    url: str = ""
    """Empty: this process sends no messages and claims none; they wait for one that does."""
    method: str = "post"
    format: Literal["json", "form"] = "json"
    """How the body is written."""
    body: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"to": "{to}", "from": "{sender}", "text": "{text}"}
    )
    """Tables, lists and texts, in which {to}, {text}, {sender}, {id} and {secret.NAME} stand for
    their values; {{ and }} for braces."""
    headers: dict[str, str] = {}
    """The same, with {id} and {secret.NAME}."""
    username: str = ""
    password: str = ""
    """For HTTP Basic authentication; where to read it from: env:NAME or file:/path."""
    secrets: dict[str, str] = {}
    """By name, where to read what {secret.NAME} stands for."""
    idempotency_header: str = "idempotency-key"
    """Holds the id of the job, the same in every attempt; empty: not sent."""
    sender: str = ""
    """The sender of messages that have none."""
    success: list[int] = []
    """Statuses that mean sent; empty: any 2xx."""
    permanent: list[int] = msgspec.field(default_factory=lambda: [400, 413, 422])
    """Statuses that blame the message: trying again does not help. What blames the account or the
    settings (401, 402, 403, 404) is no fault of the message, so it is tried again."""
    id_path: str = ""
    """Where the answer's JSON has the provider's id: `sid`, `messages.0.message-id`."""
    status_path: str = ""
    """Where it has a status of its own, for providers that answer 200 whatever happened."""
    status_success: list[str] = []
    status_permanent: list[str] = []
    timeout_s: Seconds = 30.0
    connect_s: Seconds = 5.0
    connections_max: Count = 20
    response_max_bytes: Count = 65_536
    retry_after_max_s: Seconds = 3_600.0
    """A provider may ask for more time, but not for ever."""
    ports: list[Port] = []
    """As of `[wake]`."""
    allow: list[str] = []

    def check(self) -> None:
        """Refuse secrets written out, and settings that say half of something."""
        for name, reference in self.secrets.items():
            _check_reference(f"sms.secrets: {name!r}", reference)
        if self.password:
            _check_reference("sms.password", self.password)
        if bool(self.username) != bool(self.password):
            raise ConfigError("sms.username: goes with sms.password; give both or neither")
        if self.method.lower() not in ("post", "put"):
            raise ConfigError(
                'sms.method: must be "post" or "put"; a GET leaves the message in logs on its way'
            )
        if bool(self.status_path) != bool(self.status_success):
            raise ConfigError("sms.status_path: goes with sms.status_success; give both or neither")
        query = dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))
        for key, named in (("headers", self.headers), ("body", self.body), ("url", query)):
            _check_no_secret(f"sms.{key}", named)


class FunctionsConfig(Section, frozen=True, kw_only=True):
    """How SQL functions that tasks name are called."""

    timeout_s: Seconds = 15.0
    """Of one call, unless its permission says otherwise; as `database.statement_s`."""
    resolve_s: Seconds = 60.0
    """How long a function is known before it is looked up again: a permission that was taken back
    ends within this time."""


_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_CREDENTIAL = re.compile(r"auth|token|secret|passw|(?<!idempotency.)key\b", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{(secret\.|id\})")


def _check_reference(where: str, reference: str) -> None:
    try:
        checked_reference(reference)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from error


def _check_no_secret(where: str, named: dict[str, Any]) -> None:
    """Refuse what sounds like a secret and is written out: the config is shown to people."""
    for name, value in named.items():
        if isinstance(value, dict):
            _check_no_secret(where, value)
        elif _CREDENTIAL.search(name) and not _PLACEHOLDER.search(str(value)):
            raise ConfigError(
                f"{where}: {name!r} is written out; put it into sms.secrets by reference, and"
                " {secret.NAME} into the headers or the body"
            )


def check_supervisors(supervisors: Mapping[str, str]) -> None:
    """Refuse names no task can bear, and functions none could call."""
    for name, function in supervisors.items():
        try:
            checked_supervisor(name or None)  # Here '' is no name.
            FunctionName.of(function, name)
        except InputError as error:
            raise ConfigError(f"supervisors: {error}") from error
