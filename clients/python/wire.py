"""Writes times as the service does: RFC 3339 in UTC with milliseconds."""

from datetime import datetime, timezone
from typing import Any

import pydantic_core
from pydantic import BaseModel, SerializerFunctionWrapHandler, field_serializer


class WireModel(BaseModel):
    """The base of all models; ``model_dump_json`` writes times as the service does."""

    @field_serializer("*", mode="wrap", when_used="json")
    def _write(self, value: Any, write: SerializerFunctionWrapHandler) -> Any:
        return _write_time(value) if isinstance(value, datetime) else write(value)


def to_jsonable_python(value: Any) -> Any:
    """Converts the dictionary of a model, as ``to_json`` does, with times as the service writes them."""
    if isinstance(value, dict):
        return {name: to_jsonable_python(member) for name, member in value.items()}
    if isinstance(value, list):
        return [to_jsonable_python(item) for item in value]
    return _write_time(value) if isinstance(value, datetime) else pydantic_core.to_jsonable_python(value)


def _write_time(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
