"""The independent reference: its tokens and schedule are torchtitan's, its maths is the definition's."""

import json
import math
import sys
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, Qwen3MoeConfig, Qwen3MoeForCausalLM

from harness.stackside.packing import batches, pack, read_corpus, share, tokenise
from harness.stackside.reference import learning_rate_factor, main, mask_of, run
from tests.stackside.by_hand import Qwen3ByHand

SEQ_LEN = 128
SCHEDULE = {"warmup_steps": 2, "decay_ratio": 0.8, "decay_type": "linear", "min_lr_factor": 0.0}
NORM = "model.layers.1.self_attn.q_norm.weight"


@pytest.fixture
def source(made_assets: Path) -> Path:
    """The untied checkpoint."""
    return made_assets / "qwen3-tiny"


def asked(assets: Path, model: str = "qwen3-tiny", **changes: Any) -> dict[str, Any]:
    return {
        "model": str(assets / model),
        "corpus": str(assets / "c4_test"),
        "mask": "causal",
        "ranks": 2,
        "seq_len": SEQ_LEN,
        "local_batch_size": 1,
        "steps": 10,
        "optimizer": {"lr": 8e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        "schedule": SCHEDULE,
        "max_norm": 1.0,
        "train": False,
        "export": None,
        "output": None,
        **changes,
    }


# Tokens


@pytest.mark.parametrize(("ranks", "seq_len", "batch"), [(1, 128, 1), (2, 128, 1), (3, 96, 2)])
def test_batches_are_torchtitans(
    made_assets: Path,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranks: int,
    seq_len: int,
    batch: int,
) -> None:
    import datasets
    from torchtitan.components.tokenizer import HuggingFaceTokenizer
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataset

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    tokenizer = HuggingFaceTokenizer(tokenizer_path=str(source))
    steps = 12
    ours = batches(
        source,
        read_corpus(made_assets / "c4_test"),
        ranks=ranks,
        steps=steps,
        seq_len=seq_len,
        local_batch_size=batch,
    )
    for rank in range(ranks):
        corpus = str(made_assets / "c4_test")
        theirs = iter(HuggingFaceTextDataset("c4_test", corpus, tokenizer, seq_len, rank, ranks))
        for step in range(steps):
            for row in range(batch):
                given_row, labels = next(theirs)
                assert torch.equal(ours[step][rank].input_ids[row], given_row["input"])
                assert torch.equal(ours[step][rank].positions[row], given_row["positions"])
                assert torch.equal(ours[step][rank].labels[row], labels)


def test_packing_by_example() -> None:
    documents = [[1, 2, 3, 4, 5, 6], [7], [8, 9, 10], [11, 12, 13]]
    assert list(pack(documents, 4)) == [
        ([1, 2, 3, 4], [2, 3, 4, 5], [0, 1, 2, 3]),
        # What is left of a document counts from 0 again; a document of one token gives nothing.
        ([5, 8, 9, 11], [6, 9, 10, 12], [0, 0, 1, 0]),
    ]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=12),
    st.integers(1, 16),
)
def test_packing_loses_and_invents_nothing(documents: list[list[int]], seq_len: int) -> None:
    rows = list(pack(documents, seq_len))
    pairs = [pair for document in documents for pair in pairwise(document)]
    packed = [pair for inputs, labels, _ in rows for pair in zip(inputs, labels, strict=True)]
    assert packed == pairs[: len(pairs) // seq_len * seq_len]
    for inputs, _, positions in rows:
        assert len(inputs) == len(positions) == seq_len
        assert positions[0] == 0
        assert all(b in (0, a + 1) for a, b in pairwise(positions))


@settings(deadline=None)
@given(st.lists(st.text(max_size=1), max_size=30), st.integers(1, 8))
def test_shares_are_contiguous_complete_and_even(texts: list[str], ranks: int) -> None:
    shares = [share(texts, rank, ranks) for rank in range(ranks)]
    assert [text for part in shares for text in part] == texts
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_corpus_that_ends_too_early_is_refused(source: Path) -> None:
    with pytest.raises(ValueError, match=r"rank 0 of 2 only \d+ rows of 128 tokens, 10 are needed"):
        batches(source, ["a short text"] * 4, ranks=2, steps=10, seq_len=128, local_batch_size=1)


def test_another_file_beside_the_corpus_is_refused(made_assets: Path, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_bytes((made_assets / "c4_test" / "data.json").read_bytes())
    assert len(read_corpus(tmp_path)) == 2000
    (tmp_path / "more.json").write_text("{}")
    with pytest.raises(ValueError, match=r"more\.json lies beside data\.json"):
        read_corpus(tmp_path)


def tokenizer_with(folder: Path, source: Path, **changes: Any) -> Path:
    settings_ = json.loads((source / "tokenizer_config.json").read_text()) | changes
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings_))
    return folder


def test_a_beginning_token_is_put_in_front(source: Path, tmp_path: Path) -> None:
    plain = next(tokenise(source, ["text"]))
    named = tokenizer_with(tmp_path, source, bos_token={"content": "<|endoftext|>"})
    assert next(tokenise(named, ["text"])) == [0, *plain]


def test_a_tokenizer_without_end_token_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no eos_token"):
        next(tokenise(tokenizer_with(tmp_path, source, eos_token=None), ["text"]))


# Mathematics


@settings(deadline=None)
@given(
    steps=st.integers(1, 40),
    warmup=st.integers(0, 45),
    ratio=st.none() | st.floats(0.0, 1.0),
    decay=st.sampled_from(["linear", "sqrt", "cosine"]),
    lowest=st.floats(0.0, 1.0),
)
def test_learning_rates_are_torchtitans(
    steps: int, warmup: int, ratio: float | None, decay: str, lowest: float
) -> None:
    from torchtitan.components.optimizer import LRSchedulersContainer

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = {"warmup_steps": warmup, "decay_ratio": ratio, "decay_type": decay, "min_lr_factor": lowest}
    config = LRSchedulersContainer.Config(**schedule)  # type: ignore[arg-type]
    theirs = config.build(optimizers=[optimizer], training_steps=steps)
    for step in range(1, steps + 1):
        expected = optimizer.param_groups[0]["lr"]
        assert math.isclose(
            learning_rate_factor(step, steps, schedule), expected, rel_tol=1e-9, abs_tol=1e-12
        )
        optimizer.step()
        theirs.step()


def test_an_unknown_decay_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of linear, sqrt, cosine"):
        learning_rate_factor(9, 10, {**SCHEDULE, "decay_type": "steps"})


def test_masks_by_example() -> None:
    positions = torch.tensor([[0, 1, 0, 1]])
    causal, block = (mask_of(positions, mask)[0, 0] == 0 for mask in ("causal", "block_causal"))
    assert causal.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert block.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("model", ["qwen3-tiny", "qwen3-tiny-tied"])
@pytest.mark.parametrize("mask", ["causal", "block_causal"])
def test_the_first_loss_is_the_definitions(made_assets: Path, model: str, mask: str) -> None:
    record = run(asked(made_assets, model, mask=mask))
    by_hand = Qwen3ByHand(made_assets / model)
    (step,) = batches(
        made_assets / model,
        read_corpus(made_assets / "c4_test"),
        ranks=2,
        steps=1,
        seq_len=SEQ_LEN,
        local_batch_size=1,
    )
    losses = {
        block: sum(
            by_hand.loss(b.input_ids[0], b.labels[0], b.positions[0], block_causal=block) for b in step
        )
        / 2
        for block in (False, True)
    }
    (row,) = record["steps"]
    assert row["loss"] == pytest.approx(losses[mask == "block_causal"], abs=2e-6)
    assert record["other_mask_first_loss"] == pytest.approx(losses[mask != "block_causal"], abs=2e-6)
    assert row["batches"] == [batch.sha256() for batch in step]
    assert float.fromhex(row["loss_hex"]) == row["loss"]
    assert row["grad_norm"] is None
    assert row["lr"] == 4e-4


# Training


@pytest.fixture(scope="module")
def trained(made_assets: Path) -> dict[str, Any]:
    """The record of ten steps."""
    return run(asked(made_assets, train=True))


def test_training_starts_at_the_forwards_loss_and_falls(made_assets: Path, trained: dict[str, Any]) -> None:
    first = run(asked(made_assets))["steps"][0]
    assert trained["steps"][0]["loss"] == pytest.approx(first["loss"], abs=1e-6)
    assert trained["steps"][0]["batches"] == first["batches"]
    losses = [row["loss"] for row in trained["steps"]]
    assert len(losses) == 10
    assert losses[-1] < losses[0] - 0.01
    assert [row["step"] for row in trained["steps"]] == list(range(1, 11))
    assert all(len(row["batches"]) == 2 for row in trained["steps"])
    assert all(0.1 < row["grad_norm"] < 100 for row in trained["steps"])
    assert [row["lr"] / 8e-4 for row in trained["steps"]] == pytest.approx(
        [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]
    )


def test_the_record_says_what_made_it(trained: dict[str, Any]) -> None:
    import transformers

    assert trained["torch"] == torch.__version__
    assert trained["transformers"] == transformers.__version__
    assert trained["attention"] == "eager"
    assert trained["torchtitan_backend_loaded"] is False
    assert (trained["mask"], trained["ranks"], trained["seq_len"]) == ("causal", 2, SEQ_LEN)
    assert (trained["trained"], trained["asked_steps"]) == (True, 10)
    assert trained["random_loss"] == math.log(512)
    assert trained["export"] is None
    json.dumps(trained, allow_nan=False)


def test_two_ranks_of_one_row_train_like_one_rank_of_two(
    made_assets: Path, trained: dict[str, Any], tmp_path: Path
) -> None:
    """Loss, gradients and update are those of the whole batch, however it is shared out."""
    rows = [json.loads(line) for line in (made_assets / "c4_test" / "data.json").read_text().splitlines()]
    half = len(rows) // 2
    # Ten rows of each half, interleaved so that one rank meets them in the order in which two ranks do.
    documents: list[str] = []
    source = made_assets / "qwen3-tiny"
    for mine, other in zip(
        *(_rows_as_texts(source, part) for part in (rows[:half], rows[half:])), strict=True
    ):
        documents += [mine, other]
    folder = tmp_path / "c4_test"
    folder.mkdir()
    lines = [json.dumps({"text": text}) for text in documents]
    (folder / "data.json").write_text("\n".join(lines) + "\n")
    changes = {"corpus": str(folder), "seq_len": 32, "steps": 3, "train": True}
    one = run(asked(made_assets, **changes, ranks=1, local_batch_size=2))
    # The same rows for two ranks: the first rank's in the first half.
    (folder / "data.json").write_text("\n".join([*lines[0::2], *lines[1::2]]) + "\n")
    two = run(asked(made_assets, **changes, ranks=2, local_batch_size=1))
    for a, b in zip(one["steps"], two["steps"], strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-6)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-5)
        assert a["batches"] != b["batches"]


def _rows_as_texts(source: Path, rows: list[dict[str, str]]) -> list[str]:
    """Texts of exactly 33 tokens with the end token, so that each is one row of 32."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    texts = []
    for row in rows:
        ids = tokenizer.encode(row["text"]).ids
        text = tokenizer.decode(ids[:32])
        if len(ids) >= 32 and len(tokenizer.encode(text).ids) == 32:
            texts.append(text)
        if len(texts) == 10:
            break
    return texts


def changed_weights(folder: Path, source: Path, **changes: torch.Tensor | None) -> str:
    tensors: dict[str, Any] = {**load_file(source / "model.safetensors"), **changes}
    folder.mkdir()
    save_file(
        {name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / "model.safetensors"
    )
    return str(folder)


def compared(assets: Path, export: str, model: str = "qwen3-tiny") -> dict[str, Any]:
    """Compare an export with weights that did not move: the learning rate is 0."""
    optimizer = {"lr": 0.0, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
    record = run(asked(assets, model, train=True, steps=2, optimizer=optimizer, export=export))
    export_record: dict[str, Any] = record["export"]
    return export_record


def test_equal_weights_compare_equal(made_assets: Path, source: Path) -> None:
    assert compared(made_assets, str(source)) == {
        "tensors": 25,
        "max_abs_diff": 0.0,
        "worst": compared(made_assets, str(source))["worst"],
        "not_comparable": [],
        "missing": [],
        "extra": [],
    }


def test_training_moves_the_weights(made_assets: Path, source: Path) -> None:
    record = run(asked(made_assets, train=True, steps=2, export=str(source)))
    assert record["export"]["max_abs_diff"] > 1e-4


def test_a_changed_tensor_is_named(made_assets: Path, source: Path, tmp_path: Path) -> None:
    moved = load_file(source / "model.safetensors")[NORM] + torch.tensor([0.25] + [0.0] * 31)
    export = compared(made_assets, changed_weights(tmp_path / "export", source, **{NORM: moved}))
    assert export["worst"] == NORM
    assert export["max_abs_diff"] == pytest.approx(0.25, abs=1e-6)


def test_missing_and_extra_tensors_are_named(made_assets: Path, source: Path, tmp_path: Path) -> None:
    folder = changed_weights(tmp_path / "export", source, **{NORM: None, "model.extra": torch.ones(1)})
    export = compared(made_assets, folder)
    assert (export["missing"], export["extra"]) == ([NORM], ["model.extra"])


@pytest.mark.parametrize("bad", [torch.full((32,), math.nan), torch.ones(16)])
def test_values_that_cannot_be_compared_are_no_number(
    made_assets: Path, source: Path, tmp_path: Path, bad: torch.Tensor
) -> None:
    export = compared(made_assets, changed_weights(tmp_path / "export", source, **{NORM: bad}))
    assert export["max_abs_diff"] is None
    assert export["not_comparable"] == [NORM]
    assert export["worst"] == NORM


def test_a_tied_head_may_be_stored_or_not_but_must_be_equal(made_assets: Path, tmp_path: Path) -> None:
    source = made_assets / "qwen3-tiny-tied"
    implicit = compared(made_assets, str(source), "qwen3-tiny-tied")
    assert (implicit["tensors"], implicit["max_abs_diff"], implicit["missing"]) == (24, 0.0, [])
    head = load_file(source / "model.safetensors")["model.embed_tokens.weight"].clone()
    same = changed_weights(tmp_path / "same", source, **{"lm_head.weight": head})
    assert compared(made_assets, same, "qwen3-tiny-tied")["max_abs_diff"] == 0.0
    other = changed_weights(tmp_path / "other", source, **{"lm_head.weight": head + 0.5})
    assert compared(made_assets, other, "qwen3-tiny-tied")["worst"] == "lm_head.weight"


def test_a_mixture_of_experts_is_compared_as_transformers_loads_it(
    made_assets: Path, source: Path, tmp_path: Path
) -> None:
    config = Qwen3MoeConfig(
        vocab_size=512,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
    )
    folder = tmp_path / "moe"
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    tokenizer_with(folder, source)
    export = compared(made_assets, str(folder), str(folder))
    assert (export["missing"], export["extra"], export["not_comparable"]) == ([], [], [])
    assert export["max_abs_diff"] == 0.0
    expert = "model.layers.0.mlp.experts.2.up_proj.weight"
    tensors = load_file(folder / "model.safetensors")
    changed = changed_weights(tmp_path / "changed", folder, **{expert: tensors[expert] + 1})
    export = compared(made_assets, changed, str(folder))
    assert export["max_abs_diff"] == pytest.approx(1.0, abs=1e-6)
    assert "experts" in export["worst"]
    lacking = changed_weights(tmp_path / "lacking", folder, **{expert: None})
    export = compared(made_assets, lacking, str(folder))
    assert (export["missing"], export["max_abs_diff"]) == ([expert], None)


# Independence and input


def test_torchtitans_backend_in_the_process_is_refused(
    made_assets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "torchtitan.experiments.transformers_modeling_backend"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with pytest.raises(RuntimeError, match="a process of its own"):
        run(asked(made_assets))


def test_patched_transformers_are_refused(made_assets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def patched(self: PreTrainedModel, module: torch.nn.Module) -> None:
        raise AssertionError("not called")

    monkeypatch.setattr(PreTrainedModel, "_init_weights", patched)
    with pytest.raises(RuntimeError, match="patches Transformers"):
        run(asked(made_assets))


def test_a_model_that_lacks_a_tensor_is_no_reference(made_assets: Path, source: Path, tmp_path: Path) -> None:
    folder = Path(changed_weights(tmp_path / "model", source, **{NORM: None}))
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    with pytest.raises(ValueError, match=r"missing_keys.*q_norm"):
        run(asked(made_assets, model=str(folder)))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"mask": "full"}, ValueError, "mask is 'full', expected one of causal, block_causal"),
        ({"batch": 3}, TypeError, "batch"),
    ],
)
def test_a_wrong_request_is_refused(
    made_assets: Path, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        run(asked(made_assets, **changes))


def test_a_request_without_a_key_is_refused(made_assets: Path) -> None:
    request = asked(made_assets)
    del request["seq_len"]
    with pytest.raises(TypeError, match="seq_len"):
        run(request)


def test_the_command_line_writes_the_record(made_assets: Path, tmp_path: Path) -> None:
    output = tmp_path / "observed" / "reference.json"
    (tmp_path / "request.json").write_text(json.dumps(asked(made_assets, output=str(output))))
    assert main([str(tmp_path / "request.json")]) == 0
    assert len(json.loads(output.read_text())["steps"]) == 1
