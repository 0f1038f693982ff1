-- Enqueuing from SQL, for those whose logic lives here: a trigger, a function, psql. In the caller's
-- own transaction, so that the task and what it is about are committed together, or neither is:
--
--     select chronos.enqueue('chronos.email', '{"email": 7, …}', supervisor => 'email');
--
-- Returns the id of the task, or of the live one that holds its unique key. What the row must not
-- be, the constraints refuse; whether its payload fits the kind, only a worker can tell.
create function chronos.enqueue(
    kind text,
    payload jsonb default '{}',
    topic text default null,  -- null: the kind's own, if it is one of ours, else 'default'.
    priority integer default 5,
    delay_s double precision default 0,
    run_at timestamptz default null,  -- null: by the delay.
    max_attempts integer default 5,
    timeout_s double precision default null,
    unique_key text default null,
    supervisor text default null  -- null: the queue tries again; '': nobody is asked.
) returns uuid
language plpgsql
as $$
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
