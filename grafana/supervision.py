"""The overview's row about supervised tasks: what becomes of their failed attempts?"""

from grafana.panels import COUNT, HERE, RATE, Json, events, graph, query, rate

SUPERVISED = "chronos_supervision_decisions_total"
UNSERVED = "chronos_surveyor_unserved_jobs"


def what_do_supervisors_decide() -> list[Json]:
    """What supervisors decide about failed attempts, and failures that nobody decides about."""
    return [
        graph(
            "Decisions of supervisors",
            "Failed attempts of supervised tasks per second, by what was decided. New attempts"
            " that grow while nothing is given up: a provider is down, and its supervisor goes on"
            " hoping.",
            query(rate(SUPERVISED, HERE, "supervisor, decision"), "{{supervisor}} {{decision}}"),
            unit=RATE,
        ),
        graph(
            "Given up or escalated",
            "Within ten minutes. An escalated task stands with the dead letters: `chronos-runtime"
            " jobs lineage ID` shows all of its attempts and why each failed.",
            query(
                events(
                    SUPERVISED,
                    f'{HERE}, decision!="new_attempt"',
                    "supervisor, decision",
                    window="10m",
                ),
                "{{supervisor}} {{decision}}",
            ),
            unit=COUNT,
            limits=[1],
        ),
        graph(
            "Failures that nobody decides about",
            "Failure facts of supervisors that no live process knows: register the supervisor in"
            " an app that runs, or name its SQL function in `[supervisors]`.",
            query(
                f'max by (kind) ({UNSERVED}{{{HERE}, kind=~"chronos[.]supervise[.].*"}})',
                "{{kind}}",
            ),
            unit=COUNT,
            limits=[1],
        ),
    ]
