"""The overview's row about processors: do providers and SQL functions do what tasks ask for?"""

from grafana.panels import HERE, RATE, RATIO, SECONDS, Json, graph, quantile, query, rate

RUNS, RAN = "chronos_processor_runs_total", "chronos_processor_seconds"


def do_processors_succeed() -> list[Json]:
    """How runs end, in the words of the providers, and how long they take."""
    failed = f'{HERE}, outcome!~"succeeded|snoozed|stopped"'
    return [
        graph(
            "Runs by processor and outcome",
            "Runs per second. Refused: a function is not allowed or not there, and the job's error"
            " names the fix. Malformed: a function returns no envelope. Unrecorded: the work was"
            " done but its success_handler failed; read the dead letters of that kind.",
            query(rate(RUNS, HERE, "processor, outcome"), "{{processor}} {{outcome}}"),
            unit=RATE,
        ),
        graph(
            "Share of runs that fail",
            "Of all runs that came to an end. One processor alone: its provider, or its functions;"
            " the errors stand in the jobs.",
            query(
                f"{rate(RUNS, failed, 'processor')} / {rate(RUNS, HERE, 'processor')}",
                "{{processor}}",
            ),
            unit=RATIO,
            limits=[0.05, 0.5],
            highest=1,
        ),
        graph(
            "Time of a run, p50 and p99",
            "From the call of the provider, or of the function, to its answer. Near the timeout:"
            " it hangs; give it more time only if it needs it.",
            query(quantile(0.5, RAN, HERE, "processor"), "{{processor}} p50"),
            query(quantile(0.99, RAN, HERE, "processor"), "{{processor}} p99"),
            unit=SECONDS,
        ),
    ]
