"""Loading a recipe's kernel, whole or with a seeded fault."""

import inspect
from pathlib import Path

import pytest

from harness.stackside.nki import kernel_source
from harness.stackside.nki.kernel_source import Mutant, MutantError


def test_every_mutant_fits_the_shipped_source(recipe_dir: Path) -> None:
    mutants = kernel_source.read_mutants(recipe_dir)
    assert len(mutants) >= 10
    for mutant in mutants.values():
        shipped = (recipe_dir / mutant.file).read_text("utf-8")
        changed = mutant.apply(shipped)
        assert changed != shipped
        assert changed.count("\n") == shipped.count("\n")
        compile(changed, mutant.file, "exec")


def test_a_text_that_is_not_there_once_is_an_error() -> None:
    with pytest.raises(MutantError, match="0 times, expected once"):
        Mutant("m", "f.py", "", (("absent", "x"),)).apply("present")
    with pytest.raises(MutantError, match="2 times, expected once"):
        Mutant("m", "f.py", "", (("a", "x"),)).apply("a a")


def test_a_mutant_keeps_the_lines() -> None:
    with pytest.raises(MutantError, match="would move the lines"):
        Mutant("m", "f.py", "", (("a", "x\ny"),)).apply("a")


def test_an_unknown_mutant_names_the_known_ones(recipe_dir: Path) -> None:
    with pytest.raises(MutantError, match=r"no mutant 'typo'.*store-removed"):
        kernel_source.load_recipe(recipe_dir, "typo")


def test_a_mutant_for_another_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mutants.toml").write_text('[m]\nfile = "other.py"\ndescription = ""\nsubstitutions = []\n')
    with pytest.raises(MutantError, match=r"other\.py is not a kernel or op file"):
        kernel_source.load_recipe(tmp_path, "m")


def test_a_mutants_file_is_read_strictly(tmp_path: Path) -> None:
    (tmp_path / "mutants.toml").write_text('[m]\nfile = "a.py"\nsubstitution = []\n')
    with pytest.raises(MutantError, match=r"\[m\] needs exactly file, description and substitutions"):
        kernel_source.read_mutants(tmp_path)


def test_a_loaded_module_keeps_its_file_and_shows_the_text_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "some_kernel.py"
    path.write_text("def answer():\n    return 42\n")
    mutant = Mutant("m", path.name, "", (("42", "43"),))
    module = kernel_source.load_source(path, "some_kernel", mutant)
    assert module.answer() == 43
    assert module.answer.__code__.co_filename == str(path)
    assert "43" in inspect.getsource(module.answer)
    assert kernel_source.load_source(path, "some_kernel").answer() == 42


def test_a_module_that_raises_is_not_left_behind(tmp_path: Path) -> None:
    import sys

    path = tmp_path / "broken_kernel.py"
    path.write_text("raise OSError('no')\n")
    with pytest.raises(OSError, match="no"):
        kernel_source.load_source(path, "broken_kernel")
    assert "broken_kernel" not in sys.modules
