"""An SMS provider over HTTP, described by `[sms]`: one request made from a template, one verdict.

It is dialled as a wake is: by an address that was judged, so a provider inside must be allowed.
What the provider writes is looked at for its own id and status, and no word of it is kept in an
error: it may repeat the number or the text.
"""

import base64
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import httpcore
import msgspec

from chronos_runtime.errors import ConfigError, InputError, PermanentFailure, TemporaryFailure
from chronos_runtime.processor_config import SmsConfig
from chronos_runtime.processors.courier import Answer, Courier
from chronos_runtime.processors.egress import Egress, Resolve, checked_url, resolve_name
from chronos_runtime.processors.references import read_secret
from chronos_runtime.processors.sms_message import SmsMessage, checked_sender
from chronos_runtime.processors.targets import Target
from chronos_runtime.processors.template import (
    check_template,
    encode_form,
    encode_json,
    names_in,
    render,
)
from chronos_runtime.processors.trouble import said
from chronos_runtime.processors.wake_payload import HTTP_HEADERS
from chronos_runtime.version import VERSION

_REST_S = 5.0  # For the body of an answer whose status is known.
_TYPES = {"json": "application/json", "form": "application/x-www-form-urlencoded"}
_OF_MESSAGE = ("to", "text", "sender", "id")
_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_OF_THE_ACCOUNT = (401, 402, 403)


class HttpSmsProvider:
    """Sends by the request that `[sms]` describes.

    >>> HttpSmsProvider(SmsConfig(url="https://sms.example.org/send"))  # doctest: +ELLIPSIS
    <...HttpSmsProvider object at ...>
    """

    def __init__(
        self,
        config: SmsConfig,
        *,
        environ: Mapping[str, str] = os.environ,
        resolve: Resolve = resolve_name,
        network: httpcore.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._egress = Egress(
            ports=config.ports, allow=config.allow, section="sms", resolve=resolve
        )
        self._courier = Courier(config, self._egress, network=network, ssl_context=ssl_context)
        self._secrets = {
            f"secret.{name}": read_secret(f"sms.secrets: {name!r}", reference, environ)
            for name, reference in config.secrets.items()
        }
        self._headers = self._checked_headers(environ)
        check_template("sms.body", config.body, [*_OF_MESSAGE, *self._secrets])
        if config.format == "form":
            _check_flat(config.body)
        try:
            self._target = Target.of(checked_url(config.url, self._egress, "sms.url"))
            if config.sender:
                checked_sender(config.sender, "sms.sender")
        except InputError as error:
            raise ConfigError(str(error)) from None

    async def send(self, id: UUID, message: SmsMessage) -> dict[str, Any]:
        """Ask the provider once; its id for the message, or a failure."""
        sender = message.sender or self._config.sender
        if not sender and "sender" in names_in(self._config.body):
            raise PermanentFailure(
                "sender: give the message one, or set sms.sender", outcome="invalid"
            )
        values = {"to": message.to, "text": message.text, "sender": sender, "id": str(id)}
        tree = render(self._config.body, values | self._secrets)
        body = encode_json(tree) if self._config.format == "json" else encode_form(tree)
        asked = await self._ask(render(self._headers, {"id": str(id)} | self._secrets), body)
        if isinstance(asked, str):
            raise TemporaryFailure(asked, outcome="refused")
        return self._decide(asked)

    async def aclose(self) -> None:
        """Close the connections; a later message opens new ones."""
        await self._courier.aclose()

    async def _ask(self, headers: Mapping[str, str], body: bytes) -> Answer | str:
        try:
            return await self._courier.ask(
                self._config.method.upper(),
                self._target,
                headers,
                body,
                timeout_s=self._config.timeout_s,
                rest_s=_REST_S,
            )
        except InputError as error:  # What the name of the provider leads to may not be reached.
            return str(error)

    def _decide(self, answer: Answer) -> dict[str, Any]:
        config, verdict, host = self._config, answer.verdict, self._target.host
        if answer.status is None:
            is_open = answer.was_connected
            note = "; it may have been sent" if is_open else ""
            raise TemporaryFailure(
                f"{host}: {verdict.reason}{note}",
                outcome="unconfirmed" if is_open else verdict.outcome,
            )
        reason = f"{host} answered {verdict.reason}"
        is_success = verdict.outcome == "succeeded"
        if config.success:
            is_success = answer.status in config.success
        if is_success:
            return self._accepted(answer)
        if answer.status in config.permanent:
            raise PermanentFailure(reason, outcome="rejected")
        outcome = "auth_failed" if answer.status in _OF_THE_ACCOUNT else verdict.outcome
        raise TemporaryFailure(reason, outcome=outcome, after_s=verdict.after_s)

    def _accepted(self, answer: Answer) -> dict[str, Any]:
        config = self._config
        tree: Any = None
        try:
            tree = msgspec.json.decode(answer.body or b"null")
        except msgspec.DecodeError:
            pass  # Its status says sent; an id that cannot be read is worth no second message.
        if config.status_path:
            status = _at(tree, config.status_path)
            if status not in config.status_success:
                host = self._target.host
                words = "no status" if status is None else f"status {self._said(status)[:50]!r}"
                reason = f"{host} answered {answer.verdict.reason} with {words}"
                if status in config.status_permanent:
                    raise PermanentFailure(reason, outcome="rejected")
                outcome = "unconfirmed" if status is None else "deferred"
                raise TemporaryFailure(reason, outcome=outcome)
        provider_id = _at(tree, config.id_path) if config.id_path else None
        return {
            "provider_id": None if provider_id is None else self._said(provider_id),
            "answer": answer.verdict.reason,
        }

    def _said(self, text: str) -> str:
        return said(text, self._secrets.values())

    def _checked_headers(self, environ: Mapping[str, str]) -> dict[str, str]:
        config = self._config
        check_template("sms.headers", config.headers, ["id", *self._secrets])
        given = dict(config.headers)
        if config.idempotency_header:
            given[config.idempotency_header] = "{id}"
        shown = dict.fromkeys([*self._secrets, "id"], "x")
        for name, value in given.items():
            try:
                HTTP_HEADERS.check({name: render(value, shown)})
            except InputError as error:
                raise ConfigError(f"sms.{error}") from None
            for used in names_in(value) & set(self._secrets):
                if not _PRINTABLE.fullmatch(self._secrets[used]):
                    raise ConfigError(
                        f"sms.secrets: {used.partition('.')[2]!r} is not printable ASCII, so it"
                        " cannot stand in a header"
                    )
        headers = {name.lower(): value for name, value in given.items()} | {
            "content-type": _TYPES[config.format],
            "accept": "application/json",
            "user-agent": f"chronos-runtime/{VERSION}",
        }
        if config.password:
            password = read_secret("sms.password", config.password, environ)
            pair = base64.b64encode(f"{config.username}:{password}".encode()).decode()
            headers["authorization"] = f"Basic {pair}"
        return headers


def _check_flat(body: Mapping[str, Any]) -> None:
    for name, value in body.items():
        members = value if isinstance(value, list) else [value]
        if any(isinstance(member, dict | list) for member in members):
            raise ConfigError(
                f'sms.body: {name!r} is a table, which a form cannot hold; use format = "json"'
            )


def _at(tree: Any, path: str) -> str | None:
    """What stands at a path like `messages.0.message-id`, as text, if anything does."""
    for part in path.split("."):
        if isinstance(tree, dict):
            tree = tree.get(part)
        elif isinstance(tree, list) and part.isdecimal() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return None
    return str(tree) if isinstance(tree, str | int) and not isinstance(tree, bool) else None
