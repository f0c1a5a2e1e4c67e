"""Seeded faults of the files a run leaves: they act after training, before anything is judged."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
from safetensors.numpy import load_file, save_file

__all__ = ["apply", "leave_stale_checkpoint"]

Tensors = dict[str, numpy.ndarray]


def apply(names: Sequence[str], export: Path) -> None:
    """Break the export folder as each named fault says; names of other faults do nothing."""
    for name in names:
        if name in _FAULTS:
            _FAULTS[name](export)


def leave_stale_checkpoint(dump: Path) -> None:
    """Leave what an earlier run would have left in torchtitan's dump folder."""
    folder = dump / "checkpoint" / "step-20"
    folder.mkdir(parents=True)
    (folder / ".metadata").touch()


def _rewrite(export: Path, change: Callable[[Tensors], Tensors]) -> None:
    """Change the tensors of the first shard, and its index with them."""
    shard = sorted(export.glob("*.safetensors"))[0]
    tensors = change(load_file(shard))
    save_file(tensors, shard, metadata={"format": "pt"})
    index = export / "model.safetensors.index.json"
    if index.exists():
        listed = json.loads(index.read_text())
        others = {name: file for name, file in listed["weight_map"].items() if file != shard.name}
        listed["weight_map"] = {**others, **dict.fromkeys(tensors, shard.name)}
        if "total_size" in listed.get("metadata", {}) and not others:
            listed["metadata"]["total_size"] = sum(tensor.nbytes for tensor in tensors.values())
        index.write_text(json.dumps(listed))


def _drop_head(export: Path) -> None:
    _rewrite(
        export, lambda tensors: {name: value for name, value in tensors.items() if name != "lm_head.weight"}
    )


def _rename_key(export: Path) -> None:
    old, new = "model.norm.weight", "model.final_norm.weight"
    _rewrite(export, lambda tensors: {new if name == old else name: value for name, value in tensors.items()})


def _change_values(export: Path) -> None:
    changed = "model.layers.1.mlp.down_proj.weight"
    _rewrite(export, lambda tensors: {**tensors, changed: tensors[changed] + numpy.float32(1e-3)})


def _truncate(export: Path) -> None:
    shard = sorted(export.glob("*.safetensors"))[0]
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 4096)


_FAULTS: dict[str, Callable[[Path], None]] = {
    "export-head-dropped": _drop_head,
    "export-key-renamed": _rename_key,
    "export-values-changed": _change_values,
    "export-truncated": _truncate,
}
