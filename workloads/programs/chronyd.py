"""Runs chronyd as a server of time, asked by 150,000 clients: chronyd.py PORT SCRATCH

Each asks from another address of 127/8.
"""

import signal
import socket
import subprocess
import sys
import time

CLIENTS = 150_000
REQUEST = b"\x23" + bytes(47)  # version 4, client


def answered(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.2)
        client.sendto(REQUEST, ("127.0.0.1", port))
        try:
            return len(client.recv(64)) == len(REQUEST)
        except OSError:
            return False


def ask(port: int) -> None:
    while not answered(port):
        time.sleep(0.05)
    for n in range(CLIENTS):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind((f"127.{1 + (n >> 16)}.{n >> 8 & 255}.{n & 255}", 0))
            client.sendto(REQUEST, ("127.0.0.1", port))
        if n % 64 == 0 and not answered(port):
            sys.exit("chronyd does not answer")
    print(f"{CLIENTS} clients", flush=True)


port, scratch = int(sys.argv[1]), sys.argv[2]
with open(f"{scratch}/c.conf", "w") as conf:
    conf.write(
        f"port {port}\nlocal stratum 10\nallow 127.0.0.0/8\nbindaddress 127.0.0.1\ncmdport 0\n"
        f"pidfile {scratch}/pid\ndriftfile {scratch}/drift\nbindcmdaddress {scratch}/socket\n"
        "clientloglimit 200000000\n"
    )
command = ["/usr/sbin/chronyd", "-x", "-d", "-F", "1", "-f", f"{scratch}/c.conf", "-u", "root"]
with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
    try:
        ask(port)
        time.sleep(1)  # free memory may go back
    finally:
        server.send_signal(signal.SIGTERM)
