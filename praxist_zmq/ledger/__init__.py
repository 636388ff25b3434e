"""Durable files: bytes and sequence numbers. Knows no models."""
