"""nginx in front of php-fpm: on loopback, all that it writes in the scratch folder."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping

import processes
from application import Application
from layout import Layout

CONFIGURATION = """\
{user}daemon off;
worker_processes 1;
pid {scratch}/nginx.pid;
error_log stderr error;
events {{ worker_connections 256; }}
http {{
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  access_log off;
  keepalive_requests 1000000;
  client_body_temp_path {scratch}/nginx-body;
  fastcgi_temp_path {scratch}/nginx-fastcgi;
  proxy_temp_path {scratch}/nginx-proxy;
  scgi_temp_path {scratch}/nginx-scgi;
  uwsgi_temp_path {scratch}/nginx-uwsgi;
  # A page is passed on from memory: no files, whatever its size.
  fastcgi_buffers 64 16k;
  fastcgi_buffer_size 32k;
  fastcgi_busy_buffers_size 64k;
  server {{
    listen 127.0.0.1:{port};
    server_name localhost;
    root {root};
    index index.php index.html;
    # The driver tells each answer by it.
    add_header X-Step $http_x_step always;
    location / {{ try_files $uri $uri/ {fallback}; }}
    location ~ ^(?<script>.+?\\.php)(?<rest>/.*)?$ {{
      try_files $script =404;
      include /etc/nginx/fastcgi_params;
      fastcgi_param SCRIPT_FILENAME $document_root$script;
      fastcgi_param SCRIPT_NAME $script;
      fastcgi_param PATH_INFO $rest;
      fastcgi_read_timeout 120s;
      fastcgi_pass unix:{socket};
    }}
  }}
}}
"""


def start(
    application: Application,
    layout: Layout,
    *,
    port: int,
    cpus: set[int],
    base: Mapping[str, str],
) -> processes.Process:
    """Start nginx and return it when it accepts on `port`."""
    controller = application.front_controller
    configuration = layout.scratch / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(
            user="user root;\n" if os.geteuid() == 0 else "",
            scratch=layout.scratch,
            port=port,
            root=layout.expand(application.root),
            fallback=f"{controller}$is_args$args" if controller else "=404",
            socket=layout.fpm_socket,
        ),
        encoding="utf-8",
    )
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    process = processes.start(
        "nginx",
        [nginx, "-p", str(layout.scratch), "-c", str(configuration), "-e", "stderr"],
        folder=layout.scratch,
        cpus=cpus,
        environment=base,
        stop_signal=signal.SIGTERM,
    )
    process.wait_until(lambda: processes.accepts_on(port))
    return process
