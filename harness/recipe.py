"""A recipe: `recipes/<name>/recipe.yaml`, its runs and their checks."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from harness.errors import UserError
from harness.files import FileModel, load_model
from harness.stack import Profile, Stack

__all__ = ["CHECKS", "Override", "Recipe", "Run", "list_recipes", "load_recipe", "load_recipes"]

CHECKS = (
    "configuration",
    "loss",
    "reference",
    "weights",
    "ranks",
    "buffers",
    "keys",
    "reload",
    "overrides",
    "kernel",
    "twin",
)
"""Every check there is, in the order in which they are judged and shown."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Override(FileModel):
    """What a run asks of torchtitan's override registry."""

    imports: tuple[str, ...]
    sites: str
    """Name of an overridden module per layer, with `{layer}` in it."""
    layers: str = "layers"
    """Key of the recipe's sizes that holds the number of layers."""


class Run(FileModel):
    """One of a recipe's runs."""

    summary: str
    kind: Literal["train", "reload", "kernel-probe"]
    config: str | None = None
    """Config function of the recipe's `config.py` (training runs)."""
    model: str
    """Role of the stack's assets that gives the tokenizer, the architecture and the published weights."""
    initial: Literal["random", "published"] = "random"
    mask: Literal["causal", "block_causal"] = "causal"
    """The attention mask this path evaluates on packed documents."""
    export: bool = False
    """The last checkpoint is written as Hugging Face safetensors."""
    override: Override | None = None
    after: str | None = None
    """Another run of the recipe whose evidence this one needs."""
    twin: str | None = None
    """Another run of the recipe that must give bitwise the same losses and gradient norms."""
    configuration: dict[str, Any] = Field(default_factory=dict)
    """Further values of the resolved torchtitan configuration; `${...}` is filled in from the profile."""
    checks: tuple[Annotated[str, Field()], ...]

    @field_validator("checks")
    @classmethod
    def _known_checks(cls, checks: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in checks if name not in CHECKS]
        if unknown:
            raise ValueError(f"no check is called {unknown[0]!r}; the checks are {', '.join(CHECKS)}")
        if not checks:
            raise ValueError("a run without a check verifies nothing")
        if len(set(checks)) != len(checks):
            raise ValueError("a check stands twice")
        return tuple(sorted(checks, key=CHECKS.index))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.kind == "train") != (self.config is not None):
            raise ValueError(
                "`config` names a training run's config function: give it for kind train, and only there"
            )
        needs = {
            "keys": self.export,
            "weights": self.initial == "published",
            "reference": self.initial == "published",
            "twin": self.twin is not None,
            "reload": self.kind == "reload",
        }
        for check, given in needs.items():
            if check in self.checks and not given:
                raise ValueError(f"check {check!r} has nothing to judge in this run")
        return self


class Recipe(FileModel):
    """A recipe as its file states it."""

    name: str
    summary: str
    module: str = "config"
    sizes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Profile name -> the sizes of this recipe's own model, where it has one."""
    runs: dict[str, Run]
    folder: Path = Field(default=Path(), exclude=True)

    @field_validator("runs")
    @classmethod
    def _run_names(cls, runs: dict[str, Run]) -> dict[str, Run]:
        if not runs:
            raise ValueError("a recipe without runs verifies nothing")
        order = list(runs)
        for name, run in runs.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"run name {name!r}: lower-case words joined by hyphens are expected")
            for other in (run.after, run.twin):
                if other is not None and other not in order[: order.index(name)]:
                    raise ValueError(f"run {name!r} needs {other!r}, which does not stand before it")
        return runs

    def sizes_for(self, profile: Profile) -> dict[str, Any]:
        """Return this recipe's sizes at `profile`. Raises `UserError` if it has sizes, but not for this one."""
        if not self.sizes:
            return {}
        if profile.name not in self.sizes:
            raise UserError(
                f"{self.folder / 'recipe.yaml'}: `sizes` has no profile {profile.name!r} "
                f"(it has {', '.join(self.sizes)}). Next: add it, or choose another stack."
            )
        return self.sizes[profile.name]

    def runs_on(self, stack: Stack) -> dict[str, Run]:
        """Return the runs that `stack` has the assets for, in the file's order."""
        return {name: run for name, run in self.runs.items() if run.model in stack.assets.models}

    def digest(self) -> str:
        """SHA-256 (hex) of the recipe's files but its expectations, by relative path: edit one, and it changes."""
        total = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            inside = path.relative_to(self.folder)
            if path.is_file() and inside.parts[0] != "expectations" and "__pycache__" not in inside.parts:
                total.update(
                    f"{inside.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
                )
        return total.hexdigest()


def list_recipes(root: Path) -> list[str]:
    """Return the names of the recipes under `root/recipes`, sorted."""
    return sorted(path.parent.name for path in (root / "recipes").glob("*/recipe.yaml"))


def load_recipe(path: Path) -> Recipe:
    """Return the recipe in file `path`. Raises `UserError` if the file is wrong."""
    recipe = load_model(path, Recipe)
    if recipe.name != path.parent.name:
        raise UserError(
            f"{path}: `name` is {recipe.name!r}, but the folder is {path.parent.name!r}. Next: make them equal."
        )
    return recipe.model_copy(update={"folder": path.parent.resolve()})


def load_recipes(root: Path, names: tuple[str, ...] = ()) -> dict[str, Recipe]:
    """Return the named recipes (all when `names` is empty) by name. Raises `UserError` for an unknown one."""
    known = list_recipes(root)
    for name in names:
        if name not in known:
            raise UserError(
                f"no recipe `{name}` in {root / 'recipes'}. Next: choose one of: {', '.join(known) or 'none'}."
            )
    return {name: load_recipe(root / "recipes" / name / "recipe.yaml") for name in (names or known)}


def fill(value: Any, values: Mapping[str, Any]) -> Any:
    """Return `value` with a whole-string `${name}` replaced by `values[name]`; other values unchanged.

    Raises `UserError` for a name that is not there.
    """
    if not (isinstance(value, str) and value.startswith("${") and value.endswith("}")):
        return value
    name = value[2:-1]
    if name not in values:
        raise UserError(f"`{value}`: nothing is called {name!r}; known are {', '.join(sorted(values))}")
    return values[name]
