"""What every model shares: frozen, strict, no unknown fields, no NaN."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value. Strict types, unknown fields refused, never changed after it is built."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        ser_json_inf_nan="null",
        protected_namespaces=(),
    )
