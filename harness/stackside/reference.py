"""An independent repetition of a training run: plain Transformers and PyTorch, nothing of torchtitan.

    python -m harness.stackside.reference REQUEST.json

Tokenisation, packing, masks, learning rates, loss and update are written here a second time, from their
definitions, in one process, float32, with eager attention and an explicit mask. A run that agrees with
this on the same tokens computes what it should; "the loss falls" does not say that.

Request: {"model", "corpus", "mask", "ranks", "seq_len", "local_batch_size", "steps", "optimizer",
"schedule", "max_norm", "train", "export", "output"}; see `Request`.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
import transformers
from transformers import PreTrainedModel

from harness.stackside.packing import Batch, batches, read_corpus
from harness.stackside.records import run_request, write_record
from harness.stackside.reload import finite, holds_experts, load_pretrained, read_export

__all__ = ["Request", "learning_rate_factor", "main", "mask_of", "run"]

Mask = Literal["causal", "block_causal"]
_OTHER: dict[Mask, Mask] = {"causal": "block_causal", "block_causal": "causal"}
_BACKEND = "torchtitan.experiments.transformers_modeling_backend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to repeat. `model` and `corpus` are absolute folders; `export` is one, or None."""

    model: str
    corpus: str
    mask: Mask
    ranks: int
    seq_len: int
    local_batch_size: int
    steps: int
    optimizer: Mapping[str, Any]
    """`lr`, `betas`, `eps` and `weight_decay` of AdamW, for all parameters alike."""
    schedule: Mapping[str, Any]
    """`warmup_steps`, `decay_ratio`, `decay_type` and `min_lr_factor`."""
    max_norm: float
    train: bool
    """False: only the forward of the first step."""
    export: str | None = None
    output: str | None = None

    def __post_init__(self) -> None:
        if self.mask not in _OTHER:
            raise ValueError(f"mask is {self.mask!r}, expected one of {', '.join(_OTHER)}")


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Repeat the run, return its record and write it to `request["output"]`.

    Raises `RuntimeError` where torchtitan's Transformers backend is loaded: it patches Transformers for
    the whole process, so that the repetition would not be independent. Raises `TypeError` for a missing
    or unknown key of the request, `ValueError` if the corpus is too small or a weight is missing.
    """
    _require_plain_transformers()
    asked = Request(**request)
    model, information = load_pretrained(Path(asked.model), Path(asked.model))
    _require_whole(asked.model, information)
    texts = read_corpus(Path(asked.corpus))
    plan = batches(
        Path(asked.model),
        texts,
        ranks=asked.ranks,
        steps=asked.steps if asked.train else 1,
        seq_len=asked.seq_len,
        local_batch_size=asked.local_batch_size,
    )
    other = _loss_without_gradient(model, plan[0], _OTHER[asked.mask])
    steps = list(_train(model, plan, asked)) if asked.train else [_first_step(model, plan[0], asked)]
    record = {
        "mask": asked.mask,
        "attention": "eager",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "torchtitan_backend_loaded": _BACKEND in sys.modules,
        "ranks": asked.ranks,
        "seq_len": asked.seq_len,
        "local_batch_size": asked.local_batch_size,
        "trained": asked.train,
        "asked_steps": asked.steps,
        "steps": steps,
        "other_mask_first_loss": finite(other),
        "random_loss": math.log(model.config.vocab_size),
        "export": _compare_export(asked, model) if asked.export and asked.train else None,
    }
    _require_plain_transformers()
    if asked.output is not None:
        write_record(Path(asked.output), record)
    return record


def _require_plain_transformers() -> None:
    loaded = sorted(name for name in sys.modules if name.startswith(_BACKEND))
    if loaded or not PreTrainedModel._init_weights.__module__.startswith("transformers."):
        raise RuntimeError(
            f"torchtitan's Transformers backend is loaded ({loaded[:1] or PreTrainedModel._init_weights}): it patches "
            "Transformers for this process. Next: run the reference in a process of its own"
        )


def _require_whole(folder: str, information: Mapping[str, Any]) -> None:
    for kind in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs"):
        if found := sorted(map(str, information[kind])):
            raise ValueError(
                f"{folder}: Transformers reports {kind} {found[:3]}: there is nothing to refer to"
            )


def mask_of(positions: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Return what to add to the attention scores, float32 [batch, 1, seq, seq]: 0 where attended, else -inf.

    Causal: every earlier token of the row. Block-causal: those of the same document; a document starts
    where the position is 0.
    """
    batch, seq = positions.shape
    allowed = torch.ones(seq, seq, dtype=torch.bool).tril().expand(batch, seq, seq)
    if mask == "block_causal":
        document = (positions == 0).cumsum(dim=1)
        allowed = allowed & (document[:, :, None] == document[:, None, :])
    return torch.zeros(batch, 1, seq, seq).masked_fill(~allowed[:, None], float("-inf"))


def learning_rate_factor(step: int, steps: int, schedule: Mapping[str, Any]) -> float:
    """Return the factor on the learning rate at `step`, counted from 1: warm-up, constant, decay.

    The decay ends one step after the last, so that no step has the final factor. Raises `ValueError` for
    an unknown decay.
    """
    warmup = min(int(schedule["warmup_steps"]), steps)
    ratio = schedule.get("decay_ratio")
    decay = steps - warmup if ratio is None else min(round(steps * ratio), steps - warmup)
    if step <= warmup:
        return step / warmup
    before_last = steps + 1 - step
    if before_last > decay:
        return 1.0
    left = before_last / decay
    shapes = {
        "linear": left,
        "sqrt": 1 - math.sqrt(1 - left),
        "cosine": 0.5 * (1 + math.cos(math.pi * (1 - left))),
    }
    if schedule["decay_type"] not in shapes:
        raise ValueError(f"decay_type is {schedule['decay_type']!r}, expected one of {', '.join(shapes)}")
    lowest = float(schedule["min_lr_factor"])
    return lowest + (1 - lowest) * shapes[schedule["decay_type"]]


def _summed_loss(model: PreTrainedModel, batch: Batch, mask: Mask) -> torch.Tensor:
    """Return the cross entropy summed over the batch's tokens, in nats."""
    logits = model(
        input_ids=batch.input_ids,
        position_ids=batch.positions,
        attention_mask=mask_of(batch.positions, mask),
        use_cache=False,
    ).logits
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")


def _tokens(step: Sequence[Batch]) -> int:
    return sum(batch.labels.numel() for batch in step)


def _loss_without_gradient(model: PreTrainedModel, step: Sequence[Batch], mask: Mask) -> float:
    with torch.no_grad():
        return sum(_summed_loss(model, batch, mask).item() for batch in step) / _tokens(step)


def _row(
    step: int, loss: float, grad_norm: float | None, rate: float, given: Sequence[Batch]
) -> dict[str, Any]:
    digests = [batch.sha256() for batch in given]
    return {
        "step": step,
        "loss": finite(loss),
        "loss_hex": loss.hex(),
        "grad_norm": grad_norm,
        "lr": rate,
        "batches": digests,
    }


def _first_step(model: PreTrainedModel, given: Sequence[Batch], request: Request) -> dict[str, Any]:
    rate = request.optimizer["lr"] * learning_rate_factor(1, request.steps, request.schedule)
    return _row(1, _loss_without_gradient(model, given, request.mask), None, rate, given)


def _train(
    model: PreTrainedModel, plan: Sequence[Sequence[Batch]], request: Request
) -> Iterator[dict[str, Any]]:
    """Train `model` in place and yield the row of each step."""
    settings = {**request.optimizer, "betas": tuple(request.optimizer["betas"])}
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    for step, given in enumerate(plan, 1):
        rate = request.optimizer["lr"] * learning_rate_factor(step, request.steps, request.schedule)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        total = 0.0
        for batch in given:
            part = _summed_loss(model, batch, request.mask) / _tokens(given)
            part.backward()
            total += part.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), request.max_norm).item()
        optimizer.step()
        yield _row(step, total, finite(norm), rate, given)


def _compare_export(request: Request, model: PreTrainedModel) -> dict[str, Any]:
    """Return how far the run's exported weights lie from the ones trained here."""
    folder, source = Path(str(request.export)), Path(request.model)
    stored, held = read_export(folder), model.state_dict()
    names, expected = set(stored), set(held)
    if holds_experts(model.config):
        # Stored one by one, held fused: names compare with the source's, values only once loaded.
        expected = set(read_export(source))
        stored = load_pretrained(folder, source)[0].state_dict() if names == expected else {}
    optional = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    differences = {
        name: _largest_difference(stored[name], held[name]) for name in stored.keys() & held.keys()
    }
    comparable = {name: value for name, value in differences.items() if value is not None}
    broken = sorted(differences.keys() - comparable.keys())
    worst = broken[0] if broken else max(sorted(comparable), key=lambda name: comparable[name], default=None)
    return {
        "tensors": len(names),
        "max_abs_diff": comparable.get(worst) if worst is not None else None,
        "worst": worst,
        "not_comparable": broken,
        "missing": sorted(expected - names - optional),
        "extra": sorted(names - expected - optional),
    }


def _largest_difference(a: torch.Tensor, b: torch.Tensor) -> float | None:
    """Return the largest absolute difference; None if the shapes differ or a value is not finite."""
    return finite((a.double() - b.double()).abs().max().item()) if a.shape == b.shape else None


def main(arguments: list[str] | None = None) -> int:
    """Run the request in the file named on the command line; return the exit status."""
    return run_request("harness.stackside.reference", run, arguments)


if __name__ == "__main__":
    sys.exit(main())
