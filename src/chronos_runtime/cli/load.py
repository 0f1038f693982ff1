"""Finding the application: `module:app`, with the current folder on the path."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from chronos_runtime.app import Chronos
from chronos_runtime.errors import ConfigError
from chronos_runtime.failure import describe

BUILT_IN_ONLY = "-"
"""In the place of `module:app`: no app, only the kinds that need no code."""


def load_app(path: str) -> Chronos:
    """The Chronos at `package.module:attribute`, which must have handlers."""
    if path == BUILT_IN_ONLY:
        return Chronos()
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{path!r}: write module:app, for example shop.jobs:app")
    module = _import(module_name)
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{module_name} has no {attribute!r}{_apps_in(module)}")
        found = getattr(found, name)
    if not isinstance(found, Chronos):
        raise ConfigError(
            f"{path} is of type {type(found).__name__}, not a Chronos{_apps_in(module)}"
        )
    if not found.handlers:
        raise ConfigError(f"{path} has no handlers; register one with @app.handler(kind)")
    return found


def _import(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"no module {error.name!r} in {folder} or among the installed packages"
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:  # The user's module: anything may come.
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> ConfigError:
    """The one line of a traceback that matters: the last one outside the import machinery."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return ConfigError(f"importing {name} failed: {type(error).__name__}: {describe(error)}{where}")


def _apps_in(module: ModuleType) -> str:
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, Chronos))
    return f"; it has {', '.join(apps)}" if apps else "; make one: app = Chronos()"
