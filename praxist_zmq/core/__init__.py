"""Pure decisions: values in, values out. No clock, no files, no sockets, no randomness."""
