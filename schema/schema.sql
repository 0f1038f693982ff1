-- Generated from migrations/ by `make schema`; do not edit.

CREATE SCHEMA chronos;

CREATE TYPE chronos.job_state AS ENUM (
    'scheduled',
    'ready',
    'running',
    'succeeded',
    'dead',
    'cancelled',
    'failed'
);

CREATE FUNCTION chronos.drop_history_partitions(before timestamp with time zone) RETURNS SETOF text
    LANGUAGE plpgsql
    SET lock_timeout TO '200ms'
    AS $_$
declare
    partition_name text;
begin
    if not pg_try_advisory_xact_lock(hashtext('chronos.drop_history_partitions')) then
        return;
    end if;
    for partition_name in
        select child.relname::text
        from pg_catalog.pg_inherits as link
        join pg_catalog.pg_class as child on child.oid = link.inhrelid
        where link.inhparent = 'chronos.job_history'::regclass
          and child.relname ~ '^job_history_[0-9]{8}$'
          and (to_date(right(child.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC'
              <= before
        order by child.relname
    loop
        begin
            execute format('drop table chronos.%I', partition_name);
        exception
            when lock_not_available then
                return;
        end;
        return next partition_name;
    end loop;
end
$_$;

CREATE FUNCTION chronos.enqueue(kind text, payload jsonb DEFAULT '{}'::jsonb, topic text DEFAULT NULL::text, priority integer DEFAULT 5, delay_s double precision DEFAULT 0, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, max_attempts integer DEFAULT 5, timeout_s double precision DEFAULT NULL::double precision, unique_key text DEFAULT NULL::text, supervisor text DEFAULT NULL::text) RETURNS uuid
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    due_at timestamptz := coalesce(
        enqueue.run_at, statement_timestamp() + make_interval(secs => enqueue.delay_s)
    );
    queue text := coalesce(enqueue.topic, case
        when enqueue.kind in ('chronos.email', 'chronos.sms') then enqueue.kind
        when starts_with(enqueue.kind, 'chronos.') then 'chronos'
        else 'default'
    end);
    -- UUIDv7, which Postgres has of its own only since 18: 48 bits of clock, then version and noise.
    new_id uuid := encode(
        set_byte(
            overlay(
                uuid_send(gen_random_uuid())
                placing substr(
                    int8send((extract(epoch from clock_timestamp()) * 1000)::bigint), 3
                )
                from 1 for 6
            ),
            6,
            get_byte(uuid_send(gen_random_uuid()), 0) & 15 | 112
        ),
        'hex'
    )::uuid;
    found_id uuid;
begin
    -- Twice at most: the holder of the key may end between the insert and the look.
    for try in 1 .. 2 loop
        insert into chronos.jobs (
            id, topic, kind, priority, payload, state, run_at, enqueued_at, max_attempts,
            timeout_s, unique_key, supervisor
        )
        values (
            new_id, queue, enqueue.kind, enqueue.priority, enqueue.payload,
            case when due_at > statement_timestamp() then 'scheduled' else 'ready' end
                ::chronos.job_state,
            due_at, statement_timestamp(), enqueue.max_attempts, enqueue.timeout_s,
            enqueue.unique_key, enqueue.supervisor
        )
        on conflict do nothing
        returning id into found_id;
        if found_id is not null then
            if due_at <= statement_timestamp() then
                perform chronos.wake('chronos_ready', array[queue]);
            elsif due_at < statement_timestamp() + interval '15 seconds' then
                perform chronos.wake('chronos_due', array[queue]);
            end if;
            return found_id;
        end if;
        select job.id into found_id
        from chronos.jobs as job
        where job.unique_key = enqueue.unique_key;
        if found_id is not null then
            return found_id;
        end if;
    end loop;
    raise exception 'unique_key % is taken and let go of again and again', enqueue.unique_key
        using errcode = 'serialization_failure';
end
$$;

CREATE FUNCTION chronos.hand_over(job_id uuid, job_topic text, job_kind text, job_priority smallint, job_payload jsonb, job_max_attempts integer, job_timeout_s real, job_supervisor text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
    chosen chronos.offers;
begin
    if pg_catalog.has_table_privilege('chronos.offers', 'delete') then
        select offer.* into chosen
        from chronos.offers as offer
        where offer.number > (
              select latest.last_value - 200 from chronos.offer_number as latest
          )
          and job_topic = any (offer.topics)
          and job_kind = any (offer.kinds)
          -- Whoever made the offer holds this lock; who gets it knows that he is gone.
          and not pg_catalog.pg_try_advisory_xact_lock_shared(offer.presence)
          and not exists (
              select from chronos.topics as gate
              where gate.name in (job_topic, '*') and gate.paused
          )
        order by offer.number
        limit 1
        for update skip locked;
    end if;
    if chosen.token is null then
        perform pg_catalog.pg_notify('chronos_ready', job_topic);
        return false;
    end if;
    delete from chronos.offers as offer where offer.number = chosen.number;
    insert into chronos.jobs (
        id, topic, kind, priority, payload, max_attempts, timeout_s, supervisor,
        attempt, lease_token, lease_until
    )
    values (
        job_id, job_topic, job_kind, job_priority, job_payload, job_max_attempts, job_timeout_s,
        job_supervisor, 1, chosen.token, now() + make_interval(secs => chosen.lease_s)
    );
    insert into chronos.claims (token, look_at, ids)
    values (chosen.token, now() + make_interval(secs => chosen.lease_s), array[job_id]);
    perform pg_catalog.pg_notify('chronos_handed_' || chosen.presence, chosen.token || ' ' || job_id);
    return true;
end
$$;

CREATE FUNCTION chronos.has_live_fire(schedule_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
    return exists (
        select from chronos.jobs as job where job.schedule_id = has_live_fire.schedule_id
    );
end
$$;

CREATE FUNCTION chronos.make_history_partition(day date) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '1s'
    AS $$
declare
    partition_name text := 'job_history_' || to_char(day, 'YYYYMMDD');
    day_start timestamptz := day::timestamp at time zone 'UTC';
    day_end timestamptz := (day + 1)::timestamp at time zone 'UTC';
begin
    perform pg_advisory_xact_lock(hashtext('chronos.make_history_partition'));
    -- Read, not to_regclass: its cache may predate the partition that another session made
    -- while this one waited for the lock.
    if exists (
        select from pg_catalog.pg_class as class
        where class.relnamespace = 'chronos'::regnamespace and class.relname = partition_name
    ) then
        return false;
    end if;
    if exists (
        select from chronos.job_history_default
        where finished_at >= day_start and finished_at < day_end
    ) then
        return false;
    end if;
    execute format(
        'create table chronos.%I (like chronos.job_history including all)', partition_name
    );
    execute format(
        'alter table chronos.job_history attach partition chronos.%I for values from (%L) to (%L)',
        partition_name, day_start, day_end
    );
    return true;
exception
    when lock_not_available then
        return false;
end
$$;

CREATE FUNCTION chronos.note_fires(ids uuid[], occurrences timestamp with time zone[], outcomes text[], errors jsonb[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    noted_ids uuid[];
    first_outcomes text[];
    last_outcomes text[];
    last_errors text[];
    successes boolean[];
    failures bigint[];  -- Since the last success among these, or in all.
begin
    select
        array_agg(noted.id order by noted.id),
        array_agg(noted.first_outcome order by noted.id),
        array_agg(noted.last_outcome order by noted.id),
        array_agg(noted.last_error order by noted.id),
        array_agg(noted.has_success order by noted.id),
        array_agg(noted.failures order by noted.id)
    into noted_ids, first_outcomes, last_outcomes, last_errors, successes, failures
    from (
        select
            fire.id,
            (array_agg(fire.outcome order by fire.occurrence))[1] as first_outcome,
            (array_agg(fire.outcome order by fire.occurrence desc))[1] as last_outcome,
            (array_agg(fire.error order by fire.occurrence desc)
                filter (where fire.error is not null))[1] as last_error,
            bool_or(fire.outcome = 'succeeded') as has_success,
            count(*) filter (
                where fire.outcome in ('dead', 'failed') and fire.is_after_success
            ) as failures
        from (
            select
                given.id, given.occurrence, given.outcome,
                case when given.outcome <> 'succeeded' then nullif(left(concat_ws(
                    ': ', given.error ->> 'type', given.error ->> 'message'
                ), 500), '') end as error,
                coalesce(given.occurrence > max(given.occurrence)
                    filter (where given.outcome = 'succeeded')
                    over (partition by given.id), true) as is_after_success
            from unnest(ids, occurrences, outcomes, errors)
                as given (id, occurrence, outcome, error)
        ) as fire
        group by fire.id
    ) as noted;
    perform from chronos.schedules where id = any (noted_ids) order by id for update;
    update chronos.schedules as schedule
    set (
            last_outcome, last_ended_at, last_error, last_success_at, consecutive_failures,
            is_absent, absent_at, status, updated_at
        ) = (
            select
                last_outcomes[place], now(), coalesce(last_errors[place], schedule.last_error),
                case when successes[place] then now() else schedule.last_success_at end,
                case when successes[place] then 0 else schedule.consecutive_failures end
                    + failures[place],
                schedule.is_absent and not successes[place],
                case
                    when successes[place]
                        then now() + make_interval(secs => schedule.expect_success_within_s)
                    else schedule.absent_at
                end,
                case
                    when not schedule.is_alarm or schedule.status <> 'active'
                        or schedule.next_run_at is not null or schedule.queued_at is not null
                        then schedule.status
                    when schedule.once_at is null or first_outcomes[place] = 'succeeded'
                        then 'fired'
                    when first_outcomes[place] in ('dead', 'failed') then 'failed'
                    else 'cancelled'
                end,
                now()
            from (select width_bucket(schedule.id, noted_ids) as place) as found
        )
    where schedule.id = any (noted_ids);
    return cardinality(noted_ids);
end
$$;

CREATE FUNCTION chronos.push_error(errors jsonb, error jsonb) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN CASE WHEN (error IS NULL) THEN errors WHEN (jsonb_array_length(COALESCE(errors, '[]'::jsonb)) >= 10) THEN ((errors - 0) || jsonb_build_array((error || jsonb_build_object('at', now())))) ELSE (COALESCE(errors, '[]'::jsonb) || jsonb_build_array((error || jsonb_build_object('at', now())))) END;

CREATE FUNCTION chronos.tell_supervisors(ids uuid[], attempts integer[], supervisors text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    told bigint;
begin
    insert into chronos.jobs (id, topic, kind, payload, max_attempts)
    select
        encode(
            substr(uuid_send(failed.id), 1, 9)
            || substr(sha256(convert_to(failed.id || '/' || failed.attempt, 'UTF8')), 1, 7),
            'hex'
        )::uuid,
        'chronos', 'chronos.supervise.' || failed.supervisor,
        jsonb_build_object('task', failed.id), 20
    from unnest(ids, attempts, supervisors) as failed (id, attempt, supervisor)
    order by failed.id
    on conflict do nothing;
    get diagnostics told = row_count;
    perform chronos.wake('chronos_ready', array['chronos']);
    return told;
end
$$;

CREATE FUNCTION chronos.wake(channel text, topics text[]) RETURNS bigint
    LANGUAGE sql
    AS $$
    select count(pg_notify(channel, woken.topic))
    from (select distinct unnest(topics) as topic) as woken
    where exists (select from chronos.idle_marks as mark where mark.topic = woken.topic)
$$;

CREATE FUNCTION chronos.wake_schedulers(due_at timestamp with time zone) RETURNS bigint
    LANGUAGE sql
    AS $$
    select count(pg_notify('chronos_due', ''))
    where due_at < now() + interval '15 seconds'
      and exists (select from chronos.idle_marks)
$$;

CREATE TABLE chronos.job_history (
    id uuid NOT NULL,
    lease_token uuid,
    run_at timestamp with time zone NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    state chronos.job_state NOT NULL,
    attempt integer NOT NULL,
    max_attempts integer NOT NULL,
    timeout_s real,
    run_s real,
    priority smallint NOT NULL,
    topic text NOT NULL,
    kind text NOT NULL,
    unique_key text,
    payload jsonb NOT NULL,
    errors jsonb,
    result jsonb,
    schedule_id uuid,
    occurrence timestamp with time zone,
    supervisor text,
    retry_of uuid,
    lineage_id uuid,
    lineage_no integer
)
PARTITION BY RANGE (finished_at);

CREATE TABLE chronos.jobs (
    id uuid NOT NULL,
    lease_token uuid,
    seq bigint NOT NULL,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    enqueued_at timestamp with time zone DEFAULT now() NOT NULL,
    lease_until timestamp with time zone,
    state chronos.job_state DEFAULT 'ready'::chronos.job_state NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 5 NOT NULL,
    timeout_s real,
    priority smallint DEFAULT 5 NOT NULL,
    cancel_requested boolean DEFAULT false NOT NULL,
    topic text DEFAULT 'default'::text NOT NULL,
    kind text NOT NULL,
    unique_key text,
    payload jsonb DEFAULT 'null'::jsonb NOT NULL,
    errors jsonb,
    schedule_id uuid,
    occurrence timestamp with time zone,
    supervisor text,
    retry_of uuid,
    lineage_id uuid,
    lineage_no integer,
    CONSTRAINT jobs_attempt_in_range CHECK ((((attempt >= 0) AND (attempt <= 1000000)) AND ((max_attempts >= 1) AND (max_attempts <= 1000000)))),
    CONSTRAINT jobs_errors_is_array CHECK ((jsonb_typeof(errors) = 'array'::text)),
    CONSTRAINT jobs_names_fit CHECK ((((octet_length(topic) >= 1) AND (octet_length(topic) <= 200)) AND (topic <> '*'::text) AND ((octet_length(kind) >= 1) AND (octet_length(kind) <= 200)) AND ((octet_length(unique_key) >= 1) AND (octet_length(unique_key) <= 1000)))),
    CONSTRAINT jobs_priority_in_range CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT jobs_run_at_is_finite CHECK (((run_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (run_at <= '9999-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT jobs_timeout_is_positive CHECK (((timeout_s > (0)::double precision) AND (timeout_s < 'Infinity'::real)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_insert_scale_factor='0.2', autovacuum_analyze_scale_factor='0.1', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY chronos.jobs ALTER COLUMN id SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN lease_token SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN seq SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN run_at SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN enqueued_at SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN lease_until SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN state SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN attempt SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN max_attempts SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN timeout_s SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN priority SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN cancel_requested SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN topic SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN kind SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN unique_key SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN payload SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN errors SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN schedule_id SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN occurrence SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN supervisor SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN retry_of SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN lineage_id SET STATISTICS 10;
ALTER TABLE ONLY chronos.jobs ALTER COLUMN lineage_no SET STATISTICS 10;

CREATE VIEW chronos.all_jobs AS
 SELECT jobs.id,
        CASE
            WHEN (jobs.lease_token IS NULL) THEN jobs.state
            ELSE 'running'::chronos.job_state
        END AS state,
    jobs.topic,
    jobs.kind,
    jobs.priority,
    jobs.attempt,
    jobs.max_attempts,
    jobs.timeout_s,
    jobs.unique_key,
    jobs.payload,
    NULL::jsonb AS result,
    jobs.errors,
    jobs.run_at,
    jobs.enqueued_at,
    jobs.lease_token,
    jobs.lease_until,
    jobs.cancel_requested,
    NULL::timestamp with time zone AS finished_at,
    NULL::real AS run_s,
    jobs.schedule_id,
    jobs.occurrence,
    jobs.supervisor,
    jobs.retry_of,
    jobs.lineage_id,
    jobs.lineage_no
   FROM chronos.jobs
UNION ALL
 SELECT job_history.id,
    job_history.state,
    job_history.topic,
    job_history.kind,
    job_history.priority,
    job_history.attempt,
    job_history.max_attempts,
    job_history.timeout_s,
    job_history.unique_key,
    job_history.payload,
    job_history.result,
    job_history.errors,
    job_history.run_at,
    job_history.enqueued_at,
    job_history.lease_token,
    NULL::timestamp with time zone AS lease_until,
    false AS cancel_requested,
    job_history.finished_at,
    job_history.run_s,
    job_history.schedule_id,
    job_history.occurrence,
    job_history.supervisor,
    job_history.retry_of,
    job_history.lineage_id,
    job_history.lineage_no
   FROM chronos.job_history;

CREATE TABLE chronos.allowed_functions (
    schema_name text NOT NULL,
    function_name text,
    role text,
    timeout_s real,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT allowed_functions_function_name CHECK (((function_name COLLATE "C") ~ '^[a-z_][a-z0-9_]{0,62}$'::text)),
    CONSTRAINT allowed_functions_reserved CHECK (((schema_name <> ALL (ARRAY['chronos'::text, 'information_schema'::text])) AND (NOT starts_with(schema_name, 'pg_'::text)))),
    CONSTRAINT allowed_functions_role CHECK (((role <> ALL (ARRAY[''::text, 'none'::text])) AND (octet_length(role) <= 63))),
    CONSTRAINT allowed_functions_schema_name CHECK (((schema_name COLLATE "C") ~ '^[a-z_][a-z0-9_]{0,62}$'::text)),
    CONSTRAINT allowed_functions_timeout_s CHECK (((timeout_s >= (0.001)::double precision) AND (timeout_s <= (86400)::double precision)))
);

COMMENT ON TABLE chronos.allowed_functions IS 'The SQL functions that tasks may call: one by name, or all of a schema.';

COMMENT ON COLUMN chronos.allowed_functions.function_name IS 'null: every function of the schema. A row with a name goes before one without.';

COMMENT ON COLUMN chronos.allowed_functions.role IS 'The role to call it as (set local role); null: as the worker is logged in.';

COMMENT ON COLUMN chronos.allowed_functions.timeout_s IS 'Its statement_timeout; null: as the worker is configured.';

CREATE TABLE chronos.claims (
    token uuid NOT NULL,
    look_at timestamp with time zone NOT NULL,
    ids uuid[] NOT NULL
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY chronos.claims ALTER COLUMN ids SET STORAGE EXTERNAL;

CREATE TABLE chronos.idle_marks (
    topic text NOT NULL,
    worker uuid NOT NULL,
    marked_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE chronos.job_history_default (
    id uuid CONSTRAINT job_history_id_not_null NOT NULL,
    lease_token uuid,
    run_at timestamp with time zone CONSTRAINT job_history_run_at_not_null NOT NULL,
    enqueued_at timestamp with time zone CONSTRAINT job_history_enqueued_at_not_null NOT NULL,
    finished_at timestamp with time zone DEFAULT now() CONSTRAINT job_history_finished_at_not_null NOT NULL,
    state chronos.job_state CONSTRAINT job_history_state_not_null NOT NULL,
    attempt integer CONSTRAINT job_history_attempt_not_null NOT NULL,
    max_attempts integer CONSTRAINT job_history_max_attempts_not_null NOT NULL,
    timeout_s real,
    run_s real,
    priority smallint CONSTRAINT job_history_priority_not_null NOT NULL,
    topic text CONSTRAINT job_history_topic_not_null NOT NULL,
    kind text CONSTRAINT job_history_kind_not_null NOT NULL,
    unique_key text,
    payload jsonb CONSTRAINT job_history_payload_not_null NOT NULL,
    errors jsonb,
    result jsonb,
    schedule_id uuid,
    occurrence timestamp with time zone,
    supervisor text,
    retry_of uuid,
    lineage_id uuid,
    lineage_no integer
);

CREATE SEQUENCE chronos.job_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE chronos.job_seq OWNED BY chronos.jobs.seq;

CREATE TABLE chronos.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE chronos.migrations IS 'One row per migration applied; the highest number is the schema version.';

CREATE TABLE chronos.offers (
    number bigint NOT NULL,
    worker uuid NOT NULL,
    token uuid NOT NULL,
    presence bigint NOT NULL,
    lease_s double precision NOT NULL,
    topics text[] NOT NULL,
    kinds text[] NOT NULL,
    offered_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

CREATE SEQUENCE chronos.offer_number
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE chronos.offer_number OWNED BY chronos.offers.number;

CREATE TABLE chronos.schedules (
    id uuid NOT NULL,
    name text NOT NULL,
    is_alarm boolean DEFAULT false NOT NULL,
    origin text,
    digest text,
    cron text,
    interval_s double precision,
    once_at timestamp with time zone,
    anchor_at timestamp with time zone,
    tz text DEFAULT 'UTC'::text NOT NULL,
    gap text DEFAULT 'shift'::text NOT NULL,
    fold text DEFAULT 'first'::text NOT NULL,
    starts_at timestamp with time zone,
    ends_at timestamp with time zone,
    jitter_s double precision DEFAULT 0 NOT NULL,
    catch_up text DEFAULT 'one'::text NOT NULL,
    catch_up_max integer DEFAULT 100 NOT NULL,
    late_s double precision DEFAULT 60 NOT NULL,
    overlap text DEFAULT 'allow'::text NOT NULL,
    kind text NOT NULL,
    topic text DEFAULT 'default'::text NOT NULL,
    priority smallint DEFAULT 5 NOT NULL,
    max_attempts integer DEFAULT 5 NOT NULL,
    timeout_s real,
    payload jsonb DEFAULT 'null'::jsonb NOT NULL,
    expect_success_within_s double precision,
    expect_url text,
    paused boolean DEFAULT false NOT NULL,
    status text DEFAULT 'active'::text NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    next_run_at timestamp with time zone,
    queued_at timestamp with time zone,
    broken_error text,
    skipped bigint DEFAULT 0 NOT NULL,
    last_occurrence timestamp with time zone,
    last_fire_at timestamp with time zone,
    last_job_id uuid,
    last_outcome text,
    last_error text,
    last_ended_at timestamp with time zone,
    last_success_at timestamp with time zone,
    consecutive_failures integer DEFAULT 0 NOT NULL,
    absent_at timestamp with time zone,
    is_absent boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    supervisor text,
    CONSTRAINT schedules_anchor_has_interval CHECK (((anchor_at IS NULL) OR (interval_s IS NOT NULL))),
    CONSTRAINT schedules_attempts_in_range CHECK (((max_attempts >= 1) AND (max_attempts <= 1000000))),
    CONSTRAINT schedules_bounds_hold CHECK (((jitter_s >= (0)::double precision) AND (jitter_s < 'Infinity'::double precision) AND (late_s >= (0)::double precision) AND (late_s < 'Infinity'::double precision) AND ((catch_up_max >= 1) AND (catch_up_max <= 1000)) AND (starts_at <= ends_at) AND (expect_success_within_s > (0)::double precision) AND (expect_success_within_s < 'Infinity'::double precision))),
    CONSTRAINT schedules_broken_says_why CHECK (((status = 'broken'::text) = (broken_error IS NOT NULL))),
    CONSTRAINT schedules_cursor_is_finite CHECK (((next_run_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (next_run_at <= '9999-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedules_ended_is_at_rest CHECK (((status = 'active'::text) OR ((next_run_at IS NULL) AND (queued_at IS NULL)))),
    CONSTRAINT schedules_has_one_timing CHECK ((num_nonnulls(cron, interval_s, once_at) = 1)),
    CONSTRAINT schedules_interval_is_positive CHECK (((interval_s > (0)::double precision) AND (interval_s < 'Infinity'::double precision))),
    CONSTRAINT schedules_names_fit CHECK ((((octet_length(name) >= 1) AND (octet_length(name) <= 200)) AND ((octet_length(origin) >= 1) AND (octet_length(origin) <= 200)) AND ((octet_length(topic) >= 1) AND (octet_length(topic) <= 200)) AND (topic <> '*'::text) AND ((octet_length(kind) >= 1) AND (octet_length(kind) <= 200)))),
    CONSTRAINT schedules_priority_in_range CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT schedules_rules_are_known CHECK (((gap = ANY (ARRAY['shift'::text, 'skip'::text])) AND (fold = ANY (ARRAY['first'::text, 'both'::text])) AND (catch_up = ANY (ARRAY['one'::text, 'all'::text, 'none'::text])) AND (overlap = ANY (ARRAY['allow'::text, 'skip'::text, 'queue'::text])))),
    CONSTRAINT schedules_status_is_known CHECK (((status = ANY (ARRAY['active'::text, 'broken'::text])) OR ((status = 'finished'::text) AND (NOT is_alarm)) OR ((status = ANY (ARRAY['fired'::text, 'failed'::text, 'cancelled'::text])) AND is_alarm))),
    CONSTRAINT schedules_timeout_is_positive CHECK (((timeout_s > (0)::double precision) AND (timeout_s < 'Infinity'::real)))
)
WITH (fillfactor='70');

CREATE TABLE chronos.topics (
    name text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT topics_name_check CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 200)))
);

CREATE TABLE chronos.workers (
    id uuid NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    topics text[] NOT NULL,
    kinds text[] NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE ONLY chronos.job_history ATTACH PARTITION chronos.job_history_default DEFAULT;

ALTER TABLE ONLY chronos.jobs ALTER COLUMN seq SET DEFAULT nextval('chronos.job_seq'::regclass);

ALTER TABLE ONLY chronos.offers ALTER COLUMN number SET DEFAULT nextval('chronos.offer_number'::regclass);

ALTER TABLE ONLY chronos.allowed_functions
    ADD CONSTRAINT allowed_functions_once UNIQUE NULLS NOT DISTINCT (schema_name, function_name);

ALTER TABLE ONLY chronos.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (token);

ALTER TABLE ONLY chronos.idle_marks
    ADD CONSTRAINT idle_marks_pkey PRIMARY KEY (topic, worker);

ALTER TABLE chronos.job_history
    ADD CONSTRAINT job_history_state_is_final CHECK ((state <> ALL (ARRAY['scheduled'::chronos.job_state, 'ready'::chronos.job_state, 'running'::chronos.job_state]))) NOT VALID;

ALTER TABLE chronos.jobs
    ADD CONSTRAINT jobs_lease_is_whole CHECK ((((lease_token IS NULL) = (lease_until IS NULL)) AND ((lease_token IS NULL) OR (state = 'ready'::chronos.job_state)))) NOT VALID;

ALTER TABLE chronos.jobs
    ADD CONSTRAINT jobs_lineage_is_whole CHECK (((retry_of IS NULL) OR ((supervisor IS NOT NULL) AND (lineage_id IS NOT NULL) AND (lineage_no >= 2)))) NOT VALID;

ALTER TABLE ONLY chronos.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE chronos.jobs
    ADD CONSTRAINT jobs_state_waits CHECK ((state = ANY (ARRAY['scheduled'::chronos.job_state, 'ready'::chronos.job_state]))) NOT VALID;

ALTER TABLE chronos.jobs
    ADD CONSTRAINT jobs_supervisor_fits CHECK ((octet_length(supervisor) <= 180)) NOT VALID;

ALTER TABLE ONLY chronos.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY chronos.offers
    ADD CONSTRAINT offers_pkey PRIMARY KEY (number);

ALTER TABLE ONLY chronos.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (id);

ALTER TABLE chronos.schedules
    ADD CONSTRAINT schedules_supervisor_fits CHECK ((octet_length(supervisor) <= 180)) NOT VALID;

ALTER TABLE ONLY chronos.topics
    ADD CONSTRAINT topics_pkey PRIMARY KEY (name);

ALTER TABLE ONLY chronos.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX job_history_id ON ONLY chronos.job_history USING btree (id);

CREATE INDEX job_history_default_id_idx ON chronos.job_history_default USING btree (id);

CREATE INDEX job_history_not_succeeded ON ONLY chronos.job_history USING btree (id) WHERE (state <> 'succeeded'::chronos.job_state);

CREATE INDEX job_history_default_id_idx1 ON chronos.job_history_default USING btree (id) WHERE (state <> 'succeeded'::chronos.job_state);

CREATE INDEX job_history_lineage ON ONLY chronos.job_history USING btree (lineage_id) WHERE (lineage_id IS NOT NULL);

CREATE INDEX job_history_default_lineage_id_idx ON chronos.job_history_default USING btree (lineage_id) WHERE (lineage_id IS NOT NULL);

CREATE INDEX job_history_schedule ON ONLY chronos.job_history USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX job_history_default_schedule_id_finished_at_idx ON chronos.job_history_default USING btree (schedule_id, finished_at) WHERE (schedule_id IS NOT NULL);

CREATE INDEX jobs_lineage ON chronos.jobs USING btree (lineage_id) WHERE (lineage_id IS NOT NULL);

CREATE INDEX jobs_ready ON chronos.jobs USING btree (topic, priority, seq) WHERE (state = 'ready'::chronos.job_state);

CREATE INDEX jobs_schedule ON chronos.jobs USING btree (schedule_id) WHERE (schedule_id IS NOT NULL);

CREATE INDEX jobs_scheduled ON chronos.jobs USING btree (run_at) WHERE (state = 'scheduled'::chronos.job_state);

CREATE UNIQUE INDEX jobs_unique_key ON chronos.jobs USING btree (unique_key) WHERE (unique_key IS NOT NULL);

CREATE INDEX schedules_absent ON chronos.schedules USING btree (id) WHERE is_absent;

CREATE INDEX schedules_due ON chronos.schedules USING btree (next_run_at) WHERE ((status = 'active'::text) AND (NOT paused) AND (next_run_at IS NOT NULL));

CREATE INDEX schedules_ended ON chronos.schedules USING btree (id) WHERE ((status <> ALL (ARRAY['active'::text, 'broken'::text])) AND (origin IS NULL));

CREATE INDEX schedules_expected ON chronos.schedules USING btree (absent_at) WHERE ((status = 'active'::text) AND (NOT paused) AND (NOT is_absent) AND (absent_at IS NOT NULL));

CREATE UNIQUE INDEX schedules_living_name ON chronos.schedules USING btree (name) WHERE (status <> ALL (ARRAY['fired'::text, 'failed'::text, 'cancelled'::text]));

CREATE INDEX schedules_name ON chronos.schedules USING btree (name, id);

CREATE INDEX schedules_origin ON chronos.schedules USING btree (origin) WHERE (origin IS NOT NULL);

CREATE INDEX schedules_queued ON chronos.schedules USING btree (id) WHERE ((status = 'active'::text) AND (NOT paused) AND (queued_at IS NOT NULL));

ALTER INDEX chronos.job_history_id ATTACH PARTITION chronos.job_history_default_id_idx;

ALTER INDEX chronos.job_history_not_succeeded ATTACH PARTITION chronos.job_history_default_id_idx1;

ALTER INDEX chronos.job_history_lineage ATTACH PARTITION chronos.job_history_default_lineage_id_idx;

ALTER INDEX chronos.job_history_schedule ATTACH PARTITION chronos.job_history_default_schedule_id_finished_at_idx;
