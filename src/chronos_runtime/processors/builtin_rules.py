"""The kinds of our own, which every worker serves and no app registers: what goes for their jobs.

What runs them stands in `builtin.py`; a client needs none of that.
"""

from collections.abc import Callable

from chronos_runtime.handlers import Handler
from chronos_runtime.processors.email_message import EMAIL_KIND
from chronos_runtime.processors.function_payload import FUNCTION_KIND, function_rules
from chronos_runtime.processors.message_rules import email_rules, sms_rules
from chronos_runtime.processors.sms_message import SMS_KIND
from chronos_runtime.processors.wake_payload import WAKE_KIND, wake_rules

_RULES: dict[str, Callable[[], Handler]] = {
    EMAIL_KIND: email_rules,
    FUNCTION_KIND: function_rules,
    SMS_KIND: sms_rules,
    WAKE_KIND: wake_rules,
}


def builtin_rules(kind: str) -> Handler | None:
    """What goes for a kind of our own.

    >>> builtin_rules("chronos.wake").topic, builtin_rules("greet")
    ('chronos', None)
    """
    rules = _RULES.get(kind)
    return None if rules is None else rules()
