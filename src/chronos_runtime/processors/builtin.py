"""What runs the kinds of our own in a worker, and the processors of its app.

A kind of our own has its rules in `builtin_rules.py`, where clients find them, and its processor
here: one line in `Builtins.handlers`, and one in `aclose` if it keeps connections.
"""

from collections.abc import Mapping

from chronos_runtime.config import Config
from chronos_runtime.handlers import Handler
from chronos_runtime.metrics import Metrics
from chronos_runtime.processors.db_function import DbFunction
from chronos_runtime.processors.email import Email
from chronos_runtime.processors.function_payload import function_rules
from chronos_runtime.processors.functions import Functions, FunctionStore
from chronos_runtime.processors.message_rules import email_rules, sms_rules
from chronos_runtime.processors.rules import running
from chronos_runtime.processors.sms import Sms
from chronos_runtime.processors.sms_http import HttpSmsProvider
from chronos_runtime.processors.supervise import Records, Supervise
from chronos_runtime.processors.wake import Gone, Wake, wake_handler
from chronos_runtime.supervision import SupervisorRule


class Builtins:
    """The processors of one worker, closed with it."""

    def __init__(
        self,
        config: Config,
        store: FunctionStore,
        metrics: Metrics,
        *,
        gone: Gone | None = None,
    ) -> None:
        self._metrics = metrics
        self._supervisors = config.supervisors
        self._functions = Functions(config.functions, store)
        self._wake = Wake(config.wake, metrics, gone=gone)
        self._db_function = DbFunction(self._functions, metrics.processors)
        # Without settings there is no processor, and this worker claims no jobs of the kind.
        self._email = Email(config.email) if config.email.host else None
        self._sms = Sms(HttpSmsProvider(config.sms)) if config.sms.url else None

    def handlers(self) -> dict[str, Handler]:
        """What runs the kinds of our own."""
        ours = (
            wake_handler(self._wake),
            function_rules(self._db_function.__call__),
        )
        messages = []
        if self._email is not None:
            messages.append(email_rules(self._email))
        if self._sms is not None:
            messages.append(sms_rules(self._sms))
        return {handler.kind: handler for handler in ours} | self.running(
            {rules.kind: rules for rules in messages}
        )

    def running(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """The handlers of an app, its processors among them made to run."""
        return {
            kind: running(handler, self._functions, self._metrics)
            if handler.is_processor
            else handler
            for kind, handler in handlers.items()
        }

    def supervising(
        self,
        records: Records,
        rules: Mapping[str, SupervisorRule],
        handlers: Mapping[str, Handler],
    ) -> dict[str, Handler]:
        """What asks the supervisors that this process knows: of its app, and SQL functions."""
        return Supervise(
            records,
            self._functions,
            self._metrics.processors,
            rules=rules,
            sql=self._supervisors,
            handlers=handlers,
        ).handlers()

    async def aclose(self) -> None:
        """Close the connections; what comes later opens new ones."""
        for processor in (self._wake, self._email, self._sms):
            if processor is not None:
                await processor.aclose()
