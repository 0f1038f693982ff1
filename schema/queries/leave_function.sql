-- Goes back to what enter_function found, whatever the function set meanwhile. $1 search_path ·
-- $2 statement_timeout · $3 role. The role comes first: it may do less than we. Locks nothing.
select
    pg_catalog.set_config('role', $3, true),
    pg_catalog.set_config('search_path', $1, true),
    pg_catalog.set_config('statement_timeout', $2, true)
