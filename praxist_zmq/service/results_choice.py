"""Which command reads the task's result store: the one asked for, else that of the last start.

Kept in `results_command.json`, as the devices are. A file that cannot be understood refuses the
start instead of guessing. Never runs the command.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from ..core import credentials
from ..errors import PraxistError
from ..ledger.files import read_limited, write_atomically
from ..protocol.codec import explain
from ..protocol.text import from_bytes
from .child_config import ResultsCommand

NO_READER = "none"
"""The request for no reader, whatever the last start had."""
_BYTES_MAX = 65_536

ReaderRequest = ResultsCommand | str | None
"""What `up` was asked for: a command, `NO_READER`, or None: as at the last start."""


def choose_reader(path: Path, asked: ReaderRequest) -> ResultsCommand | None:
    """The command to use; `path` is the run's `results_command.json`.

    Raises `literal_secret` for a command that holds a credential: it is kept in a file. Raises
    `path_unusable` or `unsafe_path` when nothing was asked for and the file is there but cannot be
    understood.
    """
    if isinstance(asked, ResultsCommand):
        _refuse_secrets(asked)
        return asked
    if asked is not None:
        return None
    try:
        return ResultsCommand.model_validate_json(read_limited(path, _BYTES_MAX))
    except FileNotFoundError:
        return None
    except (ValidationError, PraxistError) as error:
        if isinstance(error, PraxistError) and error.code != "too_large":
            raise
        why = explain(error) if isinstance(error, ValidationError) else error.detail
        raise PraxistError(
            "path_unusable",
            f"{path} does not tell which command reads the results: {why}",
            ["say which: --results-command CMD, or --results-command none"],
        ) from None


def _refuse_secrets(asked: ResultsCommand) -> None:
    """The command sees the environment of `up`, so none of its values need stand in its words."""
    environment = {os.fsdecode(n): from_bytes(v) for n, v in os.environb.items()}
    _, secrets = credentials.split_environment(b"", environment)
    credentials.store_command(asked.command, {})
    for word in asked.command:
        credentials.refuse_in_plain("the results command", word, secrets)


def remember_reader(path: Path, command: ResultsCommand | None) -> None:
    """Keep the choice for the next start, durably. Raises `no_space`, `path_unusable`."""
    if command is None:
        path.unlink(missing_ok=True)
    else:
        write_atomically(path, json.dumps(command.model_dump()).encode() + b"\n")
