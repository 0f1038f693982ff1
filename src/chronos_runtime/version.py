"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("chronos-runtime")
except PackageNotFoundError:  # Run from a checkout that nobody installed.
    VERSION = "0+unknown"
