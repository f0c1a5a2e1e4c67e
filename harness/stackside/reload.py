"""Load an exported checkpoint again, both ways people load one, and run it.

    python -m harness.stackside.reload REQUEST.json

Request: {"export": folder with safetensors, "model": Hugging Face folder with config and tokenizer,
"output": file for the record or null, "trained_logits": file of the trained model's logits, optional}.

The record says what `load_state_dict` and `from_pretrained` missed or did not know, and the logits of
both; it judges nothing. Transformers holds the experts of a mixture-of-experts model in fused tensors and
converts while loading: there raw names cannot be compared and `from_pretrained` alone is recorded.
"""

import contextlib
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from harness.stackside.digests import tensor_sha256
from harness.stackside.records import run_request, write_record

__all__ = [
    "INDEX",
    "finite",
    "holds_experts",
    "load_pretrained",
    "main",
    "read_export",
    "run",
]

INDEX = "model.safetensors.index.json"
_PROBE_LENGTH = 64
_LOADING = {"dtype": torch.float32, "attn_implementation": "eager", "trust_remote_code": False}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Return the record of loading `request["export"]` again, and write it to `request["output"]`.

    Raises `FileNotFoundError` if the export holds no safetensors, `ValueError` for a tensor stored twice.
    """
    export, source = Path(request["export"]), Path(request["model"])
    config = AutoConfig.from_pretrained(source, trust_remote_code=False, local_files_only=True)
    tensors = read_export(export)
    trained = _trained_logits(request.get("trained_logits"))
    ids = trained[0] if trained else (torch.arange(_PROBE_LENGTH)[None] % config.vocab_size)

    by_state_dict, from_state = _by_state_dict(config, tensors)
    by_pretrained, from_pretrained = _by_from_pretrained(export, source)
    original, _ = load_pretrained(source, source)
    logits = {
        "reference": trained[1] if trained else None,
        "state_dict": _logits(from_state, ids),
        "from_pretrained": _logits(from_pretrained, ids),
    }
    record = {
        "load_state_dict": by_state_dict,
        "from_pretrained": by_pretrained,
        "tied": bool(config.tie_word_embeddings),
        "logits": {
            **{f"{name}_sha256": None if v is None else tensor_sha256(v) for name, v in logits.items()},
            **_compare(logits, _logits(original, ids)),
        },
        "tensors": len(tensors),
        "dtypes": dict(Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())),
        "norm_weights_constant": _norms_constant(tensors),
        "compared_to": str(request["trained_logits"] if trained else source),
    }
    if request.get("output"):
        write_record(Path(request["output"]), record)
    return record


def read_export(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of the safetensors files in `folder` itself (not below it), by name.

    Raises `FileNotFoundError` if there is none, and `ValueError` for a name in two files.
    """
    tensors: dict[str, torch.Tensor] = {}
    for path in _weight_files(folder):
        part = load_file(path)
        if twice := sorted(tensors.keys() & part.keys()):
            raise ValueError(f"{path}: {twice[0]} is stored in another file of {folder} too")
        tensors |= part
    return tensors


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder}: no *.safetensors in it: nothing was exported there")
    return files


def load_pretrained(weights: Path, source: Path) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Return the float32 model of `weights` under the configuration of `source`, and the loading information.

    An export holds no configuration, so the two meet in a temporary folder of links. A tensor of another
    shape is reported in the information, not raised.
    """
    with _linked(weights, source) as folder:
        model, information = AutoModelForCausalLM.from_pretrained(
            folder,
            output_loading_info=True,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            **_LOADING,
        )
    return model.eval(), information


@contextlib.contextmanager
def _linked(weights: Path, source: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="reload-") as name:
        folder = Path(name)
        for path in [*_weight_files(weights), weights / INDEX, source / "config.json"]:
            if path.exists():
                (folder / path.name).symlink_to(path.resolve())
        yield folder


def holds_experts(config: Any) -> bool:
    """Return whether the configuration is of a mixture-of-experts model."""
    return bool(getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None))


def _by_state_dict(
    config: Any, tensors: dict[str, torch.Tensor]
) -> tuple[dict[str, Any], PreTrainedModel | None]:
    if holds_experts(config):
        reason = "Transformers holds fused experts: raw names cannot be compared, see from_pretrained"
        return {"missing": [], "unexpected": [], "mismatched": [], "not_judged": reason}, None
    model = AutoModelForCausalLM.from_config(config, **_LOADING)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    mismatched = sorted(name for name, t in tensors.items() if shapes.get(name, t.shape) != t.shape)
    fitting = {name: tensor for name, tensor in tensors.items() if name not in mismatched}
    result = model.load_state_dict(fitting, strict=False)
    report = {
        "missing": sorted(set(result.missing_keys) - set(mismatched)),
        "unexpected": sorted(result.unexpected_keys),
        "mismatched": mismatched,
    }
    return report, model.eval()


def _by_from_pretrained(export: Path, source: Path) -> tuple[dict[str, Any], PreTrainedModel | None]:
    keys = ("missing_keys", "unexpected_keys", "mismatched_keys")
    try:
        model, information = load_pretrained(export, source)
    except Exception as error:  # whatever it raises is what a user of the export would see
        return {**{key: [] for key in keys}, "error_msgs": [f"{type(error).__name__}: {error}"]}, None
    report = {key: sorted(map(_plain, information[key]), key=str) for key in keys}
    return {**report, "error_msgs": [str(message) for message in information["error_msgs"]]}, model


def _plain(key: Any) -> Any:
    """Return a mismatched entry (name, stored shape, model's shape) as JSON; a name as it is."""
    return key if isinstance(key, str) else [part if isinstance(part, str) else list(part) for part in key]


def _trained_logits(path: str | None) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the ids [1, seq] and float32 logits [1, seq, vocabulary] that the trained model left, if it did.

    Raises `ValueError` if the file of logits is not the one that was recorded.
    """
    if path is None or not Path(path).is_file():
        return None
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    logits = torch.from_numpy(numpy.load(record["logits_f32_file"], allow_pickle=False))
    if tensor_sha256(logits) != record["sha256"]:
        raise ValueError(f"{record['logits_f32_file']}: its SHA-256 is not the one in {path}")
    return torch.tensor(record["ids"]), logits


def _logits(model: PreTrainedModel | None, ids: torch.Tensor) -> torch.Tensor | None:
    if model is None:
        return None
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits.float()


def _compare(logits: dict[str, torch.Tensor | None], original: torch.Tensor | None) -> dict[str, Any]:
    """Return how far the logits that are there lie apart, their spread, and how far training moved them."""
    there = [value for value in logits.values() if value is not None]
    differences = [_difference(a, b) for index, a in enumerate(there) for b in there[index + 1 :]]
    loaded = logits["from_pretrained"] if logits["from_pretrained"] is not None else logits["state_dict"]
    moved = _difference(loaded, original) if loaded is not None and original is not None else math.nan
    return {
        "max_abs_diff": finite(max(differences))
        if differences and not any(map(math.isnan, differences))
        else None,
        "std": finite(loaded.std().item()) if loaded is not None else None,
        "moved_from_source": finite(moved),
    }


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape:
        return math.nan
    return (a.double() - b.double()).abs().max().item()


def finite(value: float) -> float | None:
    """Return `value`, or None if it is not finite: JSON has no word for that."""
    return value if math.isfinite(value) else None


def _norms_constant(tensors: dict[str, torch.Tensor]) -> bool | None:
    """Return whether every norm weight is one number throughout; None without norm weights."""
    norms = [tensor for name, tensor in tensors.items() if "norm" in name and tensor.ndim == 1]
    return all(bool((norm == norm[0]).all()) for norm in norms) if norms else None


def main(arguments: list[str] | None = None) -> int:
    """Run the request in the file named on the command line; return the exit status."""
    return run_request("harness.stackside.reload", run, arguments)


if __name__ == "__main__":
    sys.exit(main())
