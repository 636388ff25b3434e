"""`--result-file`: the final document in a file, whole or not at all.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from typing import Any

from ..errors import PraxistError


def check_result_file(path: str | None) -> None:
    """Refuse at once what could not be written at the end. Raises `path_unusable`."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise PraxistError("path_unusable", f"--result-file {path} is a directory")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise PraxistError("path_unusable", f"--result-file: {folder} cannot be written to")


def write_result(path: str | None, content: dict[str, Any]) -> None:
    """Write the document. Raises `path_unusable`."""
    if path is None:
        return
    text = json.dumps(content, ensure_ascii=True, default=str) + "\n"
    try:
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "w", encoding="ascii") as special:
                special.write(text)
            return
        _replace(os.path.realpath(path), text)
    except OSError as error:
        raise PraxistError("path_unusable", f"--result-file {path}: {error.strerror}") from error


def _replace(path: str, text: str) -> None:
    descriptor, draft = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".result-")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
