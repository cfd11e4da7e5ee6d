"""What every section of the settings is."""

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


def _network(written: str) -> str:
    try:
        ip_network(written)
    except ValueError as error:
        raise ValueError(f"{error}; write a network as 10.1.0.0/16, or one address") from error
    return written


NetworkName = Annotated[str, AfterValidator(_network)]
"""A network as `10.1.0.0/16`, or a single address."""


class Section(BaseModel):
    """A section of the settings: immutable, no unknown keys, every field documented."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
