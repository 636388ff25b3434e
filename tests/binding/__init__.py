"""The binding of a task's processes to the devices of its attempt."""
