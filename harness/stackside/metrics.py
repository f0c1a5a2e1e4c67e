"""Metrics as data: a torchtitan MetricsProcessor that also writes one JSON line per step.

It only looks: torchtitan's own logging goes on beside it. Being built with the resolved configuration,
it is also the place where that is written down and asserted before training starts.
"""

import json
import time
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.tools import utils

from harness.stackside import faults, observe
from harness.stackside.configuration import ConfigurationError, differences
from harness.stackside.request import current, write_observed

__all__ = ["RecordingMetrics"]

_A100_PEAK = 312e12
"""torchtitan's fallback peak, in floating-point operations per second, for a device it does not know."""


class RecordingMetrics(MetricsProcessor):
    """torchtitan's metrics processor, with `observed/metrics.jsonl` written by the first rank."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        """The same fields."""

    def __init__(self, config: Config, *, config_dict: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Write the resolved configuration and raise `ConfigurationError` if it is not what was asked."""
        super().__init__(config, config_dict=config_dict, **kwargs)
        resolved = json.loads(json.dumps(config_dict or {}, default=repr))
        self._first = torch.distributed.get_rank() == 0
        if self._first:
            write_observed("resolved-config.json", resolved)
        wrong = differences(resolved, current().configuration)
        if wrong:
            raise ConfigurationError("; ".join(map(str, wrong)))
        self._started = time.perf_counter()
        self._file = (
            (current().observed / "metrics.jsonl").open("x", encoding="utf-8") if self._first else None
        )

    def should_log(self, step: int) -> bool:
        """Mark the start of a step (torchtitan asks at that moment) and answer as torchtitan does."""
        faults.apply("step", (step, self.model_parts))
        observe.begin_step(step)
        self._started = time.perf_counter()
        return bool(super().should_log(step))

    def log(
        self,
        step: int,
        global_avg_loss: float,
        global_max_loss: float,
        grad_norm: float,
        extra_metrics: dict[str, Any] | None = None,
    ) -> None:
        """Write the step's row, then let torchtitan log it its own way."""
        observe.end_step(step)
        if self._file is not None:
            seconds = time.perf_counter() - self._started
            row = {
                "step": step,
                "loss": float(global_avg_loss),
                "max_loss": float(global_max_loss),
                "grad_norm": float(grad_norm),
                "learning_rate": _learning_rate(extra_metrics or {}),
                "tokens_seen": (extra_metrics or {}).get("n_tokens_seen"),
                "step_seconds": seconds,
                "data_loading_seconds": sum(self.data_loading_times),
                "tokens_per_second_per_rank": self.ntokens_since_last_log / seconds,
                **self._memory(),
                **self._utilisation(seconds),
            }
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        super().log(step, global_avg_loss, global_max_loss, grad_norm, extra_metrics)

    def _memory(self) -> dict[str, Any]:
        peak = self.device_memory_monitor.get_peak_stats().max_reserved_gib
        kind = "process-peak-resident" if utils.device_type == "cpu" else "device-peak-reserved"
        return {"memory_bytes": round(peak * 2**30), "memory_kind": kind}

    def _utilisation(self, seconds: float) -> dict[str, Any]:
        # A share of some other device's peak is no measurement.
        if utils.device_type == "cpu" or self.has_quantization or self.gpu_peak_flops == _A100_PEAK:
            return {"mfu_percent": None, "mfu_peak_flops": None}
        rate = self.num_flops_per_token * self.ntokens_since_last_log / seconds
        return {"mfu_percent": 100 * rate / self.gpu_peak_flops, "mfu_peak_flops": self.gpu_peak_flops}

    def close(self) -> None:
        """Close the file, then torchtitan's loggers."""
        if self._file is not None:
            self._file.close()
        observe.finish()
        super().close()


def _learning_rate(extra: dict[str, Any]) -> float | None:
    """Return the learning rate of the step if all groups share one; the groups' own rows stay in the logs."""
    rates = {float(value) for name, value in extra.items() if name.startswith("lr")}
    return rates.pop() if len(rates) == 1 else None
