-- Looks up the SQL function that a task names. $1 schema · $2 name
-- Returns one row: whether tasks may call it, and as whom; its oid, if there is a function of one
-- jsonb that returns one jsonb; the statement that calls it and the path it is called with, the names
-- in both quoted here; and the signatures of what else bears the name. What may not be called is not
-- looked for. The path finds what stands beside the function, whoever calls it, and looks into
-- pg_temp last, where anybody may put a table of any name.
-- The statement, of the argument and what enter_function returned, goes back to the latter itself,
-- the role first, which may do less than we: as a statement of its own that would be under whatever
-- timeout the function set.
-- Locks nothing. Index: allowed_functions_once, and those of the catalog.
select
    allowed.schema_name is not null as is_allowed,
    allowed.role,
    allowed.timeout_s,
    fitting.oid,
    format(
        'select called.returned,'
        ' pg_catalog.set_config(''role'', $4, true),'
        ' pg_catalog.set_config(''search_path'', $2, true),'
        ' pg_catalog.set_config(''statement_timeout'', $3, true)'
        ' from (select %I.%I($1::jsonb) as returned offset 0) as called',
        $1::text, $2::text
    ) as statement,
    format('pg_catalog, %I, public, pg_temp', $1::text) as search_path,
    case
        when allowed.schema_name is not null and fitting.oid is null then array(
            select
                format(
                    '(%s) returns %s',
                    pg_catalog.pg_get_function_identity_arguments(other.oid),
                    coalesce(pg_catalog.pg_get_function_result(other.oid), 'nothing')
                )
            from pg_catalog.pg_proc as other
            where other.proname = $2
              and other.pronamespace = (
                  select schema.oid from pg_catalog.pg_namespace as schema
                  where schema.nspname = $1
              )
            order by other.oid
            limit 5
        )
        else array[]::text[]
    end as others
from (select) as always
left join lateral (
    select entry.schema_name, entry.role, entry.timeout_s
    from chronos.allowed_functions as entry
    where entry.schema_name = $1
      and (entry.function_name is null or entry.function_name = $2)
      and entry.schema_name not in ('chronos', 'information_schema')
      and not starts_with(entry.schema_name, 'pg_')
    order by entry.function_name nulls last
    limit 1
) as allowed on true
left join lateral (
    select function.oid
    from pg_catalog.pg_proc as function
    join pg_catalog.pg_namespace as schema on schema.oid = function.pronamespace
    where schema.nspname = allowed.schema_name
      and function.proname = $2
      and function.prokind = 'f'
      and function.pronargs = 1
      and function.proargtypes[0] = 'pg_catalog.jsonb'::regtype
      and function.prorettype = 'pg_catalog.jsonb'::regtype
      and function.provariadic = 0
      and not function.proretset
) as fitting on true
