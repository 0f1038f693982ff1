"""Write the dashboards: `python -m grafana.build`, from the root of the project.

The panels stand in `overview.py` and `actors.py`, in the words of `panels.py`. The JSON is
checked in for those who only want to import it; a test keeps it equal to what this writes.
"""

import json
from pathlib import Path

from grafana.actors import actors
from grafana.overview import overview

FOLDER = Path(__file__).parent / "dashboards"


def texts() -> dict[str, str]:
    """The text of every dashboard, by file name."""
    dashboards = {"overview.json": overview(), "actors.json": actors()}
    return {
        name: json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
        for name, dashboard in dashboards.items()
    }


def main() -> None:
    """Write the files."""
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
