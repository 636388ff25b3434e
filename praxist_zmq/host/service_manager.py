"""Tells the service manager (systemd) how we are, when it asked for it.

Source of the rules: sd_notify(3): datagrams to the socket in NOTIFY_SOCKET; a leading `@` is an
abstract name; WATCHDOG_USEC is the longest silence it allows.
"""

from __future__ import annotations

import os
import socket


def notify(*lines: str) -> bool:
    """Send the assignments (`READY=1`, `STATUS=...`). False when nobody asked or listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
            link.setblocking(False)
            link.connect(address)
            link.send("\n".join(lines).encode())
    except OSError:
        return False
    return True


def watchdog_interval_ms() -> int | None:
    """How often to send `WATCHDOG=1`: half the allowed silence; None when it is not wanted."""
    allowed, meant = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not allowed.isdigit() or (meant and meant != str(os.getpid())):
        return None
    return max(int(allowed) // 2000, 1)
