"""Expectations: bands with where they come from."""

import shutil
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.expectation import expectations_path, load_expectations
from harness.recipe import Recipe, load_recipe
from harness.stack import load_stack


@pytest.fixture
def recipe(tmp_path: Path, root: Path) -> Recipe:
    shutil.copytree(root / "recipes" / "native", tmp_path / "native")
    return load_recipe(tmp_path / "native" / "recipe.yaml")


MEASURED = """
recipe: native
stack: cpu
runs:
  random-init:
    first_loss:
      kind: measured
      low: 6.0
      high: 6.5
      values: [6.2, 6.3]
      rule: lowest and highest of the runs, widened by three times their spread
      command: python -m benchmarks.random_init
      date: 2026-11-30
      packages: {torch: 2.14.0}
"""


def write(recipe: Recipe, text: str) -> Path:
    path = expectations_path(recipe, "cpu")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_recipe_without_a_file_expects_nothing(recipe: Recipe, root: Path) -> None:
    shutil.rmtree(recipe.folder / "expectations")
    assert load_expectations(recipe, load_stack(root, "cpu")).runs == {}


def test_a_measured_band_says_where_it_comes_from(recipe: Recipe, root: Path) -> None:
    write(recipe, MEASURED)
    band = load_expectations(recipe, load_stack(root, "cpu")).runs["random-init"].first_loss
    assert band is not None
    assert "measured from 2 runs on 2026-11-30" in band.origin()


def test_a_published_value_says_where_it_comes_from(recipe: Recipe, root: Path) -> None:
    text = """
recipe: native
stack: cpu
runs:
  random-init:
    first_loss: {kind: published, value: 12.43, tolerance: 0.15, source: a guide, date: 2026-10-21}
"""
    write(recipe, text)
    band = load_expectations(recipe, load_stack(root, "cpu")).runs["random-init"].first_loss
    assert band is not None
    assert "a guide" in band.origin()
    assert (round(band.low, 2), round(band.high, 2)) == (12.28, 12.58)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("low: 6.0", "low: 7.0", "not below"),
        ("values: [6.2, 6.3]", "values: []", "names the values"),
        ("values: [6.2, 6.3]", "values: [6.2, 6.9]", "6.9 lies outside"),
        ("recipe: native", "recipe: other", "'other'"),
        ("stack: cpu", "stack: trn2", "'trn2'"),
        ("  random-init:", "  randm-init:", "no such run"),
        ("kind: measured", "kind: guessed", "guessed"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(recipe: Recipe, root: Path, old: str, new: str, words: str) -> None:
    assert old in MEASURED
    write(recipe, MEASURED.replace(old, new))
    with pytest.raises(UserError, match=words):
        load_expectations(recipe, load_stack(root, "cpu"))
