"""Whether this machine lets a test make pid namespaces."""

from __future__ import annotations

import subprocess

import pytest

_tried = subprocess.run(
    ["unshare", "-pf", "--mount-proc", "true"], capture_output=True, text=True, check=False
)
needs_namespaces = pytest.mark.skipif(
    _tried.returncode != 0, reason=f"no pid namespace may be made here: {_tried.stderr.strip()}"
)
