"""The heart: which actors there are, what they talk through, how they start and drain."""

import logging
import os
import socket

import anyio
from anyio.abc import TaskGroup

from chronos_runtime.actors.claimer import Claimer
from chronos_runtime.actors.executor import Executor
from chronos_runtime.actors.exporter import Exporter
from chronos_runtime.actors.janitor import Janitor
from chronos_runtime.actors.listener import Listener
from chronos_runtime.actors.reporter import Reporter
from chronos_runtime.actors.scheduler import Scheduler
from chronos_runtime.actors.surveyor import Surveyor
from chronos_runtime.actors.taker import Taker
from chronos_runtime.actors.watchdog import Watchdog
from chronos_runtime.app import Chronos
from chronos_runtime.beat_thread import BeatThread
from chronos_runtime.config import Config
from chronos_runtime.errors import StoreError
from chronos_runtime.ids import Worker
from chronos_runtime.inflight import Inflight
from chronos_runtime.job import Job
from chronos_runtime.metrics import Metrics
from chronos_runtime.nudge import Mailbox, Nudge
from chronos_runtime.outbox import Outbox
from chronos_runtime.processors.builtin import Builtins
from chronos_runtime.processors.wake_payload import WakePayload
from chronos_runtime.store import WorkerInfo
from chronos_runtime.store.handler_connections import HandlerConnections
from chronos_runtime.store.lane import Lane
from chronos_runtime.store.postgres import PostgresStore
from chronos_runtime.supervisor import Actor, Supervisor
from chronos_runtime.synchronise import synchronise
from chronos_runtime.version import VERSION

_FLUSH_S = 10.0  # How long the reporter may still write after the last handler ended.

_log = logging.getLogger(__name__)


class Runtime:
    """One worker process: the actors of one app on one database.

    >>> from chronos_runtime import Chronos, Config
    >>> app = Chronos()
    >>> @app.handler("ping")
    ... async def ping(job, payload): ...
    >>> runtime = Runtime(app, Config())
    >>> runtime.topics
    ['chronos', 'default']
    """

    def __init__(self, app: Chronos, config: Config, *, worker: Worker | None = None) -> None:
        self.worker = worker or Worker()
        self.metrics = Metrics()
        self._app = app
        self._config = config
        self._store = PostgresStore(config.database, self.metrics.observe_statement)
        self._builtins = Builtins(config, self._store.functions, self.metrics, gone=self._end_alarm)
        self._handlers = self._builtins.running(app.handlers) | self._builtins.handlers()
        self._handlers |= self._builtins.supervising(self._store, app.supervisors, app.handlers)
        self.handler_topics = {handler.topic for handler in self._handlers.values()}
        self.topics = config.topics or sorted(self.handler_topics)
        # Used on the heartbeater's thread and nowhere else: connections belong to a loop.
        self._beat_store = PostgresStore(config.database, self.metrics.observe_statement)
        self._supervisor = Supervisor(config.supervisor, self.metrics)
        # Above the slots: two batches claimed ahead, two being reported.
        capacity = config.executor.concurrency + 4 * config.claimer.batch_max
        self.inflight = Inflight(capacity, config.executor.topic_concurrency)
        self._inbox: Mailbox[Job] = Mailbox(capacity)
        self._outbox = Outbox(capacity)
        self._claims = Nudge()
        self._due = Nudge()
        self._listener: Listener | None = None
        self._taker = self._make_taker()
        self._claimer = self._make_claimer()
        self._executor = Executor(
            config.executor,
            self._handlers,
            self.inflight,
            self.metrics,
            worker=self.worker.name,
            inbox=self._inbox,
            outbox=self._outbox,
            room=self._claimer.hear_of_room,
            transaction=self._store.transaction,
        )
        self.exporter = Exporter(config.exporter, self.metrics, refresh=self._refresh)
        self._prepare_metrics()

    async def run(self, stop: anyio.Event) -> None:
        """Run until `stop` is set, then drain. Shutdown order is the indentation, inside out.

        The sources go first: nothing new is claimed, and what was claimed but not started is
        given back. Then the executor, when its handlers ended or met the drain deadline; then
        the reporter, when everything is written; the keepers of leases last of all.
        """
        try:
            async with anyio.create_task_group() as keepers:
                self._start(keepers, self._beat_thread(), *self._optional_keepers())
                async with anyio.create_task_group() as sinks:
                    self._start(sinks, self._reporter())
                    sinks.start_soon(self._warm_up)
                    async with anyio.create_task_group() as runners:
                        self._start(runners, self._executor)
                        async with anyio.create_task_group() as sources:
                            self._start(sources, *self._sources())
                            await stop.wait()
                            drain_s = self._config.executor.drain_s
                            runners.cancel_scope.deadline = anyio.current_time() + drain_s
                            sources.cancel_scope.cancel()
                        self._inbox.close()
                    # A claim is never cancelled half-way: one may have outlived the executor.
                    self._executor.release_inbox()
                    sinks.cancel_scope.deadline = anyio.current_time() + _FLUSH_S
                    self._outbox.close()
                keepers.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave()

    async def _warm_up(self) -> None:
        """Open the reporter's connection now: the first outcome would wait 20 ms for it."""
        try:
            await self._store.finish_jobs([])
        except StoreError:
            pass  # Nobody waits for it; the reporter opens its own when it needs one.

    def _start(self, ring: TaskGroup, *actors: Actor) -> None:
        for actor in actors:
            ring.start_soon(self._supervisor.run, actor, name=actor.name)

    def _sources(self) -> list[Actor]:
        config, store, metrics = self._config, self._store, self.metrics
        info = WorkerInfo(
            self.worker.id,
            socket.gethostname(),
            os.getpid(),
            VERSION,
            list(self.topics),
            sorted(self._handlers),
        )
        return [
            self._claimer,
            self._taker,
            Scheduler(
                config.scheduler,
                store,
                metrics,
                nudge=self._due,
                returned=self._claimer.look_behind,
                # Only marked topics are notified of what falls due, and under load none is.
                hears=lambda: self._hears() and self._claimer.is_marked,
                prepare=self._synchronise,
            ),
            Watchdog(config.watchdog, store, metrics, returned=self._claimer.look_behind),
            Janitor(config.janitor, store, metrics, worker=info),
            Surveyor(config.surveyor, store, metrics),
        ]

    async def _synchronise(self) -> None:
        """Bring the database's schedules to what the app's code says."""
        verdicts = await synchronise(self._store, self._app.name, self._app.schedules)
        for verdict in verdicts.values():
            self.metrics.schedules.synchronised.labels(verdict).inc()

    async def _end_alarm(self, job: Job, payload: WakePayload) -> None:
        """The receiver of an alarm is gone for good: no fire of it would arrive."""
        if job.schedule_id is not None and payload.alarm is not None:
            await self._store.schedules.end_alarm(job.schedule_id, "failed", "the receiver is gone")

    def _make_claimer(self) -> Claimer:
        config = self._config
        return Claimer(
            config.claimer,
            self._store,
            self.inflight,
            self.metrics,
            worker=self.worker,
            topics=self.topics,
            kinds=sorted(self._handlers),
            concurrency=config.executor.concurrency,
            topic_concurrency=config.executor.topic_concurrency,
            lease_s=config.heartbeater.lease_s,
            inbox=self._inbox,
            nudge=self._claims,
            scheduled=self._due,
            hears=self._hears,
            changed=self._taker.consider,
        )

    def _make_taker(self) -> Taker:
        config = self._config
        return Taker(
            config.claimer,
            self._store,
            self.inflight,
            self.metrics,
            worker=self.worker,
            topics=self.topics,
            kinds=sorted(self._handlers),
            concurrency=config.executor.concurrency,
            lease_s=config.heartbeater.lease_s,
            inbox=self._inbox,
            is_drained=lambda: self._claimer.is_drained,
            presence=lambda: None if self._listener is None else self._listener.presence,
            scheduled=self._due,
        )

    def _reporter(self) -> Actor:
        return Reporter(
            self._config.reporter,
            self._store,
            self.inflight,
            self.metrics,
            worker=self.worker.name,
            outbox=self._outbox,
            room=self._claimer.hear_of_room,
            returned=self._claimer.look_behind,
            scheduled=self._due,
        )

    def _beat_thread(self) -> Actor:
        return BeatThread(
            self._config.heartbeater,
            self._beat_store,
            self.inflight,
            self.metrics,
            self._supervisor,
            worker=self.worker.name,
            lost=lambda id: self._executor.stop(id, "lost"),
            cancel=lambda id: self._executor.stop(id, "cancel"),
        )

    def _optional_keepers(self) -> list[Actor]:
        keepers: list[Actor] = []
        if self._config.listener.enabled and not self._config.database.pgbouncer:
            self._listener = Listener(
                self._config.listener,
                self._store,
                self.metrics,
                ready=self._claims,
                returned=self._claimer.look_behind,
                due=self._due,
                handed=self._taker.hear,
                cancel=lambda id: self._executor.stop(id, "cancel"),
            )
            keepers.append(self._listener)
        else:
            self.metrics.actors["listener"].progress(resting=True)
        if self._config.exporter.enabled:
            keepers.append(self.exporter)
        return keepers

    def _prepare_metrics(self) -> None:
        """Let every series of this app begin at zero, and say how long each actor may sleep."""
        for handler in self._handlers.values():
            self.metrics.begin(handler.topic, handler.kind)
        config = self._config
        for actor, interval_s in {
            "claimer": config.claimer.idle_poll_s,
            "heartbeater": config.heartbeater.interval_s,
            "watchdog": config.watchdog.interval_s,
            "scheduler": config.scheduler.idle_interval_s,
            "listener": config.listener.probe_s,
            "janitor": config.janitor.interval_s,
            "surveyor": config.surveyor.interval_s,
        }.items():
            self.metrics.actors[actor].interval_s = interval_s

    def _hears(self) -> bool:
        return self._listener is not None and self._listener.is_up

    def _refresh(self) -> None:
        """Bring the gauges up to date that nobody's pass does."""
        self.metrics.show_inflight(self.inflight)
        connections: dict[str, Lane | HandlerConnections] = {
            **self._store.lanes,
            "beat": self._beat_store.lanes["beat"],
            "transaction": self._store.handler_connections,
        }
        for name, ones in connections.items():
            self.metrics.show_connections(name, used=ones.used, idle=ones.idle)

    async def _leave(self) -> None:
        """Take presence and marks along; a database that is away does without."""
        try:
            await self._claimer.release_doubtful()
            await self._taker.withdraw()
            await self._store.forget_worker(self.worker.id)
        except StoreError as error:
            _log.info("left without a goodbye: %s", error)
        await self._builtins.aclose()
        await self._store.close()
