"""The catalogue of seeded faults holds together: each is implemented where it says."""

import ast
import json
from pathlib import Path

import numpy
import pytest
from safetensors.numpy import load_file, save_file

from harness import export_faults
from harness.faults import FAULTS, KERNEL_MUTANTS, STACKSIDE
from harness.recipe import CHECKS, load_recipes


def stackside_names(root: Path) -> set[str]:
    """The names that `harness/stackside` knows, read from its source: it cannot be imported here."""
    names: set[str] = set()
    for path in (*(root / "harness" / "stackside").glob("*.py"), *(root / "recipes").glob("*/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                function = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if function in ("_fault", "asked"):
                    names.add(str(node.args[0].value))
    return names


def test_every_fault_inside_the_stack_is_implemented_and_listed(root: Path) -> None:
    assert stackside_names(root) == STACKSIDE - KERNEL_MUTANTS


def test_every_export_fault_is_implemented_and_listed() -> None:
    assert set(export_faults._FAULTS) == {fault.name for fault in FAULTS.values() if fault.where == "export"}


def test_every_fault_says_which_check_catches_it_and_where(root: Path) -> None:
    recipes = load_recipes(root)
    for fault in FAULTS.values():
        recipe, _, run = fault.seen_in.partition("/")
        assert run in recipes[recipe].runs, fault.name
        if fault.caught_by != "preflight":
            assert fault.caught_by in recipes[recipe].runs[run].checks, fault.name


def test_every_check_has_a_fault_that_it_catches() -> None:
    covered = {fault.caught_by for fault in FAULTS.values()}
    # These two are failed by a changed recipe and by unit tests: no fault of one run can break only them.
    assert set(CHECKS) - covered <= {"reload", "twin"}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    names = ["model.norm.weight", "lm_head.weight", "model.layers.1.mlp.down_proj.weight"]
    tensors = {name: numpy.full((64, 64), index, numpy.float32) for index, name in enumerate(names)}
    save_file(tensors, tmp_path / "model-00001-of-00001.safetensors")
    index = {
        "metadata": {"total_size": 3 * 64 * 64 * 4},
        "weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors"),
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def shard(export: Path) -> Path:
    return export / "model-00001-of-00001.safetensors"


def test_no_fault_changes_nothing(export: Path) -> None:
    before = shard(export).read_bytes()
    export_faults.apply(("rope-sign",), export)
    assert shard(export).read_bytes() == before


def test_the_head_is_dropped_from_file_and_index(export: Path) -> None:
    export_faults.apply(("export-head-dropped",), export)
    assert "lm_head.weight" not in load_file(shard(export))
    index = json.loads((export / "model.safetensors.index.json").read_text())
    assert "lm_head.weight" not in index["weight_map"]
    assert index["metadata"]["total_size"] == 2 * 64 * 64 * 4


def test_one_key_is_renamed(export: Path) -> None:
    export_faults.apply(("export-key-renamed",), export)
    assert {"model.final_norm.weight"} == set(load_file(shard(export))) - {
        "lm_head.weight",
        "model.layers.1.mlp.down_proj.weight",
    }


def test_one_tensors_values_change_and_nothing_else(export: Path) -> None:
    before = load_file(shard(export))
    export_faults.apply(("export-values-changed",), export)
    after = load_file(shard(export))
    assert before.keys() == after.keys()
    assert [name for name in before if not numpy.array_equal(before[name], after[name])] == [
        "model.layers.1.mlp.down_proj.weight"
    ]


def test_the_file_ends_early(export: Path) -> None:
    size = shard(export).stat().st_size
    export_faults.apply(("export-truncated",), export)
    assert shard(export).stat().st_size == size - 4096


def test_a_stale_checkpoint_looks_like_one(tmp_path: Path) -> None:
    export_faults.leave_stale_checkpoint(tmp_path / "dump")
    assert (tmp_path / "dump" / "checkpoint" / "step-20" / ".metadata").exists()
