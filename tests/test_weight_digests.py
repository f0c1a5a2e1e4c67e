"""Digests of stored tensors, as they are and converted."""

import hashlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from harness.errors import UserError
from harness.safetensors_files import read_checkpoint
from harness.weight_digests import file_digests
from tests.checkpoints import Stored, write_checkpoint, write_config, write_safetensors

VALUES = np.concatenate(
    [
        np.random.default_rng(0).normal(size=1000).astype(np.float32),
        np.array([0.0, -0.0, 1e-40, 3.4e38, np.inf, -np.inf, np.nan], dtype=np.float32),
        np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7FFFFFFF, 0xFF800001], dtype=np.uint32).view(
            np.float32
        ),
    ]
)


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def folder_of(path: Path, dtype: str, array: np.ndarray) -> Path:
    write_safetensors(path / "model.safetensors", {"a": Stored(dtype, array.shape, array.tobytes())})
    write_config(path, {})
    return path


def test_a_float32_tensor_is_rounded_to_bfloat16_as_everybody_does(tmp_path: Path) -> None:
    finite = VALUES[~np.isnan(VALUES)]
    with np.errstate(over="ignore"):
        expected = finite.astype(ml_dtypes.bfloat16)
    digest = file_digests(read_checkpoint(folder_of(tmp_path, "F32", finite)))["a"]
    assert digest.dtype == "F32"
    assert digest.sha256 == {"F32": sha256(finite), "BF16": sha256(expected)}


def test_every_nan_becomes_torchs_nan(tmp_path: Path) -> None:
    nans = VALUES[np.isnan(VALUES)]
    digest = file_digests(read_checkpoint(folder_of(tmp_path, "F32", nans)))["a"]
    assert digest.sha256["BF16"] == sha256(np.full(len(nans), 0x7FC0, dtype=np.uint16))


def test_bfloat16_and_float16_tensors_are_widened(tmp_path: Path) -> None:
    for dtype, array in (
        ("BF16", VALUES[:1000].astype(ml_dtypes.bfloat16)),
        ("F16", VALUES[:1000].astype(np.float16)),
    ):
        digest = file_digests(read_checkpoint(folder_of(tmp_path, dtype, array)))["a"]
        assert digest.sha256[dtype] == sha256(array)
        assert digest.sha256["F32"] == sha256(array.astype(np.float32))
        assert digest.sha256["BF16"] == sha256(array.astype(np.float32).astype(ml_dtypes.bfloat16))


def test_other_dtypes_have_their_own_digest_only(tmp_path: Path) -> None:
    array = np.arange(5, dtype=np.int64)
    assert file_digests(read_checkpoint(folder_of(tmp_path, "I64", array)))["a"].sha256 == {
        "I64": sha256(array)
    }


def test_every_tensor_of_a_checkpoint_has_a_digest(tmp_path: Path) -> None:
    files = read_checkpoint(write_checkpoint(tmp_path, shards=2))
    digests = file_digests(files, convert_to=())
    assert digests.keys() == files.tensors.keys()
    stored = Stored.filled("model.norm.weight", "F32", (8,))
    assert digests["model.norm.weight"].sha256 == {"F32": hashlib.sha256(stored.data).hexdigest()}


def test_a_file_that_went_away_is_an_error(tmp_path: Path) -> None:
    files = read_checkpoint(write_checkpoint(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be read"):
        file_digests(files)
