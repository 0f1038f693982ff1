"""Text messages: `chronos.sms` gives a message to a provider, once an attempt.

What is logged names the job and the outcome, never a number or a word of the message.
"""

import logging
from typing import Protocol
from uuid import UUID

from chronos_runtime.errors import ProcessorFailure
from chronos_runtime.processor import Task
from chronos_runtime.processors.sms_message import SmsMessage

_log = logging.getLogger(__name__)


class SmsProvider(Protocol):
    """Whoever sends text messages. The id is the same in every attempt: a key for idempotency.

    >>> class Printer:
    ...     async def send(self, id: UUID, message: SmsMessage) -> object:
    ...         return {"printed": len(message.text)}
    ...     async def aclose(self) -> None: ...
    >>> provider: SmsProvider = Printer()
    """

    async def send(self, id: UUID, message: SmsMessage) -> object:
        """Send once: what the provider answered, or a failure raised (see `errors`)."""

    async def aclose(self) -> None:
        """Close what is open; a later message opens it again."""


class Sms:
    """A processor of text messages by some provider.

    >>> from chronos_runtime.processor_config import SmsConfig
    >>> from chronos_runtime.processors.sms_http import HttpSmsProvider
    >>> sms = Sms(HttpSmsProvider(SmsConfig(url="https://sms.example.org/send")))
    """

    def __init__(self, provider: SmsProvider) -> None:
        self._provider = provider

    async def __call__(self, task: Task, message: SmsMessage) -> object:
        """Send once: what the provider answered, or a failure that says whether to try again."""
        try:
            return await self._provider.send(task.id, message)
        except ProcessorFailure as failure:
            _log.warning(
                "text message not sent",
                extra={
                    "outcome": failure.outcome,
                    "job": str(task.id),
                    "attempt": task.attempt,
                },
            )
            raise

    async def aclose(self) -> None:
        """Close the provider's connections."""
        await self._provider.aclose()
