"""Attachments by reference: files below one directory, and URLs that the egress lets through.

A payload names them, so neither may lead where its author could not go. A path is walked one
part at a time from the directory, and no part may be a symbolic link: what was looked at is what
is opened, whatever is moved meanwhile. A URL goes by the same door as a wake.
"""

import errno
import os
import ssl
import stat
from collections.abc import Sequence

import anyio
import anyio.to_thread
import httpcore
import msgspec

from chronos_runtime.errors import InputError, PermanentFailure, TemporaryFailure
from chronos_runtime.processor_config import EmailConfig
from chronos_runtime.processors.courier import Answer, Courier
from chronos_runtime.processors.egress import Egress, Resolve, checked_url, resolve_name
from chronos_runtime.processors.email_message import Attachment
from chronos_runtime.processors.targets import Target
from chronos_runtime.version import VERSION

_PART = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CONNECTIONS_MAX = 20
_RETRY_AFTER_MAX_S = 3_600.0


class _Limits(msgspec.Struct, frozen=True, kw_only=True):
    connect_s: float
    connections_max: int
    response_max_bytes: int
    retry_after_max_s: float


class Attachments:
    """Fetches what messages refer to.

    >>> Attachments(EmailConfig(attachments_dir="/srv/mail"))  # doctest: +ELLIPSIS
    <...Attachments object at ...>
    """

    def __init__(
        self,
        config: EmailConfig,
        *,
        resolve: Resolve = resolve_name,
        network: httpcore.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config
        self._max_bytes = config.message_max_kb * 1_024
        self._egress = Egress(
            ports=config.ports, allow=config.allow, section="email", resolve=resolve
        )
        limits = _Limits(
            connect_s=config.connect_s,
            connections_max=_CONNECTIONS_MAX,
            response_max_bytes=self._max_bytes,
            retry_after_max_s=_RETRY_AFTER_MAX_S,
        )
        self._courier = Courier(limits, self._egress, network=network, ssl_context=ssl_context)

    async def fetch(self, wanted: Sequence[Attachment]) -> list[tuple[Attachment, bytes]]:
        """The bytes of each. A failure names an attachment by its place, not by its address."""
        found: list[tuple[Attachment, bytes]] = []
        with anyio.move_on_after(self._config.timeout_s) as scope:
            await self._fetch_into(found, wanted)
        if scope.cancelled_caught:
            raise _failed(
                f"attachment {len(found) + 1}: not there within {self._config.timeout_s:g} s, the"
                " bound of email.timeout_s for all of them"
            )
        return found

    async def aclose(self) -> None:
        """Close the connections; a later fetch opens new ones."""
        await self._courier.aclose()

    async def _fetch_into(
        self, found: list[tuple[Attachment, bytes]], wanted: Sequence[Attachment]
    ) -> None:
        left = self._max_bytes
        for number, attachment in enumerate(wanted, 1):
            where = f"attachment {number}"
            if attachment.file is not None:
                content = await self._from_file(where, attachment.file, left)
            else:
                content = await self._from_url(where, attachment.url or "")
            left -= len(content)
            if left < 0:
                raise PermanentFailure(
                    f"{where}: the attachments have more than {self._config.message_max_kb} kB,"
                    " the bound of email.message_max_kb",
                    outcome="too_large",
                )
            found.append((attachment, content))

    async def _from_file(self, where: str, path: str, left: int) -> bytes:
        folder = self._config.attachments_dir
        if not folder:  # Perhaps only here, and only until this process is restarted.
            raise _failed(f"{where}: a file, but email.attachments_dir is not set")
        # A file system that hangs keeps a thread, but no slot.
        content = await anyio.to_thread.run_sync(
            _read_below, folder, path, left + 1, abandon_on_cancel=True
        )
        if isinstance(content, OSError):
            if content.errno in (errno.ELOOP, errno.ENOTDIR, errno.EINVAL):
                raise PermanentFailure(
                    f"{where}: is no file, or a link leads to it; links are not followed",
                    outcome="attachment_refused",
                )
            raise _failed(f"{where}: cannot be read: {content.strerror}")
        return content

    async def _from_url(self, where: str, url: str) -> bytes:
        asked = await self._ask(url)
        if isinstance(asked, str):
            raise PermanentFailure(f"{where}: {asked}", outcome="attachment_refused")
        target, answer = asked
        verdict = answer.verdict
        if verdict.outcome != "succeeded":
            raise _failed(f"{where}: {target.host}: {verdict.reason}", verdict.after_s)
        if answer.body is None:
            raise _failed(
                f"{where}: {target.host} broke off, took longer than email.timeout_s, or sent more"
                " than email.message_max_kb"
            )
        return answer.body

    async def _ask(self, url: str) -> tuple[Target, Answer] | str:
        """What came from a URL, or why nothing may."""
        try:
            target = Target.of(checked_url(url, self._egress))
            answer = await self._courier.ask(
                "GET",
                target,
                {"user-agent": f"chronos-runtime/{VERSION}"},
                timeout_s=self._config.timeout_s,
                rest_s=self._config.timeout_s,
            )
        except InputError as error:  # Refused, here or when it was dialled.
            return str(error)
        return target, answer


def _failed(reason: str, after_s: float | None = None) -> TemporaryFailure:
    return TemporaryFailure(reason, outcome="attachment_failed", after_s=after_s)


def _read_below(folder: str, path: str, max_bytes: int) -> bytes | OSError:
    """What the file holds, up to `max_bytes`; no link on the way below the folder is followed."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *parents, name = path.split("/")
            for part in parents:
                inner = os.open(part, _PART | os.O_DIRECTORY, dir_fd=place)
                os.close(place)
                place = inner
            # Not blocking: a pipe would else wait for somebody who writes.
            file = os.open(name, _PART | os.O_NONBLOCK, dir_fd=place)
        finally:
            os.close(place)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            return OSError(errno.EINVAL, "not a file")
        with os.fdopen(file, "rb") as opened:
            return opened.read(max_bytes)
    except OSError as error:
        return error
