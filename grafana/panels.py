"""The grammar of the dashboards: queries, panels, and how they are laid out.

A panel's id comes from its title and its place from its width, so nobody counts either by hand,
and a link to a panel survives whatever is added around it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

Json = dict[str, Any]

SCHEMA_VERSION = 39  # Grafana 10.4 and everything after it.
GRID = 24  # Columns of a Grafana dashboard.
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
HERE = 'instance=~"$instance"'
BY_TOPIC = f'{HERE}, topic=~"$topic"'
BY_JOB = f'{BY_TOPIC}, kind=~"$kind"'
SECONDS, JOBS, RATE, COUNT, RATIO = "s", "short", "ops", "short", "percentunit"


def rate(counter: str, where: str, by: str = "", *, window: str = "$__rate_interval") -> str:
    """How often per second, summed by some labels."""
    grouping = f"sum by ({by})" if by else "sum"
    return f"{grouping} (rate({counter}{{{where}}}[{window}]))"


def events(counter: str, where: str, by: str = "", *, window: str) -> str:
    """How many within a window, summed by some labels.

    A counter with labels appears with its first event, where `increase` sees nothing yet: a
    series younger than the window counts in full.
    """
    series = f"{counter}{{{where}}}"
    grouping = f"sum by ({by})" if by else "sum"
    return (
        f"{grouping} (({series} unless {series} offset {window}) or increase({series}[{window}]))"
    )


def quantile(
    q: float, histogram: str, where: str, by: str = "", *, window: str = "$__rate_interval"
) -> str:
    """A quantile of a histogram by some labels."""
    labels = f"le, {by}" if by else "le"
    buckets = rate(f"{histogram}_bucket", where, labels, window=window)
    return f"histogram_quantile({q}, {buckets})"


def query(expression: str, legend: str, *, is_table: bool = False) -> Json:
    """One PromQL expression; a panel gives it its letter."""
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expression,
        "format": "table" if is_table else "time_series",
        "instant": is_table,
        "legendFormat": legend,
        "range": not is_table,
    }


def graph(
    title: str,
    description: str,
    *queries: Json,
    unit: str,
    width: int = 8,
    height: int = 8,
    limits: Sequence[float] = (),
    is_stacked: bool = False,
    highest: float | None = None,
) -> Json:
    """Lines over time; `limits` draws where it turns bad and where it is."""
    custom = {
        "drawStyle": "line",
        "fillOpacity": 30 if is_stacked else 8,
        "lineWidth": 1,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if is_stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
    }
    options = {
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    panel = _panel(
        "timeseries", title, description, queries, unit=unit, size=(width, height), limits=limits
    )
    defaults = panel["fieldConfig"]["defaults"]
    defaults |= {"color": {"mode": "palette-classic"}, "custom": custom, "min": 0}
    if highest is not None:
        defaults["max"] = highest
    return panel | {"options": options}


def stat(
    title: str,
    description: str,
    *queries: Json,
    unit: str,
    width: int = 4,
    height: int = 4,
    limits: Sequence[float] = (),
    is_good_above: bool = False,
    texts: Mapping[str, str] | None = None,
) -> Json:
    """One number that stands out; with `is_good_above`, below the limits is bad."""
    panel = _panel(
        "stat", title, description, queries, unit=unit, size=(width, height), limits=limits
    )
    defaults = panel["fieldConfig"]["defaults"]
    defaults |= {"color": {"mode": "thresholds"}, "noValue": "–"}
    if is_good_above:
        steps = defaults["thresholds"]["steps"]
        for step, color in zip(steps, ["red", "green"], strict=True):
            step["color"] = color
    if texts:
        options = {value: {"text": text} for value, text in texts.items()}
        defaults["mappings"] = [{"type": "value", "options": options}]
    calculation = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return panel | {
        "options": {
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": calculation,
            "textMode": "auto",
        }
    }


def table(
    title: str, description: str, *queries: Json, unit: str, width: int, hidden: Iterable[str]
) -> Json:
    """The labels of some series, as of now."""
    panel = _panel("table", title, description, queries, unit=unit, size=(width, 8))
    organize = {"excludeByName": dict.fromkeys(hidden, True)}
    return panel | {
        "options": {"cellHeight": "sm", "showHeader": True},
        "transformations": [{"id": "organize", "options": organize}],
    }


def _panel(
    sort: str,
    title: str,
    description: str,
    queries: Sequence[Json],
    *,
    unit: str,
    size: tuple[int, int],
    limits: Sequence[float] = (),
) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    steps += [
        {"color": color, "value": limit}
        for color, limit in zip(["orange", "red"][-len(limits) :], limits, strict=False)
    ]
    return {
        "type": sort,
        "id": _id(title),
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"w": size[0], "h": size[1]},
        "targets": [one | {"refId": chr(ord("A") + i)} for i, one in enumerate(queries)],
        "fieldConfig": {
            "defaults": {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
    }


def dashboard(
    uid: str,
    title: str,
    description: str,
    rows: Mapping[str, Sequence[Json]],
    *,
    choices: Mapping[str, str],
) -> Json:
    """A whole dashboard: titled rows of panels, and labels to choose by with where to find them."""
    link = {
        "type": "dashboards",
        "tags": ["chronos"],
        "title": "Chronos",
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }
    variables = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        *[_variable(label, metric) for label, metric in choices.items()],
    ]
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["chronos"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "annotations": {"list": []},
        "links": [link],
        "templating": {"list": variables},
        "panels": list(_placed(rows)),
    }


def _variable(label: str, metric: str) -> Json:
    values = f"label_values({metric}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "definition": values,
        "query": {
            "qryType": 1,  # Values of a label.
            "query": values,
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
        },
        "refresh": 2,  # When the time range changes, so that what is gone still shows.
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _placed(rows: Mapping[str, Sequence[Json]]) -> Iterable[Json]:
    """Rows one below the other, panels left to right, a new line when the next one is too wide."""
    y = 0
    for title, panels in rows.items():
        place = {"x": 0, "y": y, "w": GRID, "h": 1}
        yield {
            "type": "row",
            "id": _id(f"row: {title}"),
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        x, y, line = 0, y + 1, 0
        for panel in panels:
            width, height = panel["gridPos"]["w"], panel["gridPos"]["h"]
            if x + width > GRID:
                x, y, line = 0, y + line, 0
            yield panel | {"gridPos": {"x": x, "y": y, "w": width, "h": height}}
            x, line = x + width, max(line, height)
        y += line


def _id(title: str) -> int:
    return crc32(title.encode()) % 1_000_000
