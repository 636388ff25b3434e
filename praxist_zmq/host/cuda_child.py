"""The child of `binding check`: opens a CUDA context on the one device it sees, and holds it.

Run as a program, `python -I -S cuda_child.py PARENT_PID`, with the masks already in its
environment. Says one line of JSON on stdout and waits for the end of stdin; a parent that dies
takes it along, also while the driver hangs. Imports nothing of ours and chooses no device.
Source: NVIDIA's CUDA driver API; prctl(2) PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import uuid
from typing import Any

LIBRARY = "libcuda.so.1"
HELD_BYTES = 1024 * 1024
_PR_SET_PDEATHSIG = 1


class _Refused(Exception):
    """The driver refused a call; the message says which, and why."""


class _Driver:
    """The driver library; a call that fails raises `_Refused`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def call(self, *names: str) -> Any:
        """The first of these functions that the library has, checked."""
        for name in names:
            function = getattr(self._library, name, None)
            if function is not None:
                return self._checked(name, function)
        raise _Refused(f"{LIBRARY} has no {names[0]}")

    def _checked(self, name: str, function: Any) -> Any:
        def checked(*arguments: Any) -> None:
            code = function(*arguments)
            if code != 0:
                raise _Refused(f"{name}: error {code}{self._words(code)}")

        return checked

    def _words(self, code: int) -> str:
        text = ctypes.c_char_p()
        explain = getattr(self._library, "cuGetErrorString", None)
        if explain is None or explain(code, ctypes.byref(text)) != 0 or not text.value:
            return ""
        return f", {text.value.decode('ascii', 'replace')}"


def _die_with(parent: int) -> None:
    """End when the parent ends, also if it already has."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _open(driver: _Driver) -> dict[str, Any]:
    """Context and memory on the first visible device; what the driver says of it."""
    count, device = ctypes.c_int(), ctypes.c_int()
    name = (ctypes.c_ubyte * 16)()
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    driver.call("cuInit")(0)
    driver.call("cuDeviceGetCount")(ctypes.byref(count))
    driver.call("cuDeviceGet")(ctypes.byref(device), 0)
    driver.call("cuDeviceGetUuid_v2", "cuDeviceGetUuid")(name, device)
    driver.call("cuDevicePrimaryCtxRetain")(ctypes.byref(context), device)
    driver.call("cuCtxSetCurrent")(context)
    driver.call("cuMemAlloc_v2")(ctypes.byref(memory), ctypes.c_size_t(HELD_BYTES))
    return {"state": "held", "uuid": f"GPU-{uuid.UUID(bytes=bytes(name))}", "count": count.value}


def main() -> None:
    """Open, tell, hold until stdin ends. The driver frees everything with the process."""
    _die_with(int(sys.argv[1]))
    try:
        told = _open(_Driver())
    except OSError as error:
        told = {"state": "absent", "detail": str(error)}
    except _Refused as error:
        told = {"state": "refused", "detail": str(error)}
    print(json.dumps(told), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
