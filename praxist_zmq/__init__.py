"""An experiment scheduler for GPU hosts shared by research agents."""

__version__ = "0.1.0"
