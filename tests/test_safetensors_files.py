"""Headers, index and folder of checkpoints: sound ones are read whole, every defect has its code."""

import hashlib
import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from harness.errors import UserError
from harness.safetensors_files import (
    CheckpointFiles,
    first_difference,
    read_checkpoint,
    read_header,
    tensor_bytes,
    tensor_sha256,
)
from harness.safetensors_header import BITS, HEADER_LIMIT, parse_header
from tests.checkpoints import (
    INDEX,
    TINY,
    TINY_TIED,
    Stored,
    read_index,
    write_checkpoint,
    write_index,
    write_raw,
    write_safetensors,
)

SHARD_1, SHARD_2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 3957900840\n"


def codes(files: CheckpointFiles) -> list[str]:
    return [problem.code for problem in files.problems]


def only(files: CheckpointFiles, code: str) -> str:
    """Return the message of the one problem, which has this code."""
    assert codes(files) == [code]
    return files.problems[0].message


def header_of(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode()


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def problems_of(path: Path, header: bytes, data: bytes) -> list[str]:
    return [problem.code for problem in read_header(write_raw(path, header, data))[1]]


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_sound_checkpoint_is_read_whole(tmp_path: Path, shards: int) -> None:
    files = read_checkpoint(write_checkpoint(tmp_path, shards=shards))
    assert files.problems == ()
    assert len(files.tensors) == 25
    assert len(files.files) == shards
    assert (files.index is not None) == (shards > 1)
    assert files.config == TINY
    norm = files.tensors["model.norm.weight"]
    assert (norm.dtype, norm.shape, norm.nbytes) == ("F32", (8,), 32)
    assert files.nbytes == sum(len(tensor_bytes(tensor)) for tensor in files.tensors.values())


def test_bytes_and_digest_are_those_written(tmp_path: Path) -> None:
    files = read_checkpoint(write_checkpoint(tmp_path, shards=2))
    stored = Stored.filled("model.norm.weight", "F32", (8,))
    tensor = files.tensors["model.norm.weight"]
    assert tensor_bytes(tensor) == stored.data
    assert tensor_sha256(tensor) == hashlib.sha256(stored.data).hexdigest()


def test_the_library_writes_what_we_read(tmp_path: Path) -> None:
    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.zeros((), dtype=np.int64)}
    save_file(arrays, tmp_path / "model.safetensors", {"format": "pt"})
    tensors, problems = read_header(tmp_path / "model.safetensors")
    assert problems == ()
    assert {name: tensor.shape for name, tensor in tensors.items()} == {"b": (2, 3), "a": ()}
    assert all(tensor_bytes(tensors[name]) == array.tobytes() for name, array in arrays.items())


def test_first_difference_names_the_byte(tmp_path: Path) -> None:
    path = write_safetensors(
        tmp_path / "x.safetensors",
        {
            "one": Stored("U8", (9_000_000,), bytes(9_000_000)),
            "same": Stored("U8", (9_000_000,), bytes(9_000_000)),
            "late": Stored("U8", (9_000_000,), bytes(8_999_999) + b"1"),
            "short": Stored("U8", (5,), bytes(5)),
            "none": Stored("U8", (0,), b""),
        },
    )
    tensors, problems = read_header(path)
    assert problems == ()
    one = tensors["one"]
    assert first_difference(one, tensors["same"]) is None
    assert first_difference(one, tensors["late"]) == 8_999_999
    assert first_difference(one, tensors["short"]) == 5
    assert first_difference(tensors["none"], tensors["none"]) is None


def test_bytes_of_a_file_that_shrank_are_refused(tmp_path: Path) -> None:
    files = read_checkpoint(write_checkpoint(tmp_path))
    os.truncate(tmp_path / "model.safetensors", 100)
    with pytest.raises(UserError, match="too short to hold"):
        tensor_bytes(files.tensors["model.norm.weight"])
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be read"):
        tensor_sha256(files.tensors["model.norm.weight"])


# --- one file ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [POINTER, "\ufeff" + POINTER, "\n" + POINTER, POINTER + "x" * 2000])
def test_a_git_lfs_pointer_is_named(tmp_path: Path, text: str) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_text(text)
    message = only(read_checkpoint(tmp_path), "files.lfs-pointer")
    assert "model.safetensors is a git-lfs pointer" in message
    assert f"{len(text.encode())} bytes" in message


@pytest.mark.parametrize("name", [INDEX, "config.json"])
def test_a_pointer_in_place_of_index_or_config_is_named(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path, shards=2)
    (tmp_path / name).write_text(POINTER)
    assert f"{name} is a git-lfs pointer" in only(read_checkpoint(tmp_path), "files.lfs-pointer")


@pytest.mark.parametrize("content", [b"", b"1234567", b"404: Not Found", b"<!DOCTYPE html><html></html>"])
def test_a_placeholder_is_too_small(tmp_path: Path, content: bytes) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    message = only(read_checkpoint(tmp_path), "files.too-small")
    assert ("is empty" in message) == (content == b"")


def test_a_tiny_file_that_is_sound_is_no_placeholder(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "m.safetensors", {"a": Stored("U8", (1,), b"1")})
    assert path.stat().st_size < 1024
    assert read_header(path)[1] == ()


def test_a_large_text_file_has_an_impossible_header(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_text("<html>" + "sorry " * 1000)
    _, (problem,) = read_header(path)
    assert problem.code == "files.header-size"
    assert "<html>" in problem.message


def test_the_header_limit_is_the_librarys(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", HEADER_LIMIT + 1) + b"{" * 2000)
    assert [problem.code for problem in read_header(path)[1]] == ["files.header-size"]
    path.write_bytes(struct.pack("<Q", HEADER_LIMIT) + b"{" * 2000)
    assert [problem.code for problem in read_header(path)[1]] == ["files.truncated"]


@pytest.mark.parametrize("cut", [1, 32, 400])
def test_a_truncated_file_says_how_much_is_there(tmp_path: Path, cut: int) -> None:
    write_checkpoint(tmp_path)
    path = tmp_path / "model.safetensors"
    size = path.stat().st_size
    os.truncate(path, size - cut)
    message = only(read_checkpoint(tmp_path), "files.truncated")
    assert f"{size - cut} bytes of {size}" in message
    assert "lm_head.weight" in message


def test_a_file_cut_inside_its_header(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    os.truncate(tmp_path / "model.safetensors", 1500)
    assert "inside its header" in only(read_checkpoint(tmp_path), "files.truncated")


def test_bytes_after_the_last_tensor(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    with (tmp_path / "model.safetensors").open("ab") as handle:
        handle.write(b"12345")
    assert "5 bytes after" in only(read_checkpoint(tmp_path), "files.trailing-bytes")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (b"not json" * 200, "files.header-json"),
        (b"[1, 2]" + b" " * 1200, "files.header-json"),
        (b'{"a": \xff}' + b" " * 1200, "files.header-json"),
        (b"[" * 100_000, "files.header-json"),
        (b'{"a": ' + b"9" * 5000 + b"}", "files.header-json"),
        (b'{"\\ud800": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' + b" " * 1200, "files.header-json"),
        (header_of({"a": entry(dtype="Q4")}), "files.unknown-dtype"),
        (header_of({"a": entry(dtype=["F32"])}), "files.header-entry"),
        (header_of({"a": entry(dtype=7)}), "files.header-entry"),
        (header_of({"a": entry(shape=[3])}), "files.size-mismatch"),
        (header_of({"a": entry(dtype="BF16")}), "files.size-mismatch"),
        (header_of({"a": entry(dtype="F6_E2M3", shape=[3])}), "files.size-mismatch"),
        (header_of({"a": entry(shape=[2.0])}), "files.header-entry"),
        (header_of({"a": entry(shape=[True, 2])}), "files.header-entry"),
        (header_of({"a": entry(shape=[-1, -2])}), "files.header-entry"),
        (header_of({"a": entry(shape="")}), "files.header-entry"),
        (header_of({"a": entry(shape={})}), "files.header-entry"),
        (header_of({"a": entry(shape=[10**30])}), "files.header-entry"),
        (header_of({"a": entry(offsets=[8, 0])}), "files.header-entry"),
        (header_of({"a": entry(offsets=[0])}), "files.header-entry"),
        (header_of({"a": entry(offsets=[0, 8.0])}), "files.header-entry"),
        (header_of({"a": entry(offsets=[-8, 0])}), "files.header-entry"),
        (header_of({"a": 5}), "files.header-entry"),
        (header_of({"a": {"dtype": "F32"}}), "files.header-entry"),
        (header_of({"a": entry(), "__metadata__": {"n": 1}}), "files.header-entry"),
        (header_of({"a": entry(), "__metadata__": []}), "files.header-entry"),
        (header_of({"a": entry(shape=[1], offsets=[0, 4]), "b": entry(offsets=[0, 8])}), "files.overlap"),
        (header_of({"a": entry(shape=[1], offsets=[4, 8])}), "files.gap"),
        (
            header_of({"a": entry("U8", [2], [0, 2]), "b": entry("U8", [4], [4, 8])}),
            "files.gap",
        ),
        (header_of({}), "files.trailing-bytes"),
    ],
)
def test_every_defect_of_a_header_has_its_code(tmp_path: Path, header: bytes, code: str) -> None:
    padded = header + b" " * 1100 if len(header) < 1024 else header
    path = tmp_path / "m.safetensors"
    assert code in problems_of(path, padded, b"12345678")
    _, problems = read_header(path)
    assert all("m.safetensors" in problem.message for problem in problems)
    assert all("\n" not in problem.message for problem in problems)
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(path.read_bytes())


@pytest.mark.parametrize(
    "header",
    [
        '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        '{"a":7,"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        '{"b":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}}',
        '{"\\u0061":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        '{"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"__metadata__":{"x":"1","x":"2"}}',
        '{"__metadata__":{},"__metadata__":{},"b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}',
        '{"b" : {"dtype" : "U8", "dtype" : "U8", "shape" : [8], "data_offsets" : [0, 8]}}',
    ],
)
def test_a_repeated_key_is_seen_although_the_parser_drops_it(tmp_path: Path, header: str) -> None:
    assert problems_of(tmp_path / "m.safetensors", header.encode(), bytes(8)) == ["files.duplicate-key"]


def test_escapes_and_quotation_marks_in_names_are_no_repetition(tmp_path: Path) -> None:
    header = {'say "x"': entry("U8", [4], [0, 4]), "tab\t": entry("U8", [4], [4, 8])}
    assert problems_of(tmp_path / "m.safetensors", header_of(header), bytes(8)) == []


def test_order_in_the_header_does_not_matter(tmp_path: Path) -> None:
    header = {
        "b": entry("U8", [6], [2, 8]),
        "a": entry("U8", [2], [0, 2]),
        "none": entry("U8", [0], [2, 2]),
        "scalar": entry("U8", [], [8, 9]),
    }
    assert problems_of(tmp_path / "m.safetensors", header_of(header), bytes(9)) == []


def test_a_header_longer_than_the_first_read(tmp_path: Path) -> None:
    tensors = {f"tensor.{number:05d}.weight": Stored("U8", (1,), b"1") for number in range(2000)}
    path = write_safetensors(tmp_path / "m.safetensors", tensors)
    found, problems = read_header(path)
    assert problems == ()
    assert len(found) == 2000


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    assert "model.safetensors is not a regular file" in only(read_checkpoint(tmp_path), "files.not-a-file")
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").mkdir()
    assert codes(read_checkpoint(tmp_path)) == ["files.not-a-file"]


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("harness.safetensors_shard.os.open", refuse)
    files = read_checkpoint(tmp_path)
    assert codes(files) == ["files.unreadable", "files.unreadable"]
    assert "Permission denied" in files.problems[0].message


# --- the folder -------------------------------------------------------------------------------


def test_folders_that_are_none(tmp_path: Path) -> None:
    assert "no such folder" in only(read_checkpoint(tmp_path / "absent"), "files.no-folder")
    path = write_safetensors(tmp_path / "m.safetensors", {"a": Stored("U8", (1,), b"1")})
    assert "is a file" in only(read_checkpoint(path), "files.not-a-folder")
    assert codes(read_checkpoint(Path("a\0b"))) == ["files.unreadable"]


def test_an_empty_folder_and_one_without_weights(tmp_path: Path) -> None:
    assert codes(read_checkpoint(tmp_path)) == ["files.empty-folder", "files.config-missing"]
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    (tmp_path / "config.json").write_text("{}")
    assert "pytorch_model.bin" in only(read_checkpoint(tmp_path), "files.no-weights")
    (tmp_path / "sharded").mkdir()
    assert "interrupted before the merge" in only(read_checkpoint(tmp_path), "files.no-weights")


def test_a_checkpoint_without_tensors(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    write_safetensors(tmp_path / "model.safetensors", {})
    assert codes(read_checkpoint(tmp_path)) == ["files.no-tensors"]


def test_symbolic_links_into_a_blob_store_are_followed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "blobs", shards=2)
    snapshot = tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for path in (tmp_path / "blobs").iterdir():
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    files = read_checkpoint(snapshot)
    assert files.problems == ()
    assert len(files.tensors) == 25
    (tmp_path / "blobs" / SHARD_2).unlink()
    files = read_checkpoint(snapshot)
    assert codes(files) == ["files.unreadable"]
    assert f"links to ../../blobs/{SHARD_2}" in files.problems[0].message


def test_a_folder_reached_by_a_link(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "real", shards=2)
    (tmp_path / "link").symlink_to("real")
    assert read_checkpoint(tmp_path / "link").problems == ()


def test_torchtitans_subfolder_is_noted_and_not_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "sharded").mkdir()
    write_safetensors(tmp_path / "sharded" / "x.safetensors", {"a": Stored("U8", (1,), b"1")})
    files = read_checkpoint(tmp_path)
    assert files.problems == ()
    assert "sharded/" in files.notes[0]
    assert len(files.tensors) == 25


def test_torchtitans_unmerged_shards_are_recognised(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, mutate=dict.clear)
    (tmp_path / "model.safetensors").unlink()
    for rank in (1, 2):
        name = f"shard-{rank:05d}-model-00001-of-00001.safetensors"
        write_safetensors(tmp_path / name, {f"a{rank}": Stored("U8", (1,), b"1")})
    assert "before they are merged" in only(read_checkpoint(tmp_path), "files.unmerged")


def test_unfinished_downloads_are_noted(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "x.safetensors.incomplete").write_bytes(b"")
    assert "x.safetensors.incomplete" in read_checkpoint(tmp_path).notes[0]


def test_hidden_files_are_no_shards(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "._model.safetensors").write_bytes(b"\0" * 4096)
    assert read_checkpoint(tmp_path).problems == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "files.config-json"),
        ("[]", "files.config-json"),
        ("", "files.config-json"),
        ("[" * 100_000, "files.config-json"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "files.duplicate-key"),
    ],
)
def test_a_bad_config(tmp_path: Path, text: str, code: str) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(text)
    assert "config.json" in only(read_checkpoint(tmp_path), code)


def test_a_missing_config_is_a_defect_unless_it_is_not_required(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, with_config=False)
    only(read_checkpoint(tmp_path), "files.config-missing")
    assert read_checkpoint(tmp_path, require_config=False).problems == ()


# --- the index --------------------------------------------------------------------------------


def test_a_missing_shard_is_an_incomplete_download(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY_TIED, shards=2)
    (tmp_path / SHARD_2).unlink()
    message = only(read_checkpoint(tmp_path), "files.index-missing-file")
    assert message.startswith(f"index names 2 shard files, 1 is not on disk: {SHARD_2} (12 tensors)")
    assert "Incomplete download?" in message


def test_all_shards_missing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=3)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    assert "3 are not on disk" in only(read_checkpoint(tmp_path), "files.index-missing-file")


@pytest.mark.parametrize("keep_one", [False, True])
def test_a_stale_index_lists_both_sets(tmp_path: Path, keep_one: bool) -> None:
    write_checkpoint(tmp_path / "old", shards=4)
    write_checkpoint(tmp_path / "new", shards=2)
    (tmp_path / "new" / INDEX).write_bytes((tmp_path / "old" / INDEX).read_bytes())
    if keep_one:
        name = "model-00001-of-00004.safetensors"
        (tmp_path / "new" / name).write_bytes((tmp_path / "old" / name).read_bytes())
    files = read_checkpoint(tmp_path / "new")
    assert "files.stale-index" in codes(files)
    assert set(codes(files)) <= {"files.stale-index", "files.duplicate-tensor"}
    message = next(problem.message for problem in files.problems if problem.code == "files.stale-index")
    assert "model-00001-of-00004" in message
    assert SHARD_1 in message


def test_a_single_file_beside_a_stale_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    write_safetensors(tmp_path / "model.safetensors", {"a": Stored("U8", (1,), b"1")})
    only(read_checkpoint(tmp_path), "files.stale-index")


def test_a_file_that_the_index_does_not_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    write_safetensors(tmp_path / "consolidated.safetensors", {"model.norm.weight": Stored("U8", (1,), b"1")})
    files = read_checkpoint(tmp_path)
    assert "consolidated.safetensors" in only(files, "files.unlisted-file")
    assert files.tensors["model.norm.weight"].file.name != "consolidated.safetensors"


def test_the_index_puts_a_tensor_into_the_wrong_shard(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    weight_map = read_index(tmp_path)
    assert weight_map["model.norm.weight"] == SHARD_2
    write_index(tmp_path, {**weight_map, "model.norm.weight": SHARD_1})
    message = only(read_checkpoint(tmp_path), "files.index-wrong-file")
    assert message.startswith(
        f"index puts model.norm.weight in {SHARD_1}, whose header does not have it (found in {SHARD_2})"
    )


def test_the_index_names_a_tensor_that_no_shard_has(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    write_index(tmp_path, {**read_index(tmp_path), "ghost": SHARD_1, "ghost2": SHARD_1})
    message = only(read_checkpoint(tmp_path), "files.index-wrong-file")
    assert "found in no shard" in message
    assert "1 more tensor like it" in message


def test_a_tensor_that_the_index_lacks(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    weight_map = read_index(tmp_path)
    del weight_map["model.norm.weight"]
    write_index(tmp_path, weight_map)
    assert "model.norm.weight" in only(read_checkpoint(tmp_path), "files.not-in-index")


@pytest.mark.parametrize(
    "shard", ["../secret.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "", "a\\b", "a\0b"]
)
def test_a_path_that_is_no_plain_name_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: str
) -> None:
    folder = write_checkpoint(tmp_path / "model", shards=2)
    write_safetensors(tmp_path / "secret.safetensors", {"stolen": Stored("U8", (1,), b"1")})
    write_index(folder, {**read_index(folder), "stolen": shard})
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        "harness.safetensors_shard.os.open", lambda path, *rest: opened.append(str(path)) or real(path, *rest)
    )
    files = read_checkpoint(folder)
    only(files, "files.index-path")
    assert "stolen" not in files.tensors
    assert opened
    assert {Path(path).parent for path in opened} == {folder}


def test_a_wrong_total_size(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    size = read_checkpoint(tmp_path).nbytes
    write_index(tmp_path, read_index(tmp_path), size // 2)
    message = only(read_checkpoint(tmp_path), "files.index-total-size")
    assert f"total_size {size // 2}, the shards hold {size} bytes" in message
    write_index(tmp_path, read_index(tmp_path), float(size))
    assert read_checkpoint(tmp_path).problems == ()
    write_index(tmp_path, read_index(tmp_path))
    assert read_checkpoint(tmp_path).problems == ()
    write_index(tmp_path, read_index(tmp_path), "many")
    only(read_checkpoint(tmp_path), "files.index-json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "\udcff"]
)
def test_a_bad_index(tmp_path: Path, text: str) -> None:
    write_checkpoint(tmp_path, shards=2)
    (tmp_path / INDEX).write_bytes(text.encode(errors="surrogateescape"))
    assert INDEX in only(read_checkpoint(tmp_path), "files.index-json")


def test_an_index_that_repeats_a_key(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    text = (tmp_path / INDEX).read_text()
    (tmp_path / INDEX).write_text(
        text.replace('"model.norm.weight"', f'"model.norm.weight": "{SHARD_1}", "model.norm.weight"')
    )
    assert "model.norm.weight" in only(read_checkpoint(tmp_path), "files.duplicate-key")


def test_shards_without_an_index_say_where_it_went(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "out" / "hf", shards=2)
    (folder / INDEX).rename(folder.parent / INDEX)
    message = only(read_checkpoint(folder), "files.no-index")
    assert message.startswith("2 shards")
    assert "found one in the parent folder" in message
    (folder.parent / INDEX).unlink()
    assert "found one" not in only(read_checkpoint(folder), "files.no-index")
    (folder / "below").mkdir()
    write_index(folder / "below", {"a": "b"})
    assert "found one in below/" in only(read_checkpoint(folder), "files.no-index")


def test_one_numbered_shard_without_an_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    (tmp_path / INDEX).unlink()
    (tmp_path / SHARD_2).unlink()
    files = read_checkpoint(tmp_path)
    assert codes(files) == ["files.no-index", "files.incomplete-set"]
    assert "missing number 2" in files.problems[1].message


def test_one_file_with_a_name_of_its_own_needs_no_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "m.safetensors")
    assert read_checkpoint(tmp_path).problems == ()


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, shards=2)
    stored = Stored.filled("x", "F32", (8,))
    for name in (SHARD_1, SHARD_2):
        write_safetensors(tmp_path / name, {"a": stored, f"only in {name}": stored})
    write_index(tmp_path, {"a": SHARD_1, f"only in {SHARD_1}": SHARD_1, f"only in {SHARD_2}": SHARD_2})
    message = only(read_checkpoint(tmp_path), "files.duplicate-tensor")
    assert f"a in {SHARD_1} and {SHARD_2}" in message


# --- properties -------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        for file in ("model.safetensors", INDEX, "config.json"):
            (Path(name) / file).write_bytes(content)
        files = read_checkpoint(Path(name))
        assert files.problems
        for problem in files.problems:
            assert problem.message.isprintable()
            problem.message.encode()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
SIZES = st.integers(0, 4)
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([*BITS, "F7"]),
        "shape": st.lists(SIZES, max_size=2) | VALUES,
        "data_offsets": st.tuples(st.integers(0, 8), st.integers(0, 12)) | VALUES,
    }
)
HEADERS = st.dictionaries(st.sampled_from(["a", "b", "c", "__metadata__"]), ENTRIES | VALUES, max_size=3)


@settings(deadline=None, max_examples=500)
@given(HEADERS, st.binary(max_size=12))
def test_what_the_library_refuses_has_a_problem(header: dict[str, Any], data: bytes) -> None:
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + data
    tensors, problems = parse_header(text, Path("x.safetensors"), len(content))
    try:
        loaded = dict(safetensors.deserialize(content))
    except safetensors.SafetensorError:
        assert problems
    else:
        if not problems:
            assert loaded.keys() == tensors.keys()
            for name, tensor in tensors.items():
                assert list(tensor.shape) == loaded[name]["shape"]
                assert content[tensor.start : tensor.end] == bytes(loaded[name]["data"])


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_changed_byte_in_a_header_is_seen_or_changes_nothing(data: st.DataObject) -> None:
    header = header_of({"a.weight": entry("BF16", [2, 2], [0, 8]), "b": entry("F32", [2], [8, 16])})
    at = data.draw(st.integers(0, len(header) - 1))
    byte = data.draw(st.integers(0, 255))
    changed = header[:at] + bytes([byte]) + header[at + 1 :]
    path = Path("x.safetensors")
    sound, _ = parse_header(header, path, 8 + len(header) + 16)
    tensors, problems = parse_header(changed, path, 8 + len(header) + 16)
    # Another name, or another dtype of the same width, is sound in itself: the key check sees it.
    places, before = (sorted(tensor[2:] for tensor in found.values()) for found in (tensors, sound))
    assert problems or places == before
