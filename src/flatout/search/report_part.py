"""What all parts of a study's report share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Figure = Annotated[float, Field(ge=-1e300, le=1e300)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Curve = list[Figure | None]  # None where there is a gap


class ReportPart(BaseModel):
    """A part of a report. Of an empty one nothing was computed."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)

    def facts(self) -> dict[str, object]:
        """What is there, by the names that it has in the file."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
