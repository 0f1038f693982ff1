"""The dashboards and alerts speak of metrics that exist, of all of them, and are well formed."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from chronos_runtime.metrics import Metrics
from grafana.build import FOLDER, texts

GRAFANA = Path(__file__).parents[2] / "grafana"
ALERTS = GRAFANA / "alerts.yaml"
DASHBOARDS = sorted(texts())

Json = dict[str, Any]

# Names in prose are in backticks and have no such prefix; channels are strings, not metrics.
METRIC = re.compile(r"\bchronos_[a-z_]+[a-z]\b(?!\()")
NAME_MATCHER = re.compile(r'__name__=~"([^"]+)"')
SERIES = {
    "counter": ("_total",),
    "histogram": ("_bucket", "_sum", "_count"),
    "gauge": ("",),
    "info": ("_info",),
}


def declared() -> dict[str, str]:
    """Every series a process can expose, and the family it belongs to."""
    return {
        family.name + suffix: family.name
        for family in Metrics().registry.collect()
        for suffix in SERIES[family.type]
    }


def names_in(expression: str) -> set[str]:
    """The series an expression reads; a matcher on names stands for all it matches."""
    names = set()
    for pattern in NAME_MATCHER.findall(expression):
        matched = {name for name in declared() if re.fullmatch(pattern, name)}
        assert matched, f"{pattern} matches no metric"
        names |= matched
    # What label_replace takes apart is a pattern too, never a name.
    plain = re.sub(r'"[^"]*"', '""', expression)
    return names | set(METRIC.findall(plain))


def panels(dashboard: Json) -> list[Json]:
    """What shows something: all but the titles of rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: Json) -> Iterator[str]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            values = re.fullmatch(r"label_values\((\w+), \w+\)", variable["definition"])
            assert values is not None
            yield values[1]


def alert_rules() -> list[str]:
    """The text of every rule; promtool is who parses them for good."""
    return re.split(r"^ +- alert: ", ALERTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]


def alert_expression(rule: str) -> str:
    found = re.search(r"^ +expr: (.*?)^ +(?:for|labels):", rule, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def dashboards() -> list[Json]:
    return [json.loads(text) for text in texts().values()]


@pytest.fixture(params=DASHBOARDS)
def dashboard(request: pytest.FixtureRequest) -> Json:
    loaded: Json = json.loads((FOLDER / request.param).read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        is_ci = os.environ.get("CI") == "true"
        assert not is_ci, "CI must have promtool (Debian: apt-get install prometheus)"
        pytest.skip("promtool is not on the path (Debian: apt-get install prometheus)")
    return found


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_files_are_what_the_script_writes(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == texts()[name], "python -m grafana.build"


def test_there_is_no_other_dashboard() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == DASHBOARDS


def test_dashboards_ask_only_for_metrics_that_exist(dashboard: Json) -> None:
    for expression in expressions(dashboard):
        names = names_in(expression)
        assert names, expression
        assert names <= set(declared()), expression


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule.partition("\n")[0])
def test_alerts_ask_only_for_metrics_that_exist(rule: str) -> None:
    names = names_in(alert_expression(rule))
    assert names or rule.startswith("ChronosDown\n")  # It asks for Prometheus's own `up`.
    assert names <= set(declared())


def test_every_metric_is_looked_at() -> None:
    everything = [one for dashboard in dashboards() for one in expressions(dashboard)]
    everything += [alert_expression(rule) for rule in alert_rules()]
    families = declared()
    looked_at = {families[name] for one in everything for name in names_in(one)}
    assert set(families.values()) - looked_at == set()


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule.partition("\n")[0])
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: str) -> None:
    assert re.search(r"^ +severity: (critical|warning)$", rule, flags=re.MULTILINE)
    assert re.search(r"^ +summary: \S", rule, flags=re.MULTILINE)
    description = re.search(r"^ +description: >-\n(.*)", rule, flags=re.MULTILINE | re.DOTALL)
    assert description is not None
    assert len(description[1].split()) > 15


def test_alerts_have_names_of_their_own() -> None:
    names = [rule.partition("\n")[0] for rule in alert_rules()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"Chronos[A-Z][A-Za-z]+", name) for name in names)


def test_the_rules_hold_and_fire_when_they_should(promtool: str) -> None:
    run(promtool, "check", "rules", str(ALERTS))
    run(promtool, "check", "config", str(GRAFANA / "prometheus.yml"))
    run(promtool, "test", "rules", str(GRAFANA / "alerts_test.yaml"))


def test_every_query_of_a_dashboard_is_promql(
    promtool: str, dashboard: Json, tmp_path: Path
) -> None:
    rules = [
        {"record": f"q{number}", "expr": without_variables(expression)}
        for number, expression in enumerate(expressions(dashboard))
    ]
    file = tmp_path / "rules.yaml"  # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    run(promtool, "check", "rules", str(file))


def without_variables(expression: str) -> str:
    """As Grafana sends it, with everything chosen."""
    sent = expression.replace("$__rate_interval", "1m")
    return re.sub(r"\$(instance|topic|kind)\b", ".*", sent)


def test_variables_are_declared(dashboard: Json) -> None:
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$([a-z]+)\b", " ".join(expressions(dashboard))))
    assert names == used | {"datasource"}


def test_panels_have_ids_and_titles_of_their_own(dashboard: Json) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(titles)) == len(titles)
    assert all(0 < id < 2**31 for id in ids)


def test_dashboards_have_uids_of_their_own() -> None:
    uids = {dashboard["uid"] for dashboard in dashboards()}
    assert uids == {"chronos-overview", "chronos-actors"}


def test_panels_say_what_they_show_and_what_to_do(dashboard: Json) -> None:
    for panel in panels(dashboard):
        assert len(panel["description"].split()) > 10, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]


def test_panels_ask_the_chosen_prometheus(dashboard: Json) -> None:
    for panel in panels(dashboard):
        for one in [panel, *panel["targets"]]:
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)


def test_panels_do_not_overlap_and_stay_on_the_grid(dashboard: Json) -> None:
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        ), f"{one} {other}"


def test_thresholds_climb_from_nothing(dashboard: Json) -> None:
    for panel in panels(dashboard):
        values = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert values[0] is None
        assert values[1:] == sorted(values[1:])


def test_every_actor_has_a_row() -> None:
    actors = json.loads(texts()["actors.json"])
    rows = {panel["title"].partition(":")[0] for panel in actors["panels"] if ":" in panel["title"]}
    assert set(Metrics().actors) <= rows
