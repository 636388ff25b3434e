"""What every model shares: frozen, strict, no unknown fields, no NaN."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


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

    @classmethod
    def known(cls, **values: Any) -> Self:
        """An instance of values that are known to fit, as they came out of validated models.

        To look at each again is most of what a view of many fields costs. Every field must be
        given; raises TypeError otherwise. Never for what came from outside, and never for an event.
        """
        names = _names(cls)
        if values.keys() != names:
            raise TypeError(f"{cls.__name__}: {sorted(values.keys() ^ names)}")
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", values)
        object.__setattr__(made, "__pydantic_fields_set__", names)
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made


class Grown(Frozen):
    """A value that got fields since a release that still reads it.

    That release refuses what it does not know, so a field of `added` is written only where it is
    not as it is by default, as everything was when that release was made.
    """

    added: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        for name in self.added:
            if getattr(self, name) == type(self).model_fields[name].default:
                del written[name]
        return written


@cache
def _names(cls: type[BaseModel]) -> set[str]:
    """Shared by all instances that `known` made: not to be changed."""
    return set(cls.model_fields)
