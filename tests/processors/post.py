"""A post office in SQL: hooks that record facts, a supervisor, and tables where a double shows.

`post.facts` has no key: whatever is recorded twice stands there twice. `post.kept` is the same as
one is advised to have it, by (task, attempt), `on conflict do nothing`. A call that was rolled back
leaves its trace in a sequence alone. Hooks wait at advisory locks, for tests to kill them there.
"""

from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from chronos_runtime.store.migrations import Connection

IN_BEFORE, IN_RECORD, IN_COMMIT = 101, 102, 103
"""Advisory locks: who holds one holds the hooks there."""

POST = f"""
create schema post;
create table post.facts (
    task uuid, attempt integer, run integer, what text, outcome text, is_permanent boolean
);
create table post.kept (task uuid, attempt integer, what text, primary key (task, attempt));
create table post.decided (task uuid, attempt integer, decision text);
create sequence post.records;

create function post.wait() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared({IN_COMMIT});
    return null;
end $$;
create constraint trigger wait after insert on post.facts deferrable initially deferred
    for each row execute function post.wait();

create function post.mail(told jsonb) returns jsonb language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared({IN_BEFORE});
    return jsonb_build_object('status', 'succeeded', 'payload', jsonb_build_object(
        'to', told #>> '{{payload,customer}}', 'subject', 'Order', 'text', 'Thank you.'));
end $$;
create function post.text(told jsonb) returns jsonb language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared({IN_BEFORE});
    return jsonb_build_object('status', 'succeeded', 'payload', jsonb_build_object(
        'to', told #>> '{{payload,customer}}', 'text', 'Thank you.'));
end $$;

create function post.note(told jsonb, what text) returns jsonb language plpgsql as $$
declare
    task uuid := (told #>> '{{task,id}}')::uuid;
    attempt integer := (told #>> '{{task,attempt}}')::integer;
begin
    perform nextval('post.records');
    insert into post.facts values (
        task, attempt, (told #>> '{{task,run}}')::integer, what,
        coalesce(told #>> '{{error,outcome}}', 'succeeded'),
        (told #>> '{{error,is_permanent}}')::boolean
    );
    insert into post.kept values (task, attempt, what) on conflict do nothing;
    perform pg_advisory_xact_lock_shared({IN_RECORD});
    return '{{"status": "succeeded"}}';
end $$;
create function post.sent(told jsonb) returns jsonb language sql as $$
    select post.note(told, 'sent')
$$;
create function post.failed(told jsonb) returns jsonb language sql as $$
    select post.note(told, 'failed')
$$;

create function post.decide(told jsonb) returns jsonb language plpgsql as $$
declare
    decision text := case
        when told #>> '{{error,type}}' = 'PermanentFailure' then 'give_up'
        when (told #>> '{{task,attempt}}')::integer >= 30 then 'escalate'
        else 'new_attempt'
    end;
begin
    insert into post.decided
    values ((told #>> '{{task,id}}')::uuid, (told #>> '{{task,attempt}}')::integer, decision);
    return jsonb_build_object('status', 'succeeded', 'payload', case decision
        when 'new_attempt' then jsonb_build_object(
            'decision', decision,
            'delay_s', coalesce((told #>> '{{payload,pause_s}}')::real, 0))
        else jsonb_build_object('decision', decision, 'reason', 'enough')
    end);
end $$;
insert into chronos.allowed_functions (schema_name) values ('post');
"""

HOOKS = {"success_handler": "post.sent", "error_handler": "post.failed"}
BEFORE = {"chronos.email": "post.mail", "chronos.sms": "post.text"}
SUPERVISED: dict[str, Any] = {"attempts": "supervised", "supervisor": "post"}
SUPERVISORS = {"post": "post.decide"}


def task_payload(kind: str, customer: str, **more: object) -> dict[str, object]:
    """What a task of the post office says: hooks, and words for them alone."""
    return {"before_handler": BEFORE[kind], **HOOKS, "customer": customer, **more}


class PostFact(NamedTuple):
    """A fact, as it was committed."""

    attempt: int
    what: str
    outcome: str


class Facts(msgspec.Struct):
    """Everything that was recorded."""

    by_task: dict[UUID, list[PostFact]]
    kept: dict[UUID, list[int]]
    decided: dict[UUID, list[str]]
    records: int
    """How often a hook began to record, whether that was kept or not."""

    @property
    def total(self) -> int:
        """How many there are in all."""
        return sum(map(len, self.by_task.values()))

    def of(self, task: UUID) -> list[PostFact]:
        """Of one task, by attempt; what has no double is the same in both tables."""
        facts = self.by_task.get(task, [])
        assert [one.attempt for one in facts] == self.kept.get(task, []), "a fact stands twice"
        return facts


async def read_facts(connection: Connection) -> Facts:
    """What stands in the tables now."""
    facts: dict[UUID, list[PostFact]] = {}
    for row in await connection.fetch("select * from post.facts order by attempt, what"):
        fact = PostFact(row["attempt"], row["what"], row["outcome"])
        facts.setdefault(row["task"], []).append(fact)
    kept: dict[UUID, list[int]] = {}
    for row in await connection.fetch("select * from post.kept order by attempt"):
        kept.setdefault(row["task"], []).append(row["attempt"])
    decided: dict[UUID, list[str]] = {}
    for row in await connection.fetch("select * from post.decided"):
        decided.setdefault(row["task"], []).append(row["decision"])
    records = await connection.fetchval(
        "select case when is_called then last_value else 0 end from post.records"
    )
    return Facts(facts, kept, decided, records)
