"""Base class and shared field types of the settings' sections."""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

TEN_YEARS_S = 315_360_000
Seconds = Annotated[float, Field(gt=0, le=TEN_YEARS_S)]
"""A time limit in seconds. The broker counts nanoseconds in 64 bits, which bounds it."""
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Tokens = Annotated[int, Field(ge=1, le=2**24)]
"""A length in tokens."""
Bytes = Annotated[int, Field(ge=1, le=2**63 - 1)]
RECORDED = {"recorded": True}
"""Validation context for the settings of an existing run."""


def _network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; write a network as 10.1.0.0/16, or one address") from error
    return text


NetworkName = Annotated[str, AfterValidator(_network)]
"""A network as `10.1.0.0/16`, or a single address."""


class Formerly(NamedTuple):
    """Annotation of a field whose default does not hold for runs that were recorded before there was the field."""

    value: Any
    """What such runs did."""


def is_recorded(info: ValidationInfo) -> bool:
    """Whether the settings of an existing run are being validated."""
    return info.context is RECORDED


class Section(BaseModel):
    """A section of the settings: immutable, no unknown keys, every number finite, every field documented."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _add_former(cls, values: Any, info: ValidationInfo) -> Any:
        """Give a recorded run what was done before there was a setting."""
        if not is_recorded(info) or not isinstance(values, Mapping):
            return values
        marks = {name: field.metadata for name, field in cls.model_fields.items() if name not in values}
        former = [
            (name, mark)
            for name, metadata in marks.items()
            for mark in metadata
            if isinstance(mark, Formerly)
        ]
        return {**values, **{name: mark.value for name, mark in former}}

    @field_validator("*", mode="wrap")
    @classmethod
    def _keep_recorded(cls, value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Accept recorded values above an upper bound: a bound that is added later must not make a run unreadable."""
        try:
            return validate(value)
        except ValidationError as error:
            only_bounds = all(problem["type"] == "less_than_equal" for problem in error.errors())
            if is_recorded(info) and only_bounds and isinstance(value, int | float):
                return value
            raise
