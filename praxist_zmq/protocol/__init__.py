"""The vocabulary: frozen models for everything that crosses a process or reaches a disk."""
