"""The envelope: what every SQL function that tasks name must return.

    {"status": "succeeded", "payload": {…}}

Any other status says that it did not succeed, with a `reason` in words. Whether trying again could
help is for the function to say, too: `"is_permanent": true`. What is no envelope is a mistake in
the function, and none of what it wrote is kept.
"""

from typing import Annotated, Any

import msgspec

from chronos_runtime.errors import FunctionFailed, PermanentFailure
from chronos_runtime.failure import MESSAGE_MAX_CHARS, clean_text
from chronos_runtime.function_name import FunctionName

SUCCEEDED = "succeeded"


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What a SQL function said.

    >>> name = FunctionName("shop", "charge")
    >>> read_envelope(name, '{"status": "succeeded", "payload": {"cents": 7}}').payload
    {'cents': 7}
    """

    status: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    payload: dict[str, Any] | None = None
    reason: str | None = None
    is_permanent: bool = False

    @property
    def is_success(self) -> bool:
        """Whether the function did what it is for."""
        return self.status == SUCCEEDED

    def failure(self, name: FunctionName) -> FunctionFailed | PermanentFailure:
        """What its status means, where it did not.

        >>> Envelope(status="declined", reason="no funds").failure(FunctionName("shop", "charge"))
        FunctionFailed('shop.charge: declined: no funds')
        """
        assert not self.is_success
        words = f"{self.status}: {self.reason}" if self.reason else self.status
        text = clean_text(f"{name}: {words}", MESSAGE_MAX_CHARS)
        kind = PermanentFailure if self.is_permanent else FunctionFailed
        return kind(text, outcome="unsuccessful")


def read_envelope(name: FunctionName, text: str | None) -> Envelope:
    """The envelope in what a function returned, which may be anything.

    >>> read_envelope(FunctionName("shop", "charge"), '{"ok": true}')
    Traceback (most recent call last):
    ...
    chronos_runtime.errors.FunctionFailed: shop.charge returned no envelope: Object missing \
required field `status`; return {"status": "succeeded", "payload": {…}}
    """
    try:
        return _decode("null" if text is None else text)
    except msgspec.DecodeError as error:
        raise FunctionFailed(
            f"{name} returned no envelope: {error}; return"
            f' {{"status": "{SUCCEEDED}", "payload": {{…}}}}',
            outcome="malformed",
        ) from error


_decode = msgspec.json.Decoder(Envelope).decode
