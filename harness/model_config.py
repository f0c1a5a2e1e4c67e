"""Single statements of a Hugging Face config.json, read without ever assuming a default.

Standard library only, so that a stack's Python can import it too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.checks.finding import Finding
from harness.checks.wording import few, shown
from harness.errors import UserError

__all__ = [
    "ConfigError",
    "config_dtype",
    "flag_of",
    "rope_dim",
    "rope_theta",
    "rope_type",
    "size_of",
    "tie_conflicts",
]

_LARGEST = {"num_hidden_layers": 512, "num_experts": 1024, "num_local_experts": 1024}
"""Far above any model; keeps a damaged config from asking for a million names."""


class ConfigError(UserError):
    """A config.json that does not say what is needed; `key` is the one at fault."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def rope_theta(config: Mapping[str, Any]) -> float:
    """Return the base of the rotary embedding that `config` declares.

    Read from `rope_parameters.rope_theta` (Transformers 5) or `rope_theta` (before). Raises
    `ConfigError` when neither is there, or both and different: a default here is a silent fault.
    """
    nested = _rope_parameters(config).get("rope_theta")
    found = [value for value in (nested, config.get("rope_theta")) if value is not None]
    if not found:
        raise ConfigError(
            "rope_theta",
            "config.json has neither rope_parameters.rope_theta nor rope_theta; there is no safe default, add it.",
        )
    if any(
        isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value < 1e30
        for value in found
    ):
        raise ConfigError(
            "rope_theta", f"config.json: rope_theta is {few(found)}; a number above 1 is needed."
        )
    if len(found) == 2 and found[0] != found[1]:
        raise ConfigError(
            "rope_theta",
            f"config.json: rope_parameters.rope_theta is {found[0]}, rope_theta is {found[1]}; "
            "which one is used depends on the library's version. Keep one value.",
        )
    return float(found[0])


def rope_type(config: Mapping[str, Any]) -> str:
    """Return the scaling of the rotary embedding: "default" when the config declares none."""
    for key in ("rope_parameters", "rope_scaling"):
        block = config.get(key)
        if isinstance(block, dict):
            kind = block.get("rope_type", block.get("type"))
            if kind is not None and kind != "default":
                return shown(kind)
            if kind is None and any(isinstance(value, dict) for value in block.values()):
                return "per layer type"
    return "default"


def rope_dim(config: Mapping[str, Any]) -> int:
    """Return how many of a head's elements are rotated: `head_dim`.

    Raises `ConfigError` when it is missing or only a part of the head is rotated.
    """
    partial = _rope_parameters(config).get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial not in (None, 1):
        raise ConfigError(
            "partial_rotary_factor", f"config.json: partial_rotary_factor {shown(partial)} is not known."
        )
    return size_of(config, "head_dim")


def config_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the dtype that `config` declares, without "torch.", or None when it declares none.

    Read from `dtype` (Transformers 5) or `torch_dtype` (before). Raises `ConfigError` when both are
    there and differ.
    """
    found = {}
    for key in ("dtype", "torch_dtype"):
        if isinstance(value := config.get(key), str) and value != "auto":
            found[key] = value.removeprefix("torch.")
    if len(set(found.values())) > 1:
        raise ConfigError(
            "dtype",
            f"config.json: dtype is {found['dtype']}, torch_dtype is {found['torch_dtype']}; keep one.",
        )
    return next(iter(found.values()), None)


def tie_conflicts(config: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return a finding for every nested config that disagrees on `tie_word_embeddings`.

    Loaders differ in which of them they believe, so the head is tied in one and lost in another.
    """
    outer = config.get("tie_word_embeddings")
    inner = {path: value for path, value in _nested_ties(config, "") if value != outer}
    if not inner or outer is None:
        return ()
    path, value = next(iter(inner.items()))
    message = (
        f"config.json: tie_word_embeddings is {shown(outer)}, but {shown(path)}.tie_word_embeddings is {shown(value)}. "
        "Loaders differ in which they believe; write the same in both."
    )
    return (Finding("keys.tie-conflict", message, {"outer": outer, "nested": inner}),)


def _nested_ties(block: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in block.items():
        if isinstance(value, dict):
            here = f"{path}.{key}" if path else key
            if "tie_word_embeddings" in value:
                yield here, value["tie_word_embeddings"]
            yield from _nested_ties(value, here)


def size_of(config: Mapping[str, Any], key: str) -> int:
    """Return a size from `config`. Raises `ConfigError` unless it is a whole number above 0."""
    value = config.get(key)
    if type(value) is int and 0 < value <= _LARGEST.get(key, 1 << 32):
        return value
    found = "has no" if key not in config else f"has {shown(value)} as"
    raise ConfigError(key, f"config.json {found} {key}; a whole number above 0 is needed.")


def flag_of(config: Mapping[str, Any], key: str) -> bool:
    """Return a flag from `config`. Raises `ConfigError` unless it is true or false."""
    value = config.get(key)
    if isinstance(value, bool):
        return value
    found = "has no" if key not in config else f"has {shown(value)} as"
    raise ConfigError(key, f"config.json {found} {key}; true or false is needed.")


def _rope_parameters(config: Mapping[str, Any]) -> Mapping[str, Any]:
    block = config.get("rope_parameters")
    return block if isinstance(block, dict) else {}
