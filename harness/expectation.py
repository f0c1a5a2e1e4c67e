"""An expectation: a value to hold, with where it comes from. `recipes/<name>/expectations/<stack>.yaml`."""

import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from harness.errors import UserError
from harness.files import FileModel, load_model
from harness.recipe import Recipe
from harness.stack import Stack

__all__ = ["Band", "Expectations", "Measured", "Published", "load_expectations"]


class Published(FileModel):
    """A value somebody published, and how far from it a run may be."""

    kind: Literal["published"]
    value: float
    tolerance: Annotated[float, Field(gt=0)]
    source: str
    date: datetime.date

    @property
    def low(self) -> float:
        """Lower end of the band."""
        return self.value - self.tolerance

    @property
    def high(self) -> float:
        """Upper end of the band."""
        return self.value + self.tolerance

    def origin(self) -> str:
        """Say in a few words where the value comes from."""
        return f"published {self.value} ({self.source}, {self.date})"


class Measured(FileModel):
    """A band derived from runs of our own."""

    kind: Literal["measured"]
    low: float
    high: float
    values: tuple[float, ...]
    rule: str
    command: str
    date: datetime.date
    packages: dict[str, str]

    @model_validator(mode="after")
    def _band_holds_its_values(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if not self.values:
            raise ValueError("a measured band names the values it was measured from")
        outside = [value for value in self.values if not self.low <= value <= self.high]
        if outside:
            raise ValueError(f"value {outside[0]} lies outside the band it is the ground of")
        return self

    def origin(self) -> str:
        """Say in a few words where the band comes from."""
        return f"measured from {len(self.values)} runs on {self.date}: {self.rule}"


Band = Annotated[Published | Measured, Field(discriminator="kind")]


class RunExpectations(FileModel):
    """What one run is expected to give."""

    first_loss: Band | None = None
    falls_by: Annotated[float, Field(gt=0)] | None = None
    """Least fall of the loss from the first step to the lowest of the last three."""


class Expectations(FileModel):
    """The expectations of one recipe on one stack."""

    recipe: str
    stack: str
    runs: dict[str, RunExpectations]


def load_expectations(recipe: Recipe, stack: Stack) -> Expectations:
    """Return the recipe's expectations for `stack`; none at all where the recipe has no such file.

    Raises `UserError` if the file is wrong or speaks of another recipe or stack.
    """
    path = expectations_path(recipe, stack.name)
    if not path.is_file():
        return Expectations(recipe=recipe.name, stack=stack.name, runs={})
    found = load_model(path, Expectations)
    if (found.recipe, found.stack) != (recipe.name, stack.name):
        raise UserError(
            f"{path}: speaks of recipe {found.recipe!r} on stack {found.stack!r}. Next: correct it or move it."
        )
    for name in found.runs:
        if name not in recipe.runs:
            raise UserError(
                f"{path}: `runs.{name}`: the recipe has no such run. Next: one of {', '.join(recipe.runs)}."
            )
    return found


def expectations_path(recipe: Recipe, stack_name: str) -> Path:
    """Return where the recipe's expectations for a stack lie."""
    return recipe.folder / "expectations" / f"{stack_name}.yaml"
