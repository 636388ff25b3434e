"""All machines in one thread: a fake clock, a fake network, a fake disk, and seeded faults."""
