"""hf-backend: Transformers builds the model, torchtitan trains it."""

from typing import Any

from torchtitan.experiments.transformers_modeling_backend.config_registry import (
    transformers_modeling_backend_full,
)
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from harness.stackside import faults
from harness.stackside.request import current
from harness.stackside.settings import finish, repaired


def full() -> Any:
    """The backend's own full-size configuration on this run's model; published or random by the run."""
    _repair_rotary_buffers()
    config = transformers_modeling_backend_full()
    # A local folder: the backend asks the Hub with trust_remote_code otherwise.
    config.hf_model = current().model
    return finish(config)


def _repair_rotary_buffers() -> None:
    # torchtitan 0.3.0 recomputes `inv_freq` after the meta device only where the module has a
    # `rope_init_fn`; Transformers 5 no longer sets one, and the table stays uninitialised memory
    # (torchtitan issue 4783). Without this the `buffers` check fails.
    if hasattr(Qwen3RotaryEmbedding, "rope_init_fn") or faults.asked("rotary-repair-off"):
        return
    Qwen3RotaryEmbedding.rope_init_fn = staticmethod(Qwen3RotaryEmbedding.compute_default_rope_parameters)
    repaired("Qwen3RotaryEmbedding.rope_init_fn = compute_default_rope_parameters (torchtitan issue 4783)")
