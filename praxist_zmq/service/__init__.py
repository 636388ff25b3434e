"""The processes: imperative shells around pure machines, without policy."""
