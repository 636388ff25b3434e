"""Processes that have nothing to do with us: whatever happens, nobody may signal them."""

from __future__ import annotations

import os
import subprocess


class Canaries:
    """One in a session of its own, one in our group.

    Both have the environment that the first attempt of another run has.
    """

    def __init__(self, run_dir: str) -> None:
        environment = {
            **os.environ,
            "PRAXIST_RUN_DIR": f"{run_dir}-other",
            "PRAXIST_EXPERIMENT_ID": "j-1",
            "PRAXIST_EXPERIMENT_ATTEMPT_ID": "j-1.1",
            "PRAXIST_EXPERIMENT_ATTEMPT_DIR": f"{run_dir}-other/resource_scheduler/attempts/j-1.1",
        }
        self._processes = [
            subprocess.Popen(["sleep", "600"], env=environment, start_new_session=own, cwd=run_dir)
            for own in (True, False)
        ]

    @property
    def pids(self) -> set[int]:
        """Their process ids."""
        return {process.pid for process in self._processes}

    def check(self) -> None:
        """Fails when one of them ended."""
        for process in self._processes:
            assert process.poll() is None, f"canary {process.pid} ended: {process.returncode}"

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            process.wait()
