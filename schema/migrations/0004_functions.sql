-- Which SQL functions tasks may call. Nothing is allowed by default; a row goes best into the
-- migration that creates its function:
--
--     insert into chronos.allowed_functions (schema_name, function_name) values ('shop', 'charge');
create table chronos.allowed_functions (
    schema_name   text        not null,
    function_name text,
    role          text,
    timeout_s     real,
    created_at    timestamptz not null default now(),
    constraint allowed_functions_once unique nulls not distinct (schema_name, function_name),
    constraint allowed_functions_schema_name
        check (schema_name collate "C" ~ '^[a-z_][a-z0-9_]{0,62}$'),
    constraint allowed_functions_function_name
        check (function_name collate "C" ~ '^[a-z_][a-z0-9_]{0,62}$'),
    -- The server's own functions read files and stop backends, pg_temp is anybody's, and ours move
    -- jobs: no row, by mistake or by somebody's hand, lets a task call them.
    constraint allowed_functions_reserved
        check (
            schema_name not in ('chronos', 'information_schema')
            and not starts_with(schema_name, 'pg_')
        ),
    -- 'none' would undo the role.
    constraint allowed_functions_role
        check (role not in ('', 'none') and octet_length(role) <= 63),
    constraint allowed_functions_timeout_s check (timeout_s between 0.001 and 86400)
);
comment on table chronos.allowed_functions is
    'The SQL functions that tasks may call: one by name, or all of a schema.';
comment on column chronos.allowed_functions.function_name is
    'null: every function of the schema. A row with a name goes before one without.';
comment on column chronos.allowed_functions.role is
    'The role to call it as (set local role); null: as the worker is logged in.';
comment on column chronos.allowed_functions.timeout_s is
    'Its statement_timeout; null: as the worker is configured.';
