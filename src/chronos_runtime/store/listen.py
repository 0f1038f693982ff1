"""LISTEN on a connection of its own, which proves from time to time that it still hears.

A half-open socket looks healthy for ever. So the listener notifies itself and expects to hear
it; silence within the deadline ends the listening, and whoever called connects anew.
"""

import anyio

from chronos_runtime.errors import StoreUnavailable
from chronos_runtime.nudge import Nudge
from chronos_runtime.store import Heard
from chronos_runtime.store.faults import FAULTS, translate
from chronos_runtime.store.lane import Connect

CHANNELS = ("chronos_ready", "chronos_returned", "chronos_due", "chronos_cancel")
HANDED_CHANNEL = "chronos_handed"
PROBE_CHANNEL = "chronos_probe"


async def listen(
    connect: Connect, heard: Heard, *, presence: int, probe_s: float, probe_deadline_s: float
) -> None:
    """Deliver notifications until the connection dies, which raises StoreUnavailable."""
    try:
        connection = await connect()
    except FAULTS as error:
        raise translate(error, "listen") from error
    echoed = Nudge()
    lost = Nudge()
    # One probe channel per backend: a probe wakes nobody but its sender.
    probe_channel = f"{PROBE_CHANNEL}_{connection.get_server_pid()}"

    handed_channel = f"{HANDED_CHANNEL}_{presence}"

    def deliver(_: object, __: int, channel: str, payload: object) -> None:
        if channel == probe_channel:
            echoed()
        else:
            heard(HANDED_CHANNEL if channel == handed_channel else channel, str(payload))

    try:
        connection.add_termination_listener(lambda _: lost())
        with anyio.fail_after(probe_deadline_s):
            # For as long as this session lives: who finds it free hands nothing over to us.
            await connection.execute("select pg_advisory_lock($1)", presence)
            for channel in (*CHANNELS, handed_channel, probe_channel):
                await connection.add_listener(channel, deliver)
        heard("", "")  # Listening from here on: what came before may have been missed.
        while not await lost.wait(probe_s):
            with anyio.fail_after(probe_deadline_s):
                await connection.execute("select pg_notify($1, '')", probe_channel)
                await echoed.wait()
            heard("", "probe")
        raise StoreUnavailable("listen: the connection was closed")
    except FAULTS as error:
        raise StoreUnavailable(f"listen: {type(error).__name__}: {error}") from error
    finally:
        connection.terminate()
