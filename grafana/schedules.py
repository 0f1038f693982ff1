"""The overview's row about schedules: do they fire, in time, and does what they fire succeed?"""

from grafana.panels import (
    BY_JOB,
    COUNT,
    HERE,
    RATE,
    SECONDS,
    Json,
    events,
    graph,
    quantile,
    query,
    rate,
)

LATE = "chronos_scheduler_fire_late_seconds"
SKIPPED = "chronos_scheduler_skipped_occurrences_total"
SYNCHRONISED = "chronos_scheduler_synchronised_schedules_total"
BROKEN, ABSENCES = "chronos_scheduler_broken_schedules_total", "chronos_scheduler_absences_total"


def do_schedules_fire() -> list[Json]:
    """What schedules fire, what they do not, and which of them need somebody."""
    return [
        graph(
            "Jobs fired by kind",
            "Jobs that schedules fired, per second, by whichever process was first; races lost to"
            " another process, or to an edit, cost nothing and are normal.",
            query(rate("chronos_scheduler_fired_jobs_total", BY_JOB, "kind"), "{{kind}}"),
            query(rate("chronos_scheduler_lost_races_total", HERE), "races lost"),
            unit=RATE,
        ),
        graph(
            "From occurrence to fire",
            "How late schedules fire, by the database's clock. p99 of seconds: no scheduler makes"
            " progress (see the actors' dashboard), or the processes were all down.",
            query(quantile(0.5, LATE, HERE), "p50"),
            query(quantile(0.99, LATE, HERE), "p99"),
            unit=SECONDS,
            limits=[2, 30],
        ),
        graph(
            "Occurrences that did not fire",
            "Within ten minutes. Overlap: the fire before still lived, as `skip` and `queue` want"
            " it; always: the handler takes longer than the interval. Catch-up: nobody was there"
            " to fire them.",
            query(events(SKIPPED, HERE, "why", window="10m"), "{{why}}"),
            unit=COUNT,
        ),
        graph(
            "Schedules without a success",
            "How many go without the success that `expect_success_within_s` asks for. The log has"
            " 'schedule absent' with the name and the last error.",
            query(f"max (chronos_scheduler_absent_schedules{{{HERE}}})", "absent"),
            query(events(ABSENCES, HERE, window="10m"), "newly absent"),
            unit=COUNT,
            limits=[1],
        ),
        graph(
            "Schedules that broke",
            "Within ten minutes: they could not be evaluated or stored, and do not fire until"
            " they are edited. The log has 'schedule broken' with the name and the error.",
            query(events(BROKEN, HERE, window="10m"), "broken"),
            unit=COUNT,
            limits=[1],
        ),
        graph(
            "Schedules of the code, at start",
            "What became of the app's own schedules when processes started. Refused: one of that"
            " name was made elsewhere and is left alone, so the code's never fires. Vanished: in"
            " the database and no longer in the code of an app without a name.",
            query(events(SYNCHRONISED, HERE, "outcome", window="10m"), "{{outcome}}"),
            unit=COUNT,
        ),
    ]
