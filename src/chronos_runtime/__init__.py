"""Durable background jobs, schedules and alarms for async Python, on nothing but Postgres."""

from chronos_runtime.answers import Counts, Enqueued, Page
from chronos_runtime.app import Chronos
from chronos_runtime.backoff import Exponential, Fixed
from chronos_runtime.client import Client
from chronos_runtime.config import Config
from chronos_runtime.errors import (
    ChronosError,
    ClaimLost,
    ConfigError,
    FunctionFailed,
    InputError,
    JobNotFound,
    JobStateError,
    PayloadError,
    PermanentFailure,
    ProcessorFailure,
    ScheduleNotFound,
    StoreError,
    StoreUnavailable,
    TargetRefused,
    TemporaryFailure,
    UnknownKind,
)
from chronos_runtime.job import Cancel, Discard, Job, Retry, Snooze
from chronos_runtime.processor import Processor, Task
from chronos_runtime.processors.email_message import Attachment, EmailMessage
from chronos_runtime.processors.sms import Sms, SmsProvider
from chronos_runtime.processors.sms_message import SmsMessage
from chronos_runtime.runtime import Runtime
from chronos_runtime.schedule import FireRecord, Schedule
from chronos_runtime.store import JobRecord, NewJob
from chronos_runtime.store.memory import MemoryStore
from chronos_runtime.supervision import Escalate, Failure, GiveUp, NewAttempt
from chronos_runtime.transaction import Transaction

__all__ = [
    "Attachment",
    "Cancel",
    "Chronos",
    "ChronosError",
    "ClaimLost",
    "Client",
    "Config",
    "ConfigError",
    "Counts",
    "Discard",
    "EmailMessage",
    "Enqueued",
    "Escalate",
    "Exponential",
    "Failure",
    "FireRecord",
    "Fixed",
    "FunctionFailed",
    "GiveUp",
    "InputError",
    "Job",
    "JobNotFound",
    "JobRecord",
    "JobStateError",
    "MemoryStore",
    "NewAttempt",
    "NewJob",
    "Page",
    "PayloadError",
    "PermanentFailure",
    "Processor",
    "ProcessorFailure",
    "Retry",
    "Runtime",
    "Schedule",
    "ScheduleNotFound",
    "Sms",
    "SmsMessage",
    "SmsProvider",
    "Snooze",
    "StoreError",
    "StoreUnavailable",
    "TargetRefused",
    "Task",
    "TemporaryFailure",
    "Transaction",
    "UnknownKind",
]
