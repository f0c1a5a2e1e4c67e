"""How much faster is the key check, which reads headers, than loading every tensor?

    python -m benchmarks.key_check

Writes a checkpoint of about 1 GB (Qwen3-0.6B's widths with 22 layers, bfloat16, 4 shards) into a
temporary folder, then times both in one process, files in the page cache for both. These widths give
the most tensors per byte of all Qwen3 models, which is the hardest case for the check. Holds 3 GB.
"""

import json
import statistics
import struct
import tempfile
import time
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - teaches numpy bfloat16, which load_file needs
import numpy as np
from safetensors.numpy import load_file

from harness.checks.finding import Verdict
from harness.key_report import check_folder
from harness.model_needs import model_needs
from harness.safetensors_files import read_checkpoint

__all__ = ["TARGET", "run"]

TARGET = 500
"""The check should be at least this many times faster than loading."""

SHARDS = 4
CHECK_REPEATS = 200
LOAD_REPEATS = 3

CONFIG: Mapping[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 22,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000},
}
"""Qwen3-0.6B's published sizes, with 22 of its 28 layers to come near 1 GB."""


def run() -> None:
    """Print the times and their ratio."""
    with tempfile.TemporaryDirectory(prefix="key-check-") as name:
        folder = Path(name)
        _write(folder)
        files = read_checkpoint(folder)
        shards = [folder / file for file in files.files]
        # Loading first, so that the files are in the page cache when the check is timed too.
        fresh = _time_loads(shards, keep=True)
        reused = _time_loads(shards, keep=False)
        checking = []
        for _ in range(CHECK_REPEATS):
            start = time.perf_counter()
            _check(folder)
            checking.append(time.perf_counter() - start)
    fast = statistics.median(checking)
    print(f"checkpoint: {files.nbytes / 1e9:.2f} GB, {len(files.tensors)} tensors, {len(shards)} shards")
    print(
        f"check the keys: {fast * 1e3:.3f} ms (median of {CHECK_REPEATS}; fastest {min(checking) * 1e3:.3f} ms)"
    )
    _print_ratio("load every tensor, as a process does once", fresh, fast)
    _print_ratio("load again into memory that was just freed", reused, fast)


def _print_ratio(what: str, seconds: list[float], fast: float) -> None:
    ratio = statistics.median(seconds) / fast
    each = ", ".join(f"{value:.3f}" for value in seconds)
    reached = "reached" if ratio >= TARGET else "missed"
    print(
        f"{what}: {statistics.median(seconds):.3f} s (median of {each}): {ratio:.0f}x, target {TARGET}x {reached}"
    )


def _time_loads(shards: list[Path], *, keep: bool) -> list[float]:
    """Return the seconds of each load of all tensors.

    With `keep` what was loaded stays, so that each load gets new memory from the system, whose pages
    must first be mapped. That is what a process that loads a checkpoint pays; without it the
    allocator hands out the former load's memory again.
    """
    kept: list[dict[str, np.ndarray[Any, Any]]] = []
    seconds = []
    for _ in range(LOAD_REPEATS):
        start = time.perf_counter()
        tensors: dict[str, np.ndarray[Any, Any]] = {}
        for shard in shards:
            tensors.update(load_file(shard))
        seconds.append(time.perf_counter() - start)
        kept = [*kept, tensors] if keep else []
        del tensors
    return seconds


def _check(folder: Path) -> None:
    result = check_folder(folder)
    if result.verdict is not Verdict.PASS:
        raise RuntimeError(f"the synthetic checkpoint does not pass: {result.findings}")


def _write(folder: Path) -> None:
    """Write the checkpoint with random bytes, split into shards of about equal size."""
    shapes = model_needs(CONFIG).shapes
    total = sum(prod(shape) * 2 for shape in shapes.values())
    shards: list[dict[str, tuple[int, ...]]] = [{} for _ in range(SHARDS)]
    written = 0
    for name, shape in shapes.items():
        shards[min(SHARDS - 1, written * SHARDS // total)][name] = shape
        written += prod(shape) * 2
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        weight_map.update(dict.fromkeys(tensors, file))
        _write_shard(folder / file, tensors, np.random.default_rng(number))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))


def _write_shard(path: Path, tensors: Mapping[str, tuple[int, ...]], random: np.random.Generator) -> None:
    header, position = {}, 0
    for name, shape in tensors.items():
        size = prod(shape) * 2
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    with path.open("wb") as handle:
        handle.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            handle.write(random.bytes(prod(shape) * 2))


if __name__ == "__main__":
    run()
