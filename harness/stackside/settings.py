"""What every recipe's config function ends with: the settings all runs share, and the device layer."""

from typing import Any

from torchtitan.config import derive

from harness.stackside import faults, observe, overrides
from harness.stackside.metrics import RecordingMetrics
from harness.stackside.observe import ObservedCheckpoint
from harness.stackside.request import Request, current

__all__ = ["finish", "repaired"]

_NEVER = 1_000_000
"""A checkpoint interval, in steps, that no run reaches: only the last step saves."""


def finish(config: Any, *, override_target: type | None = None) -> Any:
    """Return a torchtitan config made a run of the harness: assets, steps, seed, checkpoint, metrics, device.

    Call it last, after `model_spec` is final. `override_target` is the config class that the run's
    overrides replace, where it has any.
    """
    run = current()
    config.hf_assets_path = run.model
    config.dump_folder = str(run.dump)
    config.dataloader.dataset = "c4_test"
    config.dataloader.dataset_path = run.corpus
    config.training.steps = run.steps
    config.training.seq_len = run.seq_len
    config.training.local_batch_size = run.local_batch_size
    config.training.mixed_precision_param = run.compute_dtype
    config.debug.seed = run.seed
    config.debug.deterministic = True
    config.debug.print_config = False
    config.compile.enable = False
    config.profiler.enable_profiling = False
    config.metrics = derive(config.metrics, RecordingMetrics.Config, log_freq=1, disable_color_printing=True)
    config.checkpoint = _checkpoint(run)
    config.override.imports = list(run.overrides)
    if run.device_layer == "cpu":
        from harness.stackside import cpu_device

        config = cpu_device.install(config)
    faults.apply("config", config)
    if override_target is not None:
        overrides.expect(config, override_target)
    return config


def repaired(what: str) -> None:
    """Note that a recipe repaired a known upstream fault in this run; the evidence says so."""
    observe.repairs.append(what)


def _checkpoint(run: Request) -> Any:
    published = run.initial == "published"
    loads = run.initial in ("published", "seed-checkpoint")
    return ObservedCheckpoint.Config(
        enable=loads or run.export or run.initial == "make-seed",
        interval=_NEVER,
        initial_load_path=run.initial_load_path if loads else None,
        initial_load_in_hf=published,
        initial_load_model_only=True,
        last_save_model_only=True,
        last_save_in_hf=run.export,
        load_only=not (run.export or run.initial == "make-seed"),
        create_seed_checkpoint=run.initial == "make-seed",
    )
