-- E-mails whose sending is decided by SQL alone. Facts are only ever inserted; what became of an
-- e-mail is a view of them.

create schema mail;

create table mail.email (
    id bigint generated always as identity primary key,
    recipient text not null,
    subject text not null,
    body text not null,
    asked_at timestamptz not null default now()
);

-- What happened, at most once for each task and attempt: a task that runs again after a crash has
-- the same pair, and `on conflict do nothing` lets its fact be.
create table mail.email_attempt_sent (
    task_id uuid not null,
    attempt integer not null,
    email_id bigint not null references mail.email,
    message_id text not null unique,
    recorded_at timestamptz not null default now(),
    primary key (task_id, attempt)
);

create table mail.email_attempt_failed (
    task_id uuid not null,
    attempt integer not null,
    email_id bigint not null references mail.email,
    outcome text not null,
    reason text not null,
    is_permanent boolean not null,
    recorded_at timestamptz not null default now(),
    primary key (task_id, attempt)
);

create table mail.email_attempt_decided (
    task_id uuid not null,
    attempt integer not null,
    email_id bigint not null references mail.email,
    decision text not null,
    reason text,
    recorded_at timestamptz not null default now(),
    primary key (task_id, attempt)
);

-- What a receiver sent back afterwards: the relay had taken it.
create table mail.email_bounced (
    message_id text primary key references mail.email_attempt_sent (message_id),
    reason text not null,
    recorded_at timestamptz not null default now()
);

-- One e-mail and its first task, in the transaction of whoever asks for it: both or neither.
create function mail.send(recipient text, subject text, body text) returns bigint
language plpgsql as $$
declare
    email_id bigint;
begin
    insert into mail.email (recipient, subject, body)
    values (send.recipient, send.subject, send.body)
    returning id into email_id;
    perform chronos.enqueue(
        'chronos.email',
        jsonb_build_object(
            'email', email_id,
            'before_handler', 'mail.before_handler',
            'success_handler', 'mail.success_handler',
            'error_handler', 'mail.error_handler'
        ),
        supervisor => 'email'
    );
    return email_id;
end
$$;

-- Builds the message. Whom a mail bounced from before gets none: people look at that first.
create function mail.before_handler(told jsonb) returns jsonb
language plpgsql as $$
declare
    email mail.email;
begin
    select * into strict email
    from mail.email as wanted
    where wanted.id = (told #>> '{payload,email}')::bigint;
    if exists (
        select
        from mail.email_bounced as bounced
        join mail.email_attempt_sent as sent using (message_id)
        join mail.email as earlier on earlier.id = sent.email_id
        where earlier.recipient = email.recipient
    ) then
        return jsonb_build_object(
            'status', 'blocked', 'reason', 'an earlier mail bounced', 'is_permanent', true
        );
    end if;
    return jsonb_build_object('status', 'succeeded', 'payload', jsonb_build_object(
        'to', email.recipient, 'subject', email.subject, 'text', email.body
    ));
end
$$;

-- Record the fact; the end of the task is committed with it.
create function mail.success_handler(told jsonb) returns jsonb
language plpgsql as $$
begin
    insert into mail.email_attempt_sent (task_id, attempt, email_id, message_id)
    values (
        (told #>> '{task,id}')::uuid, (told #>> '{task,attempt}')::integer,
        (told #>> '{payload,email}')::bigint, told #>> '{answer,message_id}'
    )
    on conflict do nothing;
    return '{"status": "succeeded"}';
end
$$;

create function mail.error_handler(told jsonb) returns jsonb
language plpgsql as $$
begin
    insert into mail.email_attempt_failed (
        task_id, attempt, email_id, outcome, reason, is_permanent
    )
    values (
        (told #>> '{task,id}')::uuid, (told #>> '{task,attempt}')::integer,
        (told #>> '{payload,email}')::bigint, told #>> '{error,outcome}',
        told #>> '{error,message}', (told #>> '{error,is_permanent}')::boolean
    )
    on conflict do nothing;
    return '{"status": "succeeded"}';
end
$$;

-- Decides about a failed attempt, by the fact that error_handler recorded. The decision, what is
-- done about it and the end of the question are one transaction.
create function mail.supervisor(told jsonb) returns jsonb
language plpgsql as $$
declare
    task uuid := told #>> '{task,id}';
    number integer := told #>> '{task,attempt}';
    failed mail.email_attempt_failed;
    decided jsonb;
begin
    select * into failed
    from mail.email_attempt_failed as fact
    where (fact.task_id, fact.attempt) = (task, number);
    decided := case
        when not found then  -- Its workers died before any could record a failure.
            jsonb_build_object('decision', 'escalate', 'reason', 'no fact: its workers crashed')
        when failed.outcome = 'unsuccessful' then
            jsonb_build_object('decision', 'escalate', 'reason', 'bounced before')
        when failed.outcome = 'unconfirmed' then
            jsonb_build_object('decision', 'escalate', 'reason', 'it may have been sent')
        when failed.reason like '%5.7.1%' then
            jsonb_build_object('decision', 'escalate', 'reason', 'we are blocked')
        when failed.is_permanent then
            jsonb_build_object('decision', 'give_up', 'reason', 'refused for good')
        when number >= 3 then
            jsonb_build_object('decision', 'give_up', 'reason', 'three attempts')
        else  -- Seconds, so that the example ends; yours are minutes.
            jsonb_build_object('decision', 'new_attempt', 'delay_s', 0.5 * 2 ^ (number - 1))
    end;
    insert into mail.email_attempt_decided (task_id, attempt, email_id, decision, reason)
    values (
        task, number, (told #>> '{payload,email}')::bigint, decided ->> 'decision',
        decided ->> 'reason'
    )
    on conflict do nothing;
    return jsonb_build_object('status', 'succeeded', 'payload', decided);
end
$$;

-- A task of its own (chronos.db_function): what reads bounces enqueues one for each report.
create function mail.record_bounce(told jsonb) returns jsonb
language plpgsql as $$
begin
    if not exists (
        select from mail.email_attempt_sent as sent
        where sent.message_id = told ->> 'message_id'
    ) then
        return jsonb_build_object(
            'status', 'unknown', 'reason', 'no mail of ours', 'is_permanent', true
        );
    end if;
    insert into mail.email_bounced (message_id, reason)
    values (told ->> 'message_id', told ->> 'reason')
    on conflict do nothing;
    return '{"status": "succeeded"}';
end
$$;

insert into chronos.allowed_functions (schema_name, function_name)
values
    ('mail', 'before_handler'), ('mail', 'success_handler'), ('mail', 'error_handler'),
    ('mail', 'supervisor'), ('mail', 'record_bounce');

-- What became of each e-mail.
create view mail.email_fate as
with fact as (
    select email_id, attempt, recorded_at, 'sent' as said from mail.email_attempt_sent
    union all
    select email_id, attempt, recorded_at, outcome
    from mail.email_attempt_failed
    union all
    select
        email_id, attempt, recorded_at, replace(decision, '_', ' ') || coalesce(': ' || reason, '')
    from mail.email_attempt_decided
    where decision <> 'new_attempt'
    union all
    select sent.email_id, sent.attempt, bounced.recorded_at, 'bounced'
    from mail.email_bounced as bounced join mail.email_attempt_sent as sent using (message_id)
)
select
    email.id,
    email.recipient,
    (select count(distinct fact.attempt) from fact where fact.email_id = email.id) as attempts,
    case
        when exists (
            select from mail.email_bounced as bounced
            join mail.email_attempt_sent as sent using (message_id)
            where sent.email_id = email.id
        ) then 'bounced'
        when exists (select from mail.email_attempt_sent as sent where sent.email_id = email.id)
            then 'sent'
        else coalesce((
            select case decided.decision
                when 'give_up' then 'given up' when 'escalate' then 'escalated' else 'under way'
            end
            from mail.email_attempt_decided as decided
            where decided.email_id = email.id
            order by decided.attempt desc
            limit 1
        ), 'under way')
    end as outcome,
    (
        select string_agg(fact.said, ', ' order by fact.attempt, fact.recorded_at)
        from fact where fact.email_id = email.id
    ) as facts
from mail.email as email;
