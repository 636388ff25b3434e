"""What the runs of the host are called: by the registry's view, those without a scheduler too."""

from __future__ import annotations

from ..protocol.claims import HostView
from ..protocol.views import HoldingRun

KEY_SHOWN = 12
"""Of a run of which only its key is known."""


def holding_run(view: HostView | None, run_key: str) -> HoldingRun:
    """A run that holds something, by the key in its rows."""
    if view is not None:
        for run in view.runs:
            if run.run_key == run_key:
                return HoldingRun(run_id=run.run_id, down=False)
        for run in view.down:
            if run.run_key == run_key:
                return HoldingRun(run_id=run.run_id, down=True)
    return HoldingRun(run_id=run_key[:KEY_SHOWN], down=view is not None)


def run_words(view: HostView | None, run_key: str) -> str:
    """`r1`, or `r1 (down)` for a run that no scheduler serves."""
    run = holding_run(view, run_key)
    return f"{run.run_id} (down)" if run.down else run.run_id
