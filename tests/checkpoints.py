"""Tiny Qwen3 checkpoints for tests, written byte by byte so that they can be wrong on purpose."""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from harness.model_needs import model_needs
from harness.safetensors_header import BITS

INDEX = "model.safetensors.index.json"

TINY: Mapping[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "vocab_size": 16,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "dtype": "float32",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
"""An untied model of 25 tensors; no two of a layer's matrices have the same shape by accident."""

TINY_TIED: Mapping[str, Any] = {**TINY, "tie_word_embeddings": True}

TINY_MOE: Mapping[str, Any] = {
    **TINY,
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 6,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


@dataclass(frozen=True)
class Stored:
    """A tensor to write."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def filled(cls, name: str, dtype: str, shape: tuple[int, ...]) -> "Stored":
        """A tensor whose bytes depend on its name only; below 0x40 each, so that no float is NaN."""
        size = prod(shape) * BITS[dtype] // 8
        seed = hashlib.sha256(name.encode()).digest()
        return cls(dtype, shape, bytes(byte & 0x3F for byte in seed * (size // 32 + 1))[:size])

    def with_shape(self, *shape: int) -> "Stored":
        """The same tensor in another shape, refilled."""
        return Stored.filled("other shape", self.dtype, shape)

    def with_dtype(self, dtype: str) -> "Stored":
        """The same tensor in another dtype, refilled."""
        return Stored.filled("other dtype", dtype, self.shape)

    def with_data(self, data: bytes) -> "Stored":
        """The same tensor with other bytes."""
        return replace(self, data=data)


Tensors = dict[str, Stored]


def write_safetensors(path: Path, tensors: Mapping[str, Stored]) -> Path:
    """Write one file, tensors in the order given; returns its path."""
    header, data = {}, b""
    for name, stored in tensors.items():
        header[name] = {
            "dtype": stored.dtype,
            "shape": list(stored.shape),
            "data_offsets": [len(data), len(data) + len(stored.data)],
        }
        data += stored.data
    return write_raw(path, json.dumps(header).encode(), data)


def write_raw(path: Path, header: bytes, data: bytes) -> Path:
    """Write a header, whatever it is, and data behind it; returns the path."""
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any] = TINY,
    *,
    shards: int = 1,
    dtype: str = "F32",
    form: str | None = None,
    copy_head: bool = False,
    mutate: Callable[[Tensors], object] | None = None,
    file_config: Mapping[str, Any] | None = None,
    with_config: bool = True,
) -> Path:
    """Write a checkpoint of the model that `config` describes and return its folder.

    `form` chooses how experts are stored, `copy_head` stores a tied head as a copy of the embedding.
    `mutate` edits the dictionary of tensors before it is split over `shards` files; `file_config` is
    written to config.json instead of `config`.
    """
    needs = model_needs(config)
    shapes = needs.forms[form] if form else needs.shapes
    tensors = {name: Stored.filled(name, dtype, shape) for name, shape in shapes.items()}
    if copy_head:
        tensors[needs.head] = tensors[needs.embedding]
    if mutate is not None:
        mutate(tensors)
    folder.mkdir(parents=True, exist_ok=True)
    if with_config:
        write_config(folder, file_config if file_config is not None else config)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    size = -(-len(names) // shards)
    weight_map = {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = names[number * size : (number + 1) * size]
        write_safetensors(folder / file, {name: tensors[name] for name in part})
        weight_map.update(dict.fromkeys(part, file))
    write_index(folder, weight_map, sum(len(stored.data) for stored in tensors.values()))
    return folder


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write config.json."""
    (folder / "config.json").write_text(json.dumps(config))


def write_index(folder: Path, weight_map: Mapping[str, Any], total: object = None) -> None:
    """Write an index, with a total size if one is given."""
    metadata = {} if total is None else {"total_size": total}
    (folder / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))


def read_index(folder: Path) -> dict[str, str]:
    """Return the index's map from tensor to file."""
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    assert isinstance(weight_map, dict)
    return weight_map


def rename(tensors: Tensors, change: Callable[[str], str]) -> None:
    """Rename every tensor in place, keeping the order."""
    renamed = {change(name): stored for name, stored in tensors.items()}
    tensors.clear()
    tensors.update(renamed)
