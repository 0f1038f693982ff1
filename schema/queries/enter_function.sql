-- Prepares a transaction for a SQL function of others. $1 search_path · $2 statement_timeout ·
-- $3 role, or null to keep it · $4 the task as JSON, for current_setting('chronos.task')
-- All of it lasts until the end of the call (resolve_function) or of the transaction. Returns what
-- to go back to, read before anything is set. The role comes last: it may do less than we. Locks
-- nothing.
with former as materialized (
    select
        current_setting('search_path') as search_path,
        current_setting('statement_timeout') as statement_timeout,
        current_setting('role') as role
)
select
    former.search_path,
    former.statement_timeout,
    former.role,
    set_config('search_path', $1, true),
    set_config('statement_timeout', $2, true),
    set_config('chronos.task', $4, true),
    set_config('role', coalesce($3, former.role), true)
from former
