"""A MariaDB of the trial's own: made once by a preparation, copied and started for each trial.

It listens on a socket only; its administrator is `root` without a password.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import processes
from layout import Layout

SERVER = "/usr/sbin/mariadbd"
INSTALLER = "/usr/bin/mariadb-install-db"
# The name of its folder, in {data} and in {scratch}.
FOLDER = "mariadb"

# Small files, which are copied for each trial; a cache that holds the whole database; and no wait
# for the disk, which is not what is measured.
SETTINGS = [
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=128M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--skip-networking",
    "--skip-log-bin",
    "--character-set-server=utf8mb4",
]


def _user() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def create(folder: Path) -> None:
    """Make an empty installation in `folder`."""
    command = [INSTALLER, "--no-defaults", f"--datadir={folder}", f"--user={_user()}"]
    command += ["--auth-root-authentication-method=normal", "--skip-test-db", *SETTINGS[:1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{INSTALLER} failed: {(done.stdout + done.stderr).strip()[-2000:]}")


def start(layout: Layout, *, cpus: set[int], base: Mapping[str, str]) -> processes.Process:
    """Start the server on the trial's copy and return it when it accepts."""
    folder = layout.scratch / FOLDER
    command = [SERVER, "--no-defaults", f"--datadir={folder}", f"--user={_user()}"]
    command += [f"--socket={layout.database_socket}", f"--pid-file={layout.scratch}/mariadb.pid"]
    command += SETTINGS
    server = processes.start("mariadb", command, folder=layout.scratch, cpus=cpus, environment=base)
    server.wait_until(lambda: processes.accepts(layout.database_socket))
    return server
