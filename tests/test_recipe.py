"""Recipes: their files, and what a wrong one says."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.recipe import CHECKS, fill, list_recipes, load_recipe, load_recipes
from harness.stack import load_stack

GOOD = """
name: sample
summary: a sample
runs:
  first:
    summary: trains
    kind: train
    config: start
    model: published
    checks: [loss, configuration]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sample" / "recipe.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_the_recipes_that_ship_load(root: Path) -> None:
    assert list_recipes(root) == ["hf-backend", "moe-nki", "native"]
    recipes = load_recipes(root)
    judged = {check for recipe in recipes.values() for run in recipe.runs.values() for check in run.checks}
    assert judged == set(CHECKS), "a check that no recipe uses is never seen to work"


def test_checks_are_kept_in_the_order_they_are_judged(tmp_path: Path) -> None:
    assert load_recipe(written(tmp_path, GOOD)).runs["first"].checks == ("configuration", "loss")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[loss, configuration]", "[loss, losses]", "no check is called 'losses'"),
        ("[loss, configuration]", "[]", "verifies nothing"),
        ("[loss, configuration]", "[loss, loss]", "twice"),
        ("[loss, configuration]", "[keys]", "'keys' has nothing to judge"),
        ("[loss, configuration]", "[reference]", "'reference' has nothing to judge"),
        ("    config: start\n", "", "config function"),
        ("kind: train", "kind: reload", "config function"),
        ("kind: train", "kind: dance", "'dance'"),
        ("  first:", "  First Run:", "lower-case"),
        ("    model: published\n", "    model: published\n    after: later\n", "'later'"),
        ("name: sample", "name: other", "'other'"),
    ],
)
def test_a_wrong_recipe_says_what_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(UserError, match=words) as raised:
        load_recipe(path)
    assert str(path) in str(raised.value)


def test_a_recipe_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="verifies nothing"):
        load_recipe(written(tmp_path, "name: sample\nsummary: none\nruns: {}\n"))


def test_an_unknown_recipe_names_the_known_ones(root: Path) -> None:
    with pytest.raises(UserError, match="hf-backend, moe-nki, native"):
        load_recipes(root, ("absent",))


def test_a_stack_has_the_runs_it_has_assets_for(root: Path) -> None:
    recipe = load_recipes(root)["hf-backend"]
    assert "published-weights-tied" in recipe.runs_on(load_stack(root, "cpu"))
    assert "published-weights-tied" not in recipe.runs_on(load_stack(root, "trn2"))


def test_sizes_come_from_the_stacks_profile(root: Path) -> None:
    recipe = load_recipes(root)["moe-nki"]
    full = recipe.sizes_for(load_stack(root, "trn2").profile)
    assert (full["layers"], full["experts"], full["top_k"]) == (4, 64, 4)
    profile = load_stack(root, "cpu").profile.model_copy(update={"name": "medium"})
    with pytest.raises(UserError, match="'medium'"):
        recipe.sizes_for(profile)


def test_the_digest_follows_the_recipe_but_not_its_expectations(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    before = load_recipe(path).digest()
    (path.parent / "expectations").mkdir()
    (path.parent / "expectations" / "cpu.yaml").write_text("recipe: sample\n")
    assert load_recipe(path).digest() == before
    (path.parent / "config.py").write_text("def start(): ...\n")
    assert load_recipe(path).digest() != before


def test_placeholders_are_filled_whole_and_unknown_ones_refused() -> None:
    assert fill("${steps}", {"steps": 10}) == 10
    assert fill("steps", {"steps": 10}) == "steps"
    assert fill(3, {}) == 3
    with pytest.raises(UserError, match="'stops'"):
        fill("${stops}", {"steps": 10})
