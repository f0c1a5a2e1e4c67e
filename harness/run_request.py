"""What a run asks of the stack: the request files, made from stack, recipe and assets. Pure but for the salt."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import faults as catalogue
from harness.evidence import Evidence
from harness.recipe import Recipe, Run, fill
from harness.stack import Stack

__all__ = ["reference_request", "seed_request", "training_request"]


def training_request(
    stack: Stack,
    recipe: Recipe,
    name: str,
    assets: Mapping[str, Path],
    folder: Path,
    faults: Sequence[str],
) -> dict[str, Any]:
    """Return the request of training run `name`, whose evidence goes to `folder`.

    Its fields are those of `harness.stackside.request.Request`. `assets` are folders by role.
    """
    run, profile, sizes = recipe.runs[name], stack.profile, recipe.sizes_for(stack.profile)
    initial: str = run.initial
    if initial == "random" and profile.seed_checkpoint and "seed-checkpoint-off" not in faults:
        initial = "seed-checkpoint"
    model = str(assets[run.model])
    request: dict[str, Any] = {
        "recipe": recipe.name,
        "run": name,
        "stack": stack.name,
        "folder": str(folder),
        "recipe_folder": str(recipe.folder),
        "config": run.config,
        "ranks": stack.ranks,
        "steps": profile.steps,
        "seq_len": sizes.get("seq_len", profile.seq_len),
        "local_batch_size": profile.local_batch_size,
        "seed": profile.seed,
        "compute_dtype": profile.compute_dtype,
        "device_layer": stack.device_layer,
        "trainer": stack.trainer,
        "modules": stack.modules,
        "model": model,
        "corpus": str(assets["corpus"]),
        "initial": initial,
        "initial_load_path": model if initial == "published" else None,
        "export": run.export,
        "overrides": list(run.override.imports) if run.override else [],
        "sizes": sizes,
        "weights_probe": profile.weights_probe,
        "salt": secrets.randbelow(2**20) + 1,
        "faults": [name for name in faults if name in catalogue.STACKSIDE],
    }
    request["configuration"] = _configuration(request, run)
    return request


def seed_request(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the request that makes the checkpoint `request`'s run starts from: one rank, no step, no fault."""
    return {
        **request,
        "run": folder.name,
        "folder": str(folder),
        "ranks": 1,
        "initial": "make-seed",
        "initial_load_path": None,
        "overrides": [],
        "configuration": {},
        "faults": [],
    }


def reference_request(
    stack: Stack, run: Run, request: Mapping[str, Any], resolved: Mapping[str, Any], evidence: Evidence
) -> dict[str, Any]:
    """Return the request of the plain-Transformers reference for a run that resolved to `resolved`."""
    optimizer = resolved["optimizer"]["param_groups"][0]["optimizer_kwargs"]
    scheduler = resolved["lr_scheduler"]
    export = evidence.export()
    return {
        "model": request["model"],
        "corpus": request["corpus"],
        "mask": run.mask,
        "ranks": request["ranks"],
        "seq_len": request["seq_len"],
        "local_batch_size": request["local_batch_size"],
        "steps": request["steps"],
        "optimizer": {key: optimizer[key] for key in ("lr", "betas", "eps", "weight_decay")},
        "schedule": {
            key: scheduler[key] for key in ("warmup_steps", "decay_ratio", "decay_type", "min_lr_factor")
        },
        "max_norm": resolved["training"]["max_norm"],
        "train": stack.profile.reference == "training",
        "export": str(export) if export is not None else None,
        "output": str(evidence.observed / "reference.json"),
    }


def _configuration(request: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return what the resolved torchtitan configuration must hold, by dotted key."""
    published = request["initial"] == "published"
    values = {
        **request,
        "global_batch_size": request["ranks"] * request["local_batch_size"],
    }
    return {
        "training.steps": request["steps"],
        "training.seq_len": request["seq_len"],
        "training.local_batch_size": request["local_batch_size"],
        "training.mixed_precision_param": request["compute_dtype"],
        "training.dtype": "float32",
        "parallelism.data_parallel_replicate_degree": 1,
        "parallelism.data_parallel_shard_degree": -1,
        "parallelism.tensor_parallel_degree": 1,
        "parallelism.context_parallel_degree": 1,
        "parallelism.pipeline_parallel_degree": 1,
        "parallelism.expert_parallel_degree": 1,
        "compile.enable": False,
        "debug.seed": request["seed"],
        "debug.deterministic": True,
        "dataloader.dataset": "c4_test",
        "dataloader.dataset_path": request["corpus"],
        "hf_assets_path": request["model"],
        "checkpoint.initial_load_path": request["initial_load_path"],
        "checkpoint.initial_load_in_hf": published,
        "checkpoint.last_save_in_hf": request["export"],
        "override.imports": request["overrides"],
        **{key: fill(value, values) for key, value in run.configuration.items()},
    }
