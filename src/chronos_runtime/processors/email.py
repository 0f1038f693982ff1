"""E-mail: `chronos.email` hands a message to the relay of `[email]`, once an attempt.

At most `connections_max` are under way at once in a process; the rest wait a moment and are then
snoozed, which costs them no attempt. Attachments are fetched and the mail is written out within
that turn, so memory is bounded with it. What is logged names the relay and the job, never an
address, a subject or a word of the message.
"""

import logging
import os
import random
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from chronos_runtime.errors import ConfigError, InputError, PermanentFailure, TemporaryFailure
from chronos_runtime.job import Snooze
from chronos_runtime.processor import Task
from chronos_runtime.processor_config import EmailConfig
from chronos_runtime.processors.addresses import read_address
from chronos_runtime.processors.attachments import Attachments
from chronos_runtime.processors.email_message import EmailMessage
from chronos_runtime.processors.mailbox import Mailbox
from chronos_runtime.processors.mime import Envelope, build_envelope
from chronos_runtime.processors.references import read_secret
from chronos_runtime.processors.smtp import Relay, SmtpVerdict
from chronos_runtime.processors.targets import checked_host

_BUSY_S = 5.0  # A relay that is busy is tried again after so long, and up to twice that.
_NAMELESS = "[127.0.0.1]"  # What a client without a name says it is: RFC 5321, 4.1.4.

_log = logging.getLogger(__name__)


class Email:
    """Sends e-mail; one for a process, closed with it.

    >>> email = Email(EmailConfig(host="mail.example.org", sender="Shop <shop@example.org>"))
    >>> Email(EmailConfig(host="mail.example.org", sender="shop"))
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.ConfigError: email.sender: must be user@example.org or \
Name <user@example.org>, one address each, in ASCII
    """

    def __init__(
        self,
        config: EmailConfig,
        *,
        environ: Mapping[str, str] = os.environ,
        ssl_context: ssl.SSLContext | None = None,
        attachments: Attachments | None = None,
    ) -> None:
        self._config = config
        try:
            self._sender = Mailbox.of(config.sender, "email.sender") if config.sender else None
            if read_address(config.host) is None:
                checked_host(config.host, "email.host")
            self._domain = checked_host(config.domain, "email.domain") if config.domain else ""
        except InputError as error:
            raise ConfigError(str(error)) from None
        password = ""
        if config.password:
            password = read_secret("email.password", config.password, environ)
        self._relay = Relay(config, password, ssl_context=ssl_context)
        self._attachments = attachments or Attachments(config)
        self._turns: anyio.CapacityLimiter | None = None

    async def __call__(self, task: Task, message: EmailMessage) -> dict[str, Any] | Snooze:
        """Send once: what the relay answered, or a failure that says whether to try again."""
        if self._turns is None:
            self._turns = anyio.CapacityLimiter(self._config.connections_max)
        with anyio.move_on_after(self._config.busy_wait_s) as wait:
            await self._turns.acquire()
        if wait.cancelled_caught:
            return Snooze(_BUSY_S * random.uniform(1.0, 2.0))
        try:
            envelope = await self._envelope(task, message)
            hello = self._domain or (self._sender.domain if self._sender else _NAMELESS)
            verdict = await self._relay.send(envelope, hello)
        finally:
            self._turns.release()
        return self._decide(task, envelope, verdict)

    async def aclose(self) -> None:
        """Close the connections; a later mail opens new ones."""
        await self._relay.aclose()
        await self._attachments.aclose()

    async def _envelope(self, task: Task, message: EmailMessage) -> Envelope:
        sender = Mailbox.of(message.sender, "sender") if message.sender else self._sender
        if sender is None:
            raise PermanentFailure(
                "sender: give the message one, or set email.sender", outcome="invalid"
            )
        if len(message.recipients) > self._config.recipients_max:
            raise PermanentFailure(
                f"to: more than {self._config.recipients_max} recipients,"
                " the bound of email.recipients_max",
                outcome="invalid",
            )
        build = partial(
            build_envelope, task.id, message, sender=sender, domain=self._domain or sender.domain
        )
        if not message.attachments:
            envelope = build()
        else:  # Megabytes in base64 take long enough to be felt by whoever shares the loop.
            files = await self._attachments.fetch(message.attachments)
            envelope = await anyio.to_thread.run_sync(partial(build, files=files))
        if len(envelope.data) > self._config.message_max_kb * 1_024:
            raise PermanentFailure(
                f"the mail has {len(envelope.data) // 1_024} kB when written out, more than"
                f" {self._config.message_max_kb}, the bound of email.message_max_kb",
                outcome="too_large",
            )
        return envelope

    def _decide(self, task: Task, envelope: Envelope, verdict: SmtpVerdict) -> dict[str, Any]:
        if verdict.outcome == "succeeded":
            return {
                "message_id": envelope.message_id,
                "reply": f"{verdict.reason} {verdict.said}".strip(),
                "refused": msgspec.to_builtins(verdict.refused),
            }
        _log.warning(
            "mail not sent: %s",
            verdict.reason,
            extra={
                "host": self._config.host,
                "outcome": verdict.outcome,
                "job": str(task.id),
                "attempt": task.attempt,
            },
        )
        words = f"{self._config.host}: {verdict.reason}"
        reason = f"{words}: {verdict.said}" if verdict.said else words
        failure = PermanentFailure if verdict.is_permanent else TemporaryFailure
        raise failure(reason, outcome=verdict.outcome)
