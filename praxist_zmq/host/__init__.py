"""The only contact with the clock, processes, /proc, psutil and NVML."""
