"""The synthetic assets: reproducible, whole, and such that wrong maths changes the loss."""

import hashlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from harness.stackside.make_assets import END_OF_TEXT, MODELS, corpus, main, make
from harness.stackside.packing import batches, read_corpus, tokenise
from tests.stackside.by_hand import Qwen3ByHand

SEQ_LEN = 128
RANDOM = math.log(512)


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(params=sorted(MODELS))
def model(request: pytest.FixtureRequest, made_assets: Path) -> Path:
    """Each of the two checkpoints."""
    return made_assets / str(request.param)


def rows(assets: Path, model: Path, ranks: int = 2) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """The rows of the first step, one a rank."""
    texts = read_corpus(assets / "c4_test")
    (step,) = batches(model, texts, ranks=ranks, steps=1, seq_len=SEQ_LEN, local_batch_size=1)
    return [(batch.input_ids[0], batch.labels[0], batch.positions[0]) for batch in step]


def first_loss(assets: Path, model: Path, *, block_causal: bool = False, **mistakes: Any) -> float:
    by_hand = Qwen3ByHand(model, **mistakes)
    losses = [by_hand.loss(*row, block_causal=block_causal) for row in rows(assets, model)]
    return sum(losses) / len(losses)


def test_everything_is_there(made_assets: Path) -> None:
    model = ["config.json", "generation_config.json", "model.safetensors"]
    tokenizer = ["tokenizer.json", "tokenizer_config.json"]
    expected = ["c4_test/data.json", *(f"tokenizer/{name}" for name in tokenizer)]
    expected += [f"{folder}/{name}" for folder in MODELS for name in [*model, *tokenizer]]
    assert sorted(digests(made_assets)) == sorted(expected)


def test_every_file_may_be_read_by_others(made_assets: Path) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in made_assets.rglob("*") if path.is_file())


def test_a_second_making_in_a_process_of_its_own_gives_the_same_bytes(
    made_assets: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    subprocess.run([sys.executable, "-m", "harness.stackside.make_assets", str(again)], check=True)
    assert digests(again) == digests(made_assets)


def test_every_option_changes_something(tmp_path: Path) -> None:
    usual = {"documents": 60, "vocabulary": 300, "steps": 1, "seed": 0}
    options = [usual, *({**usual, name: value + 1} for name, value in usual.items())]
    made = []
    for number, option in enumerate(options):
        main([str(tmp_path / str(number)), *(f"--{name}={value}" for name, value in option.items())])
        made.append(tuple(digests(tmp_path / str(number)).values()))
    assert len(set(made)) == len(options)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        make(tmp_path)


def test_a_corpus_too_small_for_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="asked for 4096"):
        make(tmp_path, documents=10, vocabulary=4096)


def test_making_leaves_the_processs_own_state_alone(tmp_path: Path) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    make(tmp_path, documents=60, vocabulary=300, steps=1)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


# Corpus and tokenizer


def test_the_corpus_has_the_c4_fields_and_little_repetition(made_assets: Path) -> None:
    lines = (made_assets / "c4_test" / "data.json").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == 2000
    assert all(row.keys() == {"text", "timestamp", "url"} for row in found)
    texts = [row["text"] for row in found]
    assert texts == corpus(2000, 0)
    assert len(set(texts)) == len(texts)
    sentences = [sentence for text in texts for sentence in text.split(". ")]
    assert len(set(sentences)) > 0.9 * len(sentences)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_every_ranks_first_row_packs_several_documents(made_assets: Path, model: Path, ranks: int) -> None:
    for _, _, positions in rows(made_assets, model, ranks):
        assert (positions == 0).sum() >= 2


def test_some_documents_span_several_rows(made_assets: Path, model: Path) -> None:
    lengths = [len(ids) for ids in tokenise(model, read_corpus(made_assets / "c4_test")[:100])]
    assert max(lengths) > 2 * SEQ_LEN
    assert min(lengths) < SEQ_LEN / 2


def test_the_tokenizer_is_lossless_and_ends_documents_with_its_end_token(made_assets: Path) -> None:
    tokenizer = Tokenizer.from_file(str(made_assets / "tokenizer" / "tokenizer.json"))
    end = tokenizer.token_to_id(END_OF_TEXT)
    assert tokenizer.get_vocab_size() == 512
    for text in ("In 2026,  x=3.14 — Zoë's café 日本", corpus(1, 0)[0]):
        ids = next(tokenise(made_assets / "tokenizer", [text]))
        assert tokenizer.decode(ids[:-1]) == text
        assert ids[-1] == end
        assert end not in ids[:-1]


def test_transformers_reads_the_same_ids(model: Path) -> None:
    text = corpus(1, 0)[0]
    by_transformers = AutoTokenizer.from_pretrained(model, local_files_only=True)
    assert by_transformers(text)["input_ids"] == next(tokenise(model, [text]))[:-1]
    assert by_transformers.eos_token == END_OF_TEXT


# Checkpoints


def test_the_checkpoint_is_what_its_configuration_says(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    tied = MODELS[model.name]
    wanted = {
        "model_type": "qwen3",
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 256,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "vocab_size": 512,
        "tie_word_embeddings": tied,
        "eos_token_id": 0,
        "dtype": "float32",
    }
    assert {key: config[key] for key in wanted} == wanted
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e6}
    weights = load_file(model / "model.safetensors")
    assert len(weights) == 24 + (not tied)
    assert ("lm_head.weight" in weights) is not tied
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


def test_no_tensor_is_constant_and_none_survives_bfloat16(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    for name, tensor in weights.items():
        assert torch.isfinite(tensor).all(), name
        assert tensor.std() > 1e-3, name
        assert not torch.equal(tensor.bfloat16().float(), tensor), name
    norms = [tensor for name, tensor in weights.items() if "norm" in name]
    assert len(norms) == 9
    assert all(tensor.max() - tensor.min() > 0.5 for tensor in norms)


def test_the_untied_head_is_not_the_embedding(made_assets: Path) -> None:
    weights = load_file(made_assets / "qwen3-tiny" / "model.safetensors")
    difference = weights["lm_head.weight"] - weights["model.embed_tokens.weight"]
    assert difference.abs().max() > 0.1


def test_the_first_loss_is_below_random(made_assets: Path, model: Path) -> None:
    for block_causal in (False, True):
        assert 0.5 < first_loss(made_assets, model, block_causal=block_causal) < RANDOM - 1


def test_the_masks_give_clearly_different_losses(made_assets: Path, model: Path) -> None:
    causal = first_loss(made_assets, model)
    assert abs(first_loss(made_assets, model, block_causal=True) - causal) > 1e-2


MISTAKES: list[dict[str, Any]] = [
    {"rotate_before_norm": True},
    {"theta": 10_000.0},
    {"norms_one": True},
    {"rotation_sign": -1},
    {"interleaved": True},
    {"exchange_qk_norms": True},
    {"head_is_embedding": True},
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: next(iter(mistake)))
def test_wrong_maths_changes_the_first_loss(made_assets: Path, model: Path, mistake: dict[str, Any]) -> None:
    right, wrong = first_loss(made_assets, model), first_loss(made_assets, model, **mistake)
    if MODELS[model.name] and "head_is_embedding" in mistake:
        assert wrong == right
    else:
        # Ten times what the reference check allows at the first step.
        assert abs(wrong - right) > 1e-4
