"""The settings of what Chronos does by itself: one section for each built-in processor."""

from collections.abc import Mapping

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
                try:
                    checked_reference(reference)
                except InputError as error:
                    raise ConfigError(f"wake.secrets: {name!r}: {error}") from error


class FunctionsConfig(Section, frozen=True, kw_only=True):
    """How SQL functions that tasks name are called."""

    timeout_s: Seconds = 15.0
    """Of one call, unless its permission says otherwise; as `database.statement_s`."""
    resolve_s: Seconds = 60.0
    """How long a function is known before it is looked up again: a permission that was taken back
    ends within this time."""


def check_supervisors(supervisors: Mapping[str, str]) -> None:
    """Refuse names no task can bear, and functions none could call."""
    for name, function in supervisors.items():
        try:
            checked_supervisor(name or None)  # Here '' is no name.
            FunctionName.of(function, name)
        except InputError as error:
            raise ConfigError(f"supervisors: {error}") from error
