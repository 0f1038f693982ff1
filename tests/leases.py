"""Leases by hand, as claim_jobs leaves them, for tests that need no claimer."""

from collections.abc import Sequence
from uuid import UUID

from chronos_runtime.store.migrations import Connection

LEASE = """
    with leased as (
        update chronos.jobs
        set attempt = attempt + 1, lease_token = $2,
            lease_until = now() + make_interval(secs => $3)
        where id = any ($1::uuid[])
        returning id, lease_until
    )
    insert into chronos.claims (token, look_at, ids)
    select $2, min(lease_until), array_agg(id) from leased
    on conflict (token) do update
    set look_at = least(claims.look_at, excluded.look_at), ids = claims.ids || excluded.ids
"""


async def lease(connection: Connection, ids: Sequence[UUID], token: UUID, lease_s: float) -> None:
    """Lease these jobs under that token, in one claim; for less than nothing: already run out."""
    await connection.execute(LEASE, ids, token, lease_s)
