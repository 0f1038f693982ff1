-- Takes a permission back; others that cover the function stay. $1 schema · $2 name, or null for
-- what was said of the whole schema. Returns a row if there was one. Index: allowed_functions_once.
delete from chronos.allowed_functions as entry
where entry.schema_name = $1 and entry.function_name is not distinct from $2
returning entry.schema_name
