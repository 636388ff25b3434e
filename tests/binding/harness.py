"""A task harness as a task would write it: an evaluator, a trainer below a shell, a worker below
another shell. Each binds first and writes what it sees as one line of JSON.

`harness.py FILE LEVELS SCRIPT`: SCRIPT is shell text between a process and its child, such as
`unset CUDA_VISIBLE_DEVICES;`. A binding that fails ends the process, and those above, with 65.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from praxist_zmq import binding

CONFLICT = 65
KEPT = (binding.ASSIGNED, binding.NARROWED, *binding.MASKS)


def main(path: str, levels: str, script: str) -> int:
    """Bind, say what is seen, and go one level down."""
    try:
        given = binding.bind()
    except binding.BindingError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return CONFLICT
    seen = {name: os.environ.get(name) for name in KEPT}
    with open(path, "a", encoding="utf-8") as file:
        file.write(
            json.dumps({"uuids": given.uuids, "standalone": given.standalone, **seen}) + "\n"
        )
    if levels == "1":
        return 0
    below = [sys.executable, __file__, path, str(int(levels) - 1), script]
    shell = ["/bin/sh", "-c", f'{script} exec "$@"', "sh", *below]
    return subprocess.run(shell, env=binding.child_environment(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
