"""A relay, and the conversation with it: connections that are kept, and verdicts on its replies.

What blames the message (a 5xx to its sender, its recipients or its content) is final; what blames
the moment, the connection or our settings is tried again, a refused password included: mail must
not die of a typing error in a deploy. Once the content is on its way and no reply comes, nobody
knows: the verdict is `unconfirmed`, and the next attempt has the same Message-ID.

A mail that some recipients are refused for and others are not is sent: the others have it, and
to try again would send it to them again. Whom it did not reach stands in the answer. Who wants
each recipient tried on its own enqueues a task for each.
"""

import ssl
from typing import Literal

import aiosmtplib
import anyio
import msgspec
from aiosmtplib.errors import (
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPTimeoutError,
)

from chronos_runtime.errors import ConfigError
from chronos_runtime.processor_config import EmailConfig
from chronos_runtime.processors.mime import Envelope
from chronos_runtime.processors.trouble import is_of_tls, network_words, said

_CLOSE_S = 1.0
_CLOSING = 421  # The relay hangs up; whatever it was asked, the rest will not be heard.
_NOT_OF_THE_MESSAGE = (530, 534, 535, 538)  # It wants TLS or a password first: RFC 4954.

Stage = Literal["connecting", "securing", "authenticating", "addressing", "handing over"]
SmtpOutcome = Literal[
    "succeeded",
    "rejected",
    "deferred",
    "auth_failed",
    "tls_failed",
    "timeout",
    "unreachable",
    "unconfirmed",
    "invalid_answer",
]


class Refusal(msgspec.Struct, frozen=True):
    """A recipient that the relay did not take, and what it said."""

    address: str
    code: int
    said: str


class SmtpVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mail."""

    outcome: SmtpOutcome
    reason: str
    """In our words: for logs."""
    said: str = ""
    """The relay's, cleaned and cut: for the job's record."""
    refused: list[Refusal] = []

    @property
    def is_permanent(self) -> bool:
        """Whether the message itself is to blame."""
        return self.outcome == "rejected"


class Relay:
    """Hands mail to one relay, over connections that are kept a while for the next.

    >>> Relay(EmailConfig(host="mail.example.org"), "")  # doctest: +ELLIPSIS
    <...Relay object at ...>
    """

    def __init__(
        self, config: EmailConfig, password: str, *, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._config = config
        self._password = password
        self._ssl_context = ssl_context or _context(config.ca_file)
        self._idle: list[tuple[aiosmtplib.SMTP, float]] = []

    async def send(self, envelope: Envelope, hello: str) -> SmtpVerdict:
        """Hand a mail over; `hello` is the name we go by. Raises nothing but cancellation."""
        conversation = _Conversation(self, envelope, hello)
        try:
            with anyio.fail_after(self._config.timeout_s):
                return await conversation.run()
        except SMTPResponseException as error:
            return self._judge(conversation.stage, error.code, error.message)
        except (SMTPException, OSError) as error:  # A timeout is an OSError.
            return self._judge_silence(conversation.stage, error)

    async def aclose(self) -> None:
        """Say goodbye on the connections that are kept; a later mail opens a new one."""
        idle, self._idle = self._idle, []
        with anyio.move_on_after(_CLOSE_S):
            for client, _ in idle:
                try:
                    await client.quit(timeout=_CLOSE_S)
                except (SMTPException, OSError):
                    pass
        for client, _ in idle:
            client.close()

    async def take(self, conversation: "_Conversation") -> aiosmtplib.SMTP:
        """A connection that was kept and still answers, or a new one."""
        while self._idle:
            client, until = self._idle.pop()
            try:
                if client.is_connected and anyio.current_time() < until:
                    await client.rset(timeout=self._config.connect_s)
                    return client
            except (SMTPException, OSError):
                pass  # It hung up meanwhile, which is its right.
            client.close()
        return await self._dial(conversation)

    def keep(self, client: aiosmtplib.SMTP) -> None:
        """Have a connection back for the next mail."""
        if client.is_connected and len(self._idle) < self._config.connections_max:
            self._idle.append((client, anyio.current_time() + self._config.idle_s))
        else:
            client.close()

    def said(self, text: str) -> str:
        """What the relay said, without our password should it repeat it."""
        return said(text, [self._password] if self._password else [])

    async def _dial(self, conversation: "_Conversation") -> aiosmtplib.SMTP:
        config = self._config
        client = aiosmtplib.SMTP(
            hostname=config.host,
            port=config.port,
            local_hostname=conversation.hello,
            timeout=config.timeout_s,
            use_tls=config.tls == "tls",
            start_tls=False,
            tls_context=self._ssl_context,
        )
        is_ready = False
        try:
            await client.connect(timeout=config.connect_s)
            if config.tls == "starttls":
                conversation.stage = "securing"
                await client.starttls()
            if config.username:
                conversation.stage = "authenticating"
                await client.login(config.username, self._password)
            is_ready = True
        finally:
            if not is_ready:
                client.close()
        return client

    def _judge(self, stage: Stage, code: int, text: str) -> SmtpVerdict:
        reason = f"{code} while {stage}"
        if stage == "authenticating" or code in _NOT_OF_THE_MESSAGE:
            # Without its words: a server that has just been given a password may repeat it.
            return SmtpVerdict(outcome="auth_failed", reason=reason)
        if not 400 <= code < 600:
            is_sent = stage == "handing over"
            return SmtpVerdict(
                outcome="unconfirmed" if is_sent else "invalid_answer",
                reason=f"what it answered while {stage} is not SMTP",
            )
        if stage in ("connecting", "securing") or code < 500:
            return SmtpVerdict(outcome="deferred", reason=reason, said=self.said(text))
        return SmtpVerdict(outcome="rejected", reason=reason, said=self.said(text))

    def _judge_silence(self, stage: Stage, error: Exception) -> SmtpVerdict:
        """There was no reply, or none that could be gone on with."""
        if stage == "handing over":
            return SmtpVerdict(
                outcome="unconfirmed",
                reason="no reply to the content of the mail; it may have been sent",
            )
        if isinstance(error, TimeoutError | SMTPTimeoutError):
            config = self._config
            bound_s = config.connect_s if stage == "connecting" else config.timeout_s
            return SmtpVerdict(
                outcome="timeout", reason=f"no reply within {bound_s:g} s while {stage}"
            )
        words = network_words(error, "the connection broke")
        if is_of_tls(error):
            return SmtpVerdict(outcome="tls_failed", reason=words)
        if isinstance(error, OSError):  # A ConnectionError of the library's is one, too.
            return SmtpVerdict(outcome="unreachable", reason=f"{words} while {stage}")
        if stage == "securing":
            return SmtpVerdict(outcome="tls_failed", reason="it offers no STARTTLS")
        return SmtpVerdict(outcome="auth_failed", reason="it offers no AUTH that we know")


class _Conversation:
    """One mail from the first word to the last, and how far it came."""

    def __init__(self, relay: Relay, envelope: Envelope, hello: str) -> None:
        self.stage: Stage = "connecting"
        self.hello = hello
        self._relay = relay
        self._envelope = envelope

    async def run(self) -> SmtpVerdict:
        client = await self._relay.take(self)
        is_whole = False
        try:
            verdict = await self._hand_over(client)
            is_whole = True
            return verdict
        except SMTPResponseException as error:
            # It said no, and is ready for another; unless what it said was no reply at all.
            is_whole = 400 <= error.code < 600
            raise
        finally:
            if is_whole:
                self._relay.keep(client)
            else:
                client.close()

    async def _hand_over(self, client: aiosmtplib.SMTP) -> SmtpVerdict:
        envelope = self._envelope
        self.stage = "addressing"
        options = [f"SIZE={len(envelope.data)}"] if client.supports_extension("size") else []
        await client.mail(envelope.sender, options=options)
        refused: list[Refusal] = []
        for address in envelope.recipients:
            try:
                await client.rcpt(address)
            except SMTPRecipientRefused as error:
                if error.code == _CLOSING or not 400 <= error.code < 600:
                    raise
                refused.append(Refusal(address, error.code, self._relay.said(error.message)))
        if len(refused) == len(envelope.recipients):
            return _all_refused(refused)
        self.stage = "handing over"
        reply = await client.data(envelope.data)
        return SmtpVerdict(
            outcome="succeeded",
            reason=f"{reply.code}",
            said=self._relay.said(reply.message),
            refused=refused,
        )


def _all_refused(refused: list[Refusal]) -> SmtpVerdict:
    """Nobody gets it. If one of them might later, later it is: then the rest is asked again."""
    hopeful = [one for one in refused if one.code < 500 or one.code in _NOT_OF_THE_MESSAGE]
    one = (hopeful or refused)[0]
    return SmtpVerdict(
        outcome="deferred" if hopeful else "rejected",
        reason=f"{one.code} to {'its recipient' if len(refused) == 1 else 'all its recipients'}",
        said=one.said,
        refused=refused,
    )


def _context(ca_file: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"email.ca_file: cannot be read: {error.strerror or error}") from None
    return context
