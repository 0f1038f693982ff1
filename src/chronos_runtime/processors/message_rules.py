"""What goes for e-mails and text messages: for a worker with what sends them, for a client without.

A topic for each: a relay that is slow delays no text message and no wake, and each can be paused,
or limited by `executor.topic_concurrency`, on its own.
"""

from chronos_runtime.errors import TemporaryFailure
from chronos_runtime.handlers import Handler
from chronos_runtime.processor import Processor, Task
from chronos_runtime.processors.email_message import EMAIL_KIND, EmailMessage
from chronos_runtime.processors.rules import processor_rules
from chronos_runtime.processors.sms_message import SMS_KIND, SmsMessage


def email_rules(processor: Processor | None = None) -> Handler:
    """What goes for e-mails.

    >>> email_rules().topic
    'chronos.email'
    """
    return processor_rules(processor or _mail_elsewhere, EMAIL_KIND, topic=EMAIL_KIND)


def sms_rules(processor: Processor | None = None) -> Handler:
    """What goes for text messages.

    >>> sms_rules().topic
    'chronos.sms'
    """
    return processor_rules(processor or _text_elsewhere, SMS_KIND, topic=SMS_KIND)


async def _mail_elsewhere(task: Task, message: EmailMessage) -> None:  # noqa: ARG001
    raise TemporaryFailure("e-mails are sent by a worker that has an [email] host")


async def _text_elsewhere(task: Task, message: SmsMessage) -> None:  # noqa: ARG001
    raise TemporaryFailure("text messages are sent by a worker that has an [sms] url")
