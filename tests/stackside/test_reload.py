"""Loading an export again: what both ways miss, and the logits they give."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from harness.stackside.digests import tensor_sha256
from harness.stackside.reload import INDEX, main, read_export, run

NORM = "model.layers.1.self_attn.q_norm.weight"


@pytest.fixture
def source(made_assets: Path) -> Path:
    """The untied checkpoint."""
    return made_assets / "qwen3-tiny"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def trained(folder: Path) -> dict[str, torch.Tensor]:
    """Weights that differ from the source's a little everywhere."""
    return {name: tensor * 1.01 for name, tensor in weights(folder).items()}


def export(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """Write tensors as torchtitan does: two files and an index, no configuration."""
    folder.mkdir()
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    (folder / INDEX).write_text(json.dumps(index))
    return folder


def reloaded(folder: Path, tensors: dict[str, torch.Tensor], source: Path, **more: Any) -> dict[str, Any]:
    return run({"export": str(export(folder, tensors)), "model": str(source), "output": None, **more})


def test_a_whole_export_loads_both_ways_with_equal_logits(source: Path, tmp_path: Path) -> None:
    record = reloaded(tmp_path / "export", trained(source), source)
    assert record["load_state_dict"] == {"missing": [], "unexpected": [], "mismatched": []}
    assert record["from_pretrained"] == {
        "missing_keys": [],
        "unexpected_keys": [],
        "mismatched_keys": [],
        "error_msgs": [],
    }
    logits = record["logits"]
    assert logits["state_dict_sha256"] == logits["from_pretrained_sha256"]
    assert logits["reference_sha256"] is None
    assert logits["max_abs_diff"] == 0.0
    assert logits["std"] > 0.1
    assert logits["moved_from_source"] > 1e-3
    assert record["tensors"] == 25
    assert record["dtypes"] == {"float32": 25}
    assert record["tied"] is False
    assert record["norm_weights_constant"] is False
    assert record["compared_to"] == str(source)


def test_an_export_of_the_source_did_not_move(source: Path, tmp_path: Path) -> None:
    record = reloaded(tmp_path / "export", weights(source), source)
    assert record["logits"]["moved_from_source"] == 0.0


def test_the_export_itself_is_left_alone(source: Path, tmp_path: Path) -> None:
    reloaded(tmp_path / "export", trained(source), source)
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        INDEX,
    ]


def test_a_missing_tensor_is_reported_by_both(source: Path, tmp_path: Path) -> None:
    tensors = trained(source)
    del tensors[NORM]
    record = reloaded(tmp_path / "export", tensors, source)
    assert record["load_state_dict"]["missing"] == [NORM]
    assert record["from_pretrained"]["missing_keys"] == [NORM]
    assert record["tensors"] == 24


def test_an_unknown_tensor_is_reported_by_both(source: Path, tmp_path: Path) -> None:
    record = reloaded(tmp_path / "export", {**trained(source), "model.extra": torch.ones(2)}, source)
    assert record["load_state_dict"]["unexpected"] == ["model.extra"]
    assert record["from_pretrained"]["unexpected_keys"] == ["model.extra"]


def test_a_tensor_of_another_shape_is_reported_by_both(source: Path, tmp_path: Path) -> None:
    record = reloaded(tmp_path / "export", {**trained(source), NORM: torch.ones(16)}, source)
    assert record["load_state_dict"] == {"missing": [], "unexpected": [], "mismatched": [NORM]}
    assert [entry[0] for entry in record["from_pretrained"]["mismatched_keys"]] == [NORM]
    json.dumps(record)


def test_an_export_that_from_pretrained_cannot_read_is_recorded(source: Path, tmp_path: Path) -> None:
    folder = export(tmp_path / "export", trained(source))
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"][NORM] = "model-00009-of-00002.safetensors"
    (folder / INDEX).write_text(json.dumps(index))
    record = run({"export": str(folder), "model": str(source), "output": None})
    (message,) = record["from_pretrained"]["error_msgs"]
    assert "model-00009-of-00002.safetensors" in message
    assert record["logits"]["from_pretrained_sha256"] is None
    assert record["logits"]["max_abs_diff"] is None
    assert record["load_state_dict"]["missing"] == []


def test_a_tied_export_without_head(made_assets: Path, tmp_path: Path) -> None:
    source = made_assets / "qwen3-tiny-tied"
    record = reloaded(tmp_path / "export", trained(source), source)
    assert record["tied"] is True
    assert record["load_state_dict"]["missing"] == ["lm_head.weight"]
    assert record["from_pretrained"]["missing_keys"] == []
    assert record["logits"]["state_dict_sha256"] == record["logits"]["from_pretrained_sha256"]


def test_dtypes_and_constant_norms_are_recorded(source: Path, tmp_path: Path) -> None:
    tensors = {
        name: (torch.ones_like(tensor) if "norm" in name else tensor).bfloat16()
        for name, tensor in weights(source).items()
    }
    record = reloaded(tmp_path / "export", tensors, source)
    assert record["dtypes"] == {"bfloat16": 25}
    assert record["norm_weights_constant"] is True
    assert record["logits"]["max_abs_diff"] == 0.0


def test_values_that_are_not_finite_are_no_number(source: Path, tmp_path: Path) -> None:
    tensors = {**trained(source), "model.norm.weight": torch.full((128,), float("nan"))}
    logits = reloaded(tmp_path / "export", tensors, source)["logits"]
    assert logits["max_abs_diff"] is None
    assert logits["std"] is None
    assert logits["moved_from_source"] is None


def leave_logits(folder: Path, model: Path, ids: torch.Tensor) -> Path:
    """Leave logits as a training run does, computed by `model`."""
    loaded = AutoModelForCausalLM.from_pretrained(
        model, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    with torch.no_grad():
        logits = loaded(input_ids=ids).logits
    numpy.save(folder / "trained-logits.npy", logits.numpy())
    record = {
        "ids": ids.tolist(),
        "sha256": tensor_sha256(logits),
        "logits_f32_file": str(folder / "trained-logits.npy"),
    }
    (folder / "trained-logits.json").write_text(json.dumps(record))
    return folder / "trained-logits.json"


def test_the_trained_models_logits_are_the_reference(source: Path, tmp_path: Path) -> None:
    path = leave_logits(tmp_path, source, (torch.arange(32)[None] * 7 + 3) % 512)
    same = reloaded(tmp_path / "same", weights(source), source, trained_logits=str(path))
    assert same["logits"]["reference_sha256"] == same["logits"]["state_dict_sha256"]
    assert same["logits"]["max_abs_diff"] == 0.0
    assert same["compared_to"] == str(path)
    other = reloaded(tmp_path / "other", trained(source), source, trained_logits=str(path))
    assert other["logits"]["max_abs_diff"] > 1e-3


def test_one_wrong_tensor_shows_in_the_logits(source: Path, tmp_path: Path) -> None:
    path = leave_logits(tmp_path, source, torch.arange(32)[None])
    tensors = weights(source)
    tensors[NORM] = torch.ones_like(tensors[NORM])
    record = reloaded(tmp_path / "export", tensors, source, trained_logits=str(path))
    assert record["logits"]["max_abs_diff"] > 1e-2


def test_logits_that_are_not_the_recorded_ones_are_refused(source: Path, tmp_path: Path) -> None:
    path = leave_logits(tmp_path, source, torch.arange(8)[None])
    numpy.save(tmp_path / "trained-logits.npy", numpy.zeros((1, 8, 512), "<f4"))
    with pytest.raises(ValueError, match="SHA-256"):
        reloaded(tmp_path / "export", weights(source), source, trained_logits=str(path))


def test_no_trained_logits_are_no_reference(source: Path, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.json")
    record = reloaded(tmp_path / "export", weights(source), source, trained_logits=absent)
    assert record["logits"]["reference_sha256"] is None


def test_a_mixture_of_experts_is_recorded_by_from_pretrained_only(source: Path, tmp_path: Path) -> None:
    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
    )
    torch.manual_seed(0)
    Qwen3MoeForCausalLM(config).save_pretrained(tmp_path / "moe")
    request = {"export": str(tmp_path / "moe"), "model": str(tmp_path / "moe"), "output": None}
    record = run(request)
    assert "fused experts" in record["load_state_dict"]["not_judged"]
    assert record["from_pretrained"]["missing_keys"] == []
    assert record["logits"]["state_dict_sha256"] is None
    assert record["logits"]["from_pretrained_sha256"]
    stored = read_export(tmp_path / "moe")
    assert sum("experts" in name for name in stored) == 12


def test_a_tensor_in_two_files_is_refused(source: Path, tmp_path: Path) -> None:
    folder = export(tmp_path / "export", weights(source))
    save_file({NORM: torch.ones(32)}, folder / "more.safetensors")
    with pytest.raises(ValueError, match=f"{NORM} is stored in another file"):
        read_export(folder)


def test_an_empty_export_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "sharded").mkdir()
    shutil.copy(source / "model.safetensors", tmp_path / "sharded")
    with pytest.raises(FileNotFoundError, match="nothing was exported"):
        run({"export": str(tmp_path), "model": str(source), "output": None})


def test_the_command_line_writes_the_record(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "observed" / "reload.json"
    folder = export(tmp_path / "export", trained(source))
    request = {"export": str(folder), "model": str(source), "output": str(output)}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert main([str(tmp_path / "request.json")]) == 0
    assert json.loads(output.read_text())["tensors"] == 25
    assert [path.name for path in output.parent.iterdir()] == ["reload.json"]
