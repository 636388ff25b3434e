"""An experiment scheduler for GPU hosts shared by research agents."""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is a third of the memory that every fork of a shim copies
if TYPE_CHECKING:
    from typing import Any

    from .client import Client
    from .errors import PraxistError

__version__ = "0.1.0"
__all__ = ["Client", "PraxistError", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the client and its errors only when used: most processes of ours do without."""
    if name == "Client":
        from .client import Client

        return Client
    if name == "PraxistError":
        from .errors import PraxistError

        return PraxistError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
