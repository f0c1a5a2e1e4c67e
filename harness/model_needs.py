"""Which tensors a Qwen3 model needs, from its config.json alone.

The names and shapes are those of Hugging Face checkpoints (`Qwen3ForCausalLM`,
`Qwen3MoeForCausalLM`); tests hold them against Transformers' own models. Standard library only, so
that a stack's Python can import it too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from harness.checks.finding import Finding
from harness.checks.wording import shown
from harness.model_config import (
    ConfigError,
    config_dtype,
    flag_of,
    rope_dim,
    rope_theta,
    rope_type,
    size_of,
    tie_conflicts,
)

__all__ = [
    "FUSED",
    "MODEL_TYPES",
    "PER_EXPERT",
    "ConfigError",
    "ModelNeeds",
    "config_dtype",
    "model_needs",
    "rope_dim",
    "rope_theta",
    "rope_type",
    "tie_conflicts",
]

MODEL_TYPES = ("qwen3", "qwen3_moe")

PER_EXPERT = "per expert"
"""Experts stored one by one, as published checkpoints and torchtitan's export do."""
FUSED = "fused"
"""All experts of a layer in two tensors, as Transformers 5 holds them in memory."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ModelNeeds:
    """The tensors a model needs, by name, in the order of the model's layers.

    `shapes` are those that must be stored: without the head when it is tied to the embedding, with
    it otherwise. Experts are in the `PER_EXPERT` form; `fused` has the same model in the `FUSED` form
    (None for a dense model). `head_shape` is the head's shape in either case. `problems` are
    contradictions within the config.
    """

    model_type: str
    shapes: Shapes
    fused: Shapes | None
    tied: bool
    head_shape: tuple[int, ...]
    head: str = "lm_head.weight"
    embedding: str = "model.embed_tokens.weight"
    problems: tuple[Finding, ...] = ()

    @property
    def forms(self) -> Mapping[str, Shapes]:
        """The accepted sets of names: one for a dense model, two for a mixture of experts."""
        forms = {PER_EXPERT: self.shapes}
        return forms if self.fused is None else {**forms, FUSED: self.fused}

    def closest(self, names: Iterable[str]) -> str:
        """Return the form of which the larger part is among `names`."""
        if self.fused is None:
            return PER_EXPERT
        found = set(names)
        single, fused = self.shapes.keys() - self.fused.keys(), self.fused.keys() - self.shapes.keys()
        more_fused = len(found & fused) * len(single) > len(found & single) * len(fused)
        return FUSED if more_fused else PER_EXPERT

    def accepts(self, shapes: Shapes) -> str | None:
        """Return the form in which `shapes` is exactly this model, or None.

        A tied model is accepted with and without its head.
        """
        with_head = {self.head: self.head_shape} if self.tied and self.head in shapes else {}
        return next((form for form, needed in self.forms.items() if {**needed, **with_head} == shapes), None)


def model_needs(config: Mapping[str, Any]) -> ModelNeeds:
    """Return what the model of `config` (a parsed config.json) needs.

    Raises `ConfigError`, naming the key, for another model type and for a missing or unusable field.
    No field has a default: what config.json does not say, libraries fill in differently.
    """
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ConfigError(
            "model_type",
            f"config.json: model_type is {shown(model_type)}; known are {', '.join(MODEL_TYPES)}.",
        )
    tied = flag_of(config, "tie_word_embeddings")
    hidden, vocabulary = size_of(config, "hidden_size"), size_of(config, "vocab_size")
    head_shape = (vocabulary, hidden)
    attention = _attention(config, hidden)
    layers = [_feed_forward(config, layer, hidden) for layer in range(size_of(config, "num_hidden_layers"))]
    forms = []
    for form in range(2 if model_type == "qwen3_moe" else 1):
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": head_shape}
        for layer, feed_forward in enumerate(layers):
            prefix = f"model.layers.{layer}."
            for part in (attention, feed_forward[form]):
                for name, shape in part.items():
                    shapes[prefix + name] = shape
        shapes["model.norm.weight"] = (hidden,)
        if not tied:
            shapes["lm_head.weight"] = head_shape
        forms.append(MappingProxyType(shapes))
    return ModelNeeds(
        model_type,
        forms[0],
        forms[1] if len(forms) > 1 else None,
        tied,
        head_shape,
        problems=tie_conflicts(config),
    )


def _attention(config: Mapping[str, Any], hidden: int) -> Shapes:
    head = size_of(config, "head_dim")
    queries, keys = (size_of(config, key) * head for key in ("num_attention_heads", "num_key_value_heads"))
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_norm.weight": (head,),
        "self_attn.k_norm.weight": (head,),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    if flag_of(config, "attention_bias"):
        for name, length in (("q", queries), ("k", keys), ("v", keys), ("o", hidden)):
            shapes[f"self_attn.{name}_proj.bias"] = (length,)
    return shapes


def _feed_forward(config: Mapping[str, Any], layer: int, hidden: int) -> tuple[Shapes, Shapes]:
    """Return a layer's feed-forward tensors in the two forms, which are the same for a dense layer."""
    if config["model_type"] == "qwen3_moe" and _is_sparse(config, layer):
        inner, experts = size_of(config, "moe_intermediate_size"), _experts(config)
        router = {"mlp.gate.weight": (experts, hidden)}
        single = {
            f"mlp.experts.{expert}.{name}": shape
            for expert in range(experts)
            for name, shape in _gated("", inner, hidden).items()
        }
        fused = {
            "mlp.experts.gate_up_proj": (experts, 2 * inner, hidden),
            "mlp.experts.down_proj": (experts, hidden, inner),
        }
        return router | single, router | fused
    dense = _gated("mlp.", size_of(config, "intermediate_size"), hidden)
    return dense, dense


def _gated(prefix: str, inner: int, hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}gate_proj.weight": (inner, hidden),
        f"{prefix}up_proj.weight": (inner, hidden),
        f"{prefix}down_proj.weight": (hidden, inner),
    }


def _is_sparse(config: Mapping[str, Any], layer: int) -> bool:
    dense = config.get("mlp_only_layers")
    if dense is not None and not isinstance(dense, list):
        raise ConfigError(
            "mlp_only_layers", f"config.json: mlp_only_layers is {shown(dense)}, not a list of layers."
        )
    return layer not in (dense or ()) and (layer + 1) % size_of(config, "decoder_sparse_step") == 0


def _experts(config: Mapping[str, Any]) -> int:
    """Return the number of experts, which Transformers 5 writes as `num_local_experts`."""
    given = [key for key in ("num_experts", "num_local_experts") if config.get(key) is not None]
    values = {size_of(config, key) for key in given or ["num_experts"]}
    if len(values) > 1:
        raise ConfigError("num_experts", "config.json: num_experts and num_local_experts differ; keep one.")
    return values.pop()
