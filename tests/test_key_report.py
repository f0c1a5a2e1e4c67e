"""Whole folders through the key check: what a person gets who points it at a folder."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.keys import AllowedKeys
from harness.key_report import check_folder, check_fresh_dump_folder
from harness.model_needs import FUSED
from tests.checkpoints import (
    INDEX,
    TINY,
    TINY_MOE,
    TINY_TIED,
    Stored,
    Tensors,
    read_index,
    rename,
    write_checkpoint,
    write_config,
)

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    ("config", "form", "copy_head"),
    [
        (TINY, None, False),
        (TINY_TIED, None, False),
        (TINY_TIED, None, True),
        (TINY_MOE, None, False),
        (TINY_MOE, FUSED, False),
    ],
)
def test_sound_folders_pass_as_export_of_themselves(
    tmp_path: Path, config: dict[str, object], form: str | None, copy_head: bool, shards: int
) -> None:
    folder = write_checkpoint(tmp_path, config, form=form, copy_head=copy_head, shards=shards)
    result = check_folder(folder, folder, declared_dtype="float32")
    assert result.verdict is Verdict.PASS, result.findings
    assert check_folder(folder).verdict is Verdict.PASS


def test_the_two_forms_of_a_tied_checkpoint(tmp_path: Path) -> None:
    implicit = write_checkpoint(tmp_path / "q4b", TINY_TIED, shards=2)
    explicit = write_checkpoint(tmp_path / "q06b", TINY_TIED, shards=2, copy_head=True)
    assert HEAD not in read_index(implicit)
    assert HEAD in read_index(explicit)
    assert any('form "implicit"' in fact for fact in check_folder(implicit).facts)
    assert any('form "explicit copy"), bytes equal' in fact for fact in check_folder(explicit).facts)
    assert codes(check_folder(implicit, explicit)) == ["keys.form-changed"]
    assert codes(check_folder(explicit, implicit)) == ["keys.form-changed"]


@pytest.mark.parametrize("at", [0, 100, 511])
def test_a_stored_head_with_another_byte(tmp_path: Path, at: int) -> None:
    def change(tensors: Tensors) -> None:
        data = bytearray(tensors[HEAD].data)
        data[at] ^= 1
        tensors[HEAD] = tensors[HEAD].with_data(bytes(data))

    result = check_folder(write_checkpoint(tmp_path, TINY_TIED, copy_head=True, mutate=change))
    assert codes(result) == ["keys.head-differs"]
    assert f"first differing byte {at})" in result.findings[0].message


def test_a_head_under_a_wrapper_or_prefix_is_compared_too(tmp_path: Path) -> None:
    wrapped = write_checkpoint(
        tmp_path / "a", TINY_TIED, copy_head=True, mutate=lambda t: rename(t, lambda n: f"module.{n}")
    )
    assert codes(check_folder(wrapped)) == ["keys.wrapper"]
    prefixed = write_checkpoint(
        tmp_path / "b", TINY_TIED, copy_head=True, mutate=lambda t: rename(t, lambda n: f"model.{n}")
    )
    assert codes(check_folder(prefixed)) == ["keys.prefix"]


def test_a_head_in_a_truncated_file_is_a_files_fault(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, TINY_TIED, copy_head=True)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert codes(check_folder(folder)) == ["files.truncated", "keys.head-not-compared"]


def test_an_export_without_config(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model")
    export = write_checkpoint(tmp_path / "export", with_config=False)
    assert codes(check_folder(export, model)) == ["files.config-missing"]
    assert check_folder(export, model, require_config=False).verdict is Verdict.PASS
    assert codes(check_folder(export)) == ["files.config-missing"]
    assert codes(check_folder(export, require_config=False)) == ["keys.config"]


def test_an_export_whose_config_describes_another_model(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model")
    export = write_checkpoint(tmp_path / "export", {**TINY, "num_hidden_layers": 1})
    assert codes(check_folder(export, model))[0] == "keys.config-changed"
    tied = write_checkpoint(tmp_path / "tied", TINY_TIED)
    result = check_folder(tied, model)
    assert "keys.config-changed" in codes(result)
    assert "tie_word_embeddings=true" in result.findings[0].message


def test_a_config_that_disagrees_with_itself(tmp_path: Path) -> None:
    config = {**TINY, "text_config": {"tie_word_embeddings": True}}
    assert codes(check_folder(write_checkpoint(tmp_path, config))) == ["keys.tie-conflict"]


def test_an_incomplete_config_names_the_key_and_still_judges_the_head(tmp_path: Path) -> None:
    def other_head(tensors: Tensors) -> None:
        tensors[HEAD] = tensors[HEAD].with_data(bytes(len(tensors[HEAD].data)))

    config = {"model_type": "qwen3", "vocab_size": 16, "tie_word_embeddings": True}
    folder = write_checkpoint(tmp_path, TINY_TIED, copy_head=True, mutate=other_head, file_config=config)
    result = check_folder(folder)
    assert codes(result) == ["keys.head-differs", "keys.config"]
    assert "hidden_size" in result.findings[1].message


MINIMAL = {"model_type": "qwen3", "vocab_size": 16, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}


@pytest.mark.parametrize("copy_head", [False, True])
def test_an_incomplete_config_never_passes_but_the_form_is_said(tmp_path: Path, copy_head: bool) -> None:
    folder = write_checkpoint(tmp_path, TINY_TIED, copy_head=copy_head, dtype="BF16", file_config=MINIMAL)
    result = check_folder(folder, folder)
    assert result.verdict is Verdict.NOT_JUDGED
    assert "hidden_size" in result.reason
    assert any(("explicit copy" if copy_head else "implicit") in fact for fact in result.facts)
    assert any("round trip kept" in fact for fact in result.facts)


def test_an_incomplete_config_does_not_hide_other_faults(tmp_path: Path) -> None:
    lying = {**MINIMAL, "torch_dtype": "float32"}
    folder = write_checkpoint(tmp_path / "a", TINY_TIED, dtype="BF16", file_config=lying)
    assert codes(check_folder(folder)) == ["keys.config-dtype", "keys.config"]
    folder = write_checkpoint(tmp_path / "c", TINY_TIED, file_config={"tie_word_embeddings": False})
    assert codes(check_folder(folder)) == ["keys.head-missing", "keys.config"]
    conflict = {"tie_word_embeddings": True, "text_config": {"tie_word_embeddings": False}}
    folder = write_checkpoint(tmp_path / "d", TINY_TIED, file_config=conflict)
    assert codes(check_folder(folder)) == ["keys.tie-conflict", "keys.config"]
    folder = write_checkpoint(
        tmp_path / "b",
        TINY_TIED,
        dtype="BF16",
        file_config={"torch_dtype": "bfloat16"},
        mutate=lambda tensors: rename(tensors, lambda name: f"module.{name}"),
    )
    assert codes(check_folder(folder)) == ["keys.wrapper", "keys.config"]


def test_a_defect_of_the_model_folder_is_said_to_be_there(tmp_path: Path) -> None:
    export = write_checkpoint(tmp_path / "export")
    result = check_folder(export, tmp_path / "absent")
    assert "files.no-folder" in codes(result)
    assert result.findings[0].message.startswith("model folder: ")


def test_a_shard_lost_in_an_export_is_named(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert codes(check_folder(folder)) == ["files.index-missing-file"]


def test_a_pointer_is_the_only_fault_of_its_shard(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, TINY_TIED, shards=2, with_config=False)
    (folder / "model-00001-of-00002.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    write_config(folder, TINY_TIED)
    assert codes(check_folder(folder)) == ["files.lfs-pointer"]


def test_an_index_in_the_parent_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "out" / "hf", shards=2)
    (folder / INDEX).rename(tmp_path / "out" / INDEX)
    result = check_folder(folder)
    assert codes(result) == ["files.no-index"]
    assert "found one in the parent folder" in result.findings[0].message


def test_an_allow_list_reaches_the_check(tmp_path: Path) -> None:
    def buffers(tensors: Tensors) -> None:
        for layer in (0, 1):
            tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = Stored.filled("f", "F32", (2,))

    folder = write_checkpoint(tmp_path, mutate=buffers)
    assert codes(check_folder(folder)) == ["keys.unexpected"]
    assert check_folder(folder, allowed=[AllowedKeys("inv-freq", "*.inv_freq", 2)]).verdict is Verdict.PASS


def test_a_declared_dtype_reaches_the_check(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, dtype="BF16")
    assert codes(check_folder(folder, declared_dtype="float32")) == [
        "keys.declared-dtype",
        "keys.config-dtype",
    ]


def test_a_dump_folder_with_an_old_checkpoint(tmp_path: Path) -> None:
    assert check_fresh_dump_folder(tmp_path / "outputs", initial_load="HF weights").verdict is Verdict.PASS
    step = tmp_path / "outputs" / "checkpoint" / "step-20"
    step.mkdir(parents=True)
    result = check_fresh_dump_folder(tmp_path / "outputs", initial_load="HF weights")
    assert codes(result) == ["fresh-folder.stale"]
    assert "outputs/checkpoint already holds step-20" in result.findings[0].message
    assert check_fresh_dump_folder(tmp_path / "outputs", load_step=20).verdict is Verdict.PASS
    step.rmdir()
    assert check_fresh_dump_folder(tmp_path / "outputs").verdict is Verdict.PASS
    step.parent.rmdir()
    step.parent.write_text("a file")
    assert codes(check_fresh_dump_folder(tmp_path / "outputs")) == ["fresh-folder.unreadable"]


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_changed_byte_of_header_or_index_is_found_or_changes_nothing(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = write_checkpoint(Path(name), TINY_TIED, shards=2)
        file = data.draw(st.sampled_from([INDEX, "model-00001-of-00002.safetensors"]))
        content = bytearray((folder / file).read_bytes())
        end = len(content) if file == INDEX else 8 + int.from_bytes(content[:8], "little")
        at = data.draw(st.integers(0, end - 1))
        content[at] = data.draw(st.integers(0, 255))
        before = check_folder(folder).facts
        (folder / file).write_bytes(content)
        result = check_folder(folder)
        assert result.verdict is Verdict.FAIL or result.facts == before


def test_a_broken_config_is_a_finding(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    (folder / "config.json").write_text("{")
    assert codes(check_folder(folder)) == ["files.config-json"]
    write_config(folder, {**json.loads(json.dumps(TINY)), "model_type": "llama"})
    result = check_folder(folder)
    assert result.verdict is Verdict.NOT_JUDGED
    assert "model_type is llama" in result.reason
