"""Load a recipe's kernel and op from their files, optionally with a named fault seeded into the source.

A fault (a mutant) is a list of exact text substitutions in one file of the recipe. File name and
line numbers stay as shipped, so that nothing but its behaviour gives a mutant away. Mutants are kept
in `mutants.toml` beside the kernel.
"""

import linecache
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

__all__ = ["MUTANTS_FILE", "Mutant", "MutantError", "load_recipe", "load_source", "read_mutants"]

MUTANTS_FILE = "mutants.toml"


class MutantError(ValueError):
    """A mutant is unknown, or does not fit the source it is meant for."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A seeded fault: `substitutions` of (shipped text, faulty text) in `file`."""

    name: str
    file: str
    description: str
    substitutions: tuple[tuple[str, str], ...]

    def apply(self, text: str) -> str:
        """Return `text` with the fault in it.

        Raises MutantError unless each shipped text is there exactly once and has as many lines as
        its replacement.
        """
        for old, new in self.substitutions:
            found = text.count(old)
            if found != 1:
                raise MutantError(f"mutant {self.name}: {self.file} has {old!r} {found} times, expected once")
            if old.count("\n") != new.count("\n"):
                raise MutantError(f"mutant {self.name}: {new!r} would move the lines of {self.file}")
            text = text.replace(old, new)
        return text


def read_mutants(recipe_dir: Path) -> dict[str, Mutant]:
    """Return the recipe's mutants by name; MutantError for a file with an unknown or missing key."""
    path = recipe_dir / MUTANTS_FILE
    mutants = {}
    for name, entry in tomllib.loads(path.read_text("utf-8")).items():
        if set(entry) != {"file", "description", "substitutions"}:
            raise MutantError(
                f"{path}: [{name}] needs exactly file, description and substitutions, has {sorted(entry)}"
            )
        pairs = tuple((str(old), str(new)) for old, new in entry["substitutions"])
        mutants[name] = Mutant(name, entry["file"], entry["description"], pairs)
    return mutants


def load_source(path: Path, name: str, mutant: Mutant | None = None) -> ModuleType:
    """Execute the file at `path` as module `name`, with `mutant` if it is for this file; return the module.

    The module replaces any of that name in `sys.modules`.
    """
    text = path.read_text("utf-8")
    if mutant is not None and mutant.file == path.name:
        text = mutant.apply(text)
    filename = str(path.absolute())
    # Tracebacks and inspect.getsource (which AWS's tracer uses) must see the text that runs.
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    try:
        exec(compile(text, filename, "exec"), module.__dict__)  # noqa: S102 - the recipe's own file
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_recipe(recipe_dir: Path, mutant: str | None = None) -> ModuleType:
    """Load `rope_kernel` and then `rope_op` from `recipe_dir` and return the op's module.

    Raises MutantError for an unknown `mutant` or one for a file that is not loaded here.
    """
    # Binds `nki`; an import here and not above, so that reading mutants needs no backend.
    from harness.stackside.nki.resolver import resolve

    resolve()
    files = {"rope_kernel": recipe_dir / "rope_kernel.py", "rope_op": recipe_dir / "rope_op.py"}
    chosen = None
    if mutant is not None:
        known = read_mutants(recipe_dir)
        if mutant not in known:
            raise MutantError(
                f"no mutant {mutant!r} in {recipe_dir / MUTANTS_FILE}; there are: {', '.join(known)}"
            )
        chosen = known[mutant]
        if chosen.file not in {path.name for path in files.values()}:
            raise MutantError(f"mutant {mutant}: {chosen.file} is not a kernel or op file")
    modules = [load_source(path, name, chosen) for name, path in files.items()]
    return modules[-1]
