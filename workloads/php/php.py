"""PHP as the applications get it: its php.ini, php-fpm, and its command line for preparations.

Nothing of the machine's own PHP configuration is read: the trial's php.ini is PHP's own for
production servers, with the opcode cache on, the extensions that the application names, and the
memory manager under study.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import processes
from application import Application
from layout import Layout

FPM = "/usr/sbin/php-fpm8.2"
CLI = "/usr/bin/php8.2"
PRODUCTION_INI = Path("/usr/lib/php/8.2/php.ini-production")

ZEND = "zend"
MALLOC = "malloc"
EXTENSION_MODES = ("defrag-dodging", "region")
MODES = (ZEND, *EXTENSION_MODES, MALLOC)

# The opcode cache as on a server whose files change with a deployment only.
SERVER_INI = {
    "opcache.enable": "1",
    "opcache.memory_consumption": "128",
    "opcache.interned_strings_buffer": "16",
    "opcache.max_accelerated_files": "20000",
    "opcache.validate_timestamps": "0",
    "realpath_cache_size": "4096K",
    "realpath_cache_ttl": "600",
    # A region counts what a request has freed as well: its requests are not to end for that.
    "memory_limit": "1G",
    "date.timezone": "UTC",
    "session.gc_probability": "0",
    "session.save_path": "{scratch}/sessions",
    "sys_temp_dir": "{scratch}",
}

FPM_CONFIGURATION = """\
[global]
error_log = {scratch}/fpm.log
daemonize = no
log_level = notice

[application]
{user}listen = {socket}
listen.mode = 0600
listen.backlog = 1024
pm = static
pm.max_children = {workers}
; A worker that is replaced would begin with an empty heap in the middle of the measurement.
pm.max_requests = 0
clear_env = no
catch_workers_output = yes
decorate_workers_output = no
php_admin_value[error_log] = {scratch}/php-errors.log
"""


@dataclass(frozen=True)
class MemoryManager:
    """Who serves PHP's allocations: see README.md for the modes."""

    mode: str = ZEND
    huge_pages: bool = False
    extension: Path | None = None  # heapfit.so, for the modes that it has

    def ini(self) -> list[str]:
        if self.mode not in EXTENSION_MODES:
            return []
        return [
            f"extension={self.extension}",
            f"heapfit.mode={self.mode}",
            f"heapfit.huge_pages={int(self.huge_pages)}",
        ]

    def environment(self) -> dict[str, str]:
        if self.mode == MALLOC:
            return {"USE_ZEND_ALLOC": "0"}
        if self.mode == ZEND and self.huge_pages:
            return {"USE_ZEND_ALLOC_HUGE_PAGES": "1"}
        return {}


def write_ini(application: Application, layout: Layout, manager: MemoryManager) -> Path:
    """Write the php.ini of this run and return its path."""
    extensions = [f"extension={name}" for name in application.extensions]
    wanted = {**SERVER_INI, **application.ini}
    settings = [f'{name}="{layout.expand(value)}"' for name, value in wanted.items()]
    lines = [
        PRODUCTION_INI.read_text(encoding="utf-8"),
        "[PHP]",
        "zend_extension=opcache",
        *extensions,
        *manager.ini(),
        *settings,
    ]
    (layout.scratch / "sessions").mkdir(exist_ok=True)
    path = layout.scratch / "php.ini"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def environment(
    application: Application, layout: Layout, base: Mapping[str, str]
) -> dict[str, str]:
    """Return what PHP's programs get: an empty scan folder keeps Debian's conf.d out."""
    own = {name: layout.expand(value) for name, value in application.environment.items()}
    return {**base, **own, "PHP_INI_SCAN_DIR": ""}


def start_fpm(
    application: Application,
    layout: Layout,
    manager: MemoryManager,
    *,
    workers: int,
    cpus: set[int],
    base: Mapping[str, str],
) -> processes.Process:
    """Start php-fpm with `workers` workers and return it when it accepts."""
    ini = write_ini(application, layout, manager)
    is_root = os.geteuid() == 0
    configuration = layout.scratch / "fpm.conf"
    configuration.write_text(
        FPM_CONFIGURATION.format(
            scratch=layout.scratch,
            socket=layout.fpm_socket,
            workers=workers,
            user="user = root\ngroup = root\n" if is_root else "",
        ),
        encoding="utf-8",
    )
    command = [FPM, "--nodaemonize", "-c", str(ini), "--fpm-config", str(configuration)]
    if is_root:
        command.append("--allow-to-run-as-root")
    fpm = processes.start(
        "php-fpm",
        command,
        folder=layout.scratch,
        cpus=cpus,
        environment={**environment(application, layout, base), **manager.environment()},
        stop_signal=signal.SIGQUIT,
    )
    fpm.wait_until(lambda: processes.accepts(layout.fpm_socket))
    return fpm


def run(
    application: Application, layout: Layout, words: Sequence[str], timeout_s: float = 600
) -> None:
    """Run a PHP script for a preparation; exit with its last words when it fails."""
    ini = write_ini(application, layout, MemoryManager())
    done = subprocess.run(
        [CLI, "-c", str(ini), *words],
        cwd=layout.scratch,
        env=environment(application, layout, os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words[:2])} failed: {(done.stderr + done.stdout).strip()[-2000:]}")
