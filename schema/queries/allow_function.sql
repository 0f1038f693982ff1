-- Lets tasks call a function, or every function of a schema. $1 schema · $2 name, or null for all ·
-- $3 role, or null · $4 timeout_s, or null
-- Said again it takes the place of what was said before. Index: allowed_functions_once.
insert into chronos.allowed_functions as entry (schema_name, function_name, role, timeout_s)
values ($1, $2, $3, $4)
on conflict on constraint allowed_functions_once do update
set role = excluded.role, timeout_s = excluded.timeout_s
returning entry.schema_name
