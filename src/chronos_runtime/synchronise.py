"""Bring the database's schedules to what an app's code says, when a process starts.

What an operator changed stays until the code changes: an edit or a pause survives any restart,
because only a definition whose digest differs from the one last taken over is written. An app with
a name removes what its code no longer has; one without only tells of it, for it may be another
service's. A schedule made elsewhere, by hand or by another app, is never touched.
"""

import logging
from collections.abc import Mapping
from typing import Literal
from uuid import uuid4

import msgspec

from chronos_runtime.definitions import digest_of
from chronos_runtime.errors import InputError, StoreError, StoreUnavailable
from chronos_runtime.fires import first_run_at
from chronos_runtime.schedule import Definition, Schedule
from chronos_runtime.schedules import redefined
from chronos_runtime.store import Store

Verdict = Literal["created", "changed", "unchanged", "removed", "vanished", "refused", "failed"]

ORIGIN_UNNAMED = "(unnamed)"  # The origin of what the code of an app without a name made.
_TRIES = 10  # Other processes of the same app start at the same time.

_log = logging.getLogger(__name__)


async def synchronise(
    store: Store, app_name: str | None, definitions: Mapping[str, Definition]
) -> dict[str, Verdict]:
    """Create, change and remove what needs it; what became of each schedule, by name.

    >>> import anyio
    >>> from chronos_runtime import MemoryStore
    >>> nightly = {"nightly": Definition(kind="report", cron="0 3 * * *")}
    >>> anyio.run(synchronise, MemoryStore(), "shop", nightly)
    {'nightly': 'created'}
    """
    origin = app_name or ORIGIN_UNNAMED
    verdicts: dict[str, Verdict] = {}
    for name, definition in definitions.items():
        try:
            verdicts[name] = await _bring(store, origin, name, definition)
        except StoreUnavailable:
            raise
        except StoreError as error:  # One bad schedule must not stop the others, nor the process.
            _log.error("schedule cannot be stored: %s", error, extra={"schedule": name})
            verdicts[name] = "failed"
    made_by_code = await store.schedules.list_origin(origin)
    gone = [one for one in made_by_code if one.name not in definitions]
    if app_name is not None and gone:
        await store.schedules.remove_schedules([one.id for one in gone])
    for one in gone:
        verdicts[one.name] = "vanished" if app_name is None else "removed"
    for name, verdict in verdicts.items():
        _tell(name, verdict)
    return verdicts


async def _bring(store: Store, origin: str, name: str, definition: Definition) -> Verdict:
    digest = digest_of(definition)
    for _ in range(_TRIES):
        now, found = await store.schedules.get_schedules([name])
        living = [one for one in found if one.status not in ("fired", "failed", "cancelled")]
        if not living:
            fields = msgspec.structs.asdict(definition)
            next_run_at = first_run_at(definition, now)
            made = Schedule(
                id=uuid4(),
                name=name,
                origin=origin,
                digest=digest,
                next_run_at=next_run_at,
                status="finished" if next_run_at is None else "active",
                **fields,
            )
            if await store.schedules.add_schedules([made]):
                return "created"
            continue  # Somebody was faster: look what he made.
        [read] = living
        if read.origin != origin:
            return "refused"
        if read.digest == digest:
            return "unchanged"
        try:
            changed = redefined(read, definition, now)
        except InputError:  # Its time is over: nothing more to fire.
            changed = msgspec.structs.replace(
                read, status="finished", next_run_at=None, queued_at=None, broken_error=None
            )
        changed = msgspec.structs.replace(changed, digest=digest)
        if await store.schedules.edit_schedule(read, changed, expects_anew=True):
            return "changed"
    raise StoreUnavailable(f"edit_schedule: {name!r} kept changing")


def _tell(name: str, verdict: Verdict) -> None:
    extra = {"schedule": name, "synchronised": verdict}
    match verdict:
        case "refused":
            _log.error(
                "schedule not taken over: one of that name was made elsewhere; rename one of"
                " them, or remove that one",
                extra=extra,
            )
        case "vanished":
            _log.warning(
                "schedule is not in this app's code; give the app a name to have such removed,"
                " or remove it by hand",
                extra=extra,
            )
        case "failed":
            pass  # Told where it failed, with the error.
        case "unchanged":
            _log.debug("schedule unchanged", extra=extra)
        case _:
            _log.info("schedule %s", verdict, extra=extra)
