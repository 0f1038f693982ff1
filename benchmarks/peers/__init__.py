"""peers: the same workloads, side by side in one run, on the systems users would pick instead.

    catalogue.py      the systems, and where each keeps its jobs
    adapters/         one script per system, at its best documented settings
    requirements/     the pinned versions of those from PyPI
    npm/              the pinned versions of those from npm
    environments.py   an environment for each, made on demand
    child.py          an adapter as a process
    workloads.py      what is measured, and by which clock
    runner.py         rounds of all systems in turn
    tables.py         the report

To pin a newer version: edit `<peer>.in` and run pip-compile as `make pin` does, or edit
package.json and run `npm install --package-lock-only --omit-lockfile-registry-resolved`.
"""

from benchmarks.peers.runner import measure

__all__ = ["measure"]
