"""What every section of the settings is."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A section of the settings: immutable, no unknown keys, every field documented."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
