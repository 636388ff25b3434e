"""All machines in one thread, on a fake clock, a fake network and a fake disk, with seeded faults."""
