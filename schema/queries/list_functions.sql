-- Lists what tasks may call, and how many functions each permission covers right now: those of one
-- jsonb that return one jsonb. Locks nothing; reads the whole of a small table.
select
    entry.schema_name,
    entry.function_name,
    entry.role,
    entry.timeout_s,
    entry.created_at,
    (
        select count(*)
        from pg_catalog.pg_proc as function
        join pg_catalog.pg_namespace as schema on schema.oid = function.pronamespace
        where schema.nspname = entry.schema_name
          and function.proname = coalesce(entry.function_name, function.proname)
          and function.prokind = 'f'
          and function.pronargs = 1
          and function.proargtypes[0] = 'pg_catalog.jsonb'::regtype
          and function.prorettype = 'pg_catalog.jsonb'::regtype
          and function.provariadic = 0
          and not function.proretset
    ) as functions
from chronos.allowed_functions as entry
order by entry.schema_name, entry.function_name nulls first
