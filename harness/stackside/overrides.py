"""Which modules a run's overrides replaced, counted three ways: log records, factory calls, built modules."""

import logging
import re
import sys
from typing import Any

import torch
from torch import nn
from torchtitan.tools.logging import logger

from harness.stackside.request import current, write_observed

__all__ = ["expect", "record_built"]

_LINE = re.compile(r"\[Override\] (?P<override>\S+): (?P<fqn>\S+) (?P<from>\S+) -> (?P<to>\S+)")
_record: dict[str, Any] = {
    "requested": [],
    "form": "",
    "factory_calls": 0,
    "log_lines": [],
    "built": [],
    "targets": [],
}


class _Listener(logging.Handler):
    """Keeps torchtitan's own override records as they are logged; no log file is ever scraped."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it tells of a replacement."""
        if match := _LINE.match(record.getMessage()):
            _record["log_lines"].append(match.groupdict())


def expect(config: Any, target: type) -> None:
    """Note which modules of the finished config the asked overrides should replace."""
    _record["requested"] = [
        entry if isinstance(entry, str) else entry[0] for entry in config.override.imports
    ]
    _record["targets"] = [
        fqn for fqn, node, *_ in config.model_spec.model.traverse(target) if type(node) is target
    ]
    logger.addHandler(_Listener())


def record_built(model_parts: list[nn.Module]) -> None:
    """Write which modules of the built model come from the requested overrides' modules, by name."""
    modules = {name.rpartition(".")[0] for name in current().overrides}
    for part in model_parts:
        for fqn, module in part.named_modules():
            if type(module).__module__ in modules:
                plain = fqn.replace("_checkpoint_wrapped_module.", "")
                _record["built"].append({"fqn": plain, "type": type(module).__qualname__})
                if hasattr(module, "kernel_site"):
                    module.kernel_site = plain
    for name in modules:
        source = sys.modules.get(name)
        _record["factory_calls"] += len(getattr(source, "factory_calls", ()))
        _record["form"] = getattr(source, "OVERRIDE_FORM", "")
    if torch.distributed.get_rank() == 0:
        write_observed("overrides.json", _record)
