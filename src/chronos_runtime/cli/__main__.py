"""`python -m chronos_runtime.cli` is `chronos-runtime`."""

from chronos_runtime.cli import main

main()
