"""What a user types. The only import of click."""
