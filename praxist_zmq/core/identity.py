"""One identity, one experiment: sha256 over run id, generation and tag, joined by NUL.

Source: seed 000 "Submission"; peer, command, profile and ETA are not part of it.
"""

from __future__ import annotations

import hashlib


def identity_of(run_id: str, generation: int, tag: str) -> str:
    """The identity in 64 hex digits."""
    text = f"{run_id}\0{generation}\0{tag}"
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def long_job_id(identity: str, number: int) -> str:
    """The long id in 32 hex digits: another one when the identity was freed and used again."""
    return hashlib.sha256(f"{identity}\0{number}".encode()).hexdigest()[:32]
