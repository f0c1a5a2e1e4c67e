"""The override record of a run: what torchtitan says it replaced, and what the built model holds.

    {"requested": ["module.function"], "form": "module.function" | "module" | null, "factory_calls": n,
     "log_lines": [{"override", "fqn", "from", "to"}], "built": [{"fqn", "type"}], "targets": [fqn]}

`targets` are the modules that should be replaced, by name in the built model. torchtitan logs full
config paths (`model_spec.model.layers.0.attention.rope` in 0.3.0): `log_lines` keeps them as logged.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any

from harness.stackside.nki.registry import factory_calls
from harness.stackside.nki.sites import module_fqn

__all__ = ["OverrideLog", "override_record", "parse_log_line", "watch"]

# torchtitan/config/override.py: "[Override] name: fqn From.Config -> To.Config[ with k=v]".
_LINE = re.compile(r"^\[Override\] (?P<override>\S+): (?P<fqn>\S+) (?P<from>\S+) -> (?P<to>\S+)")


def parse_log_line(line: str) -> dict[str, str] | None:
    """Return `{"override", "fqn", "from", "to"}` for a line about a replacement, else None."""
    match = _LINE.match(line)
    return None if match is None else match.groupdict()


class OverrideLog(logging.Handler):
    """Keeps torchtitan's lines about replacements, and passes nothing on."""

    def __init__(self) -> None:
        super().__init__(level=logging.INFO)
        self.lines: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it is about a replacement."""
        parsed = parse_log_line(record.getMessage())
        if parsed is not None:
            self.lines.append(parsed)


def watch() -> OverrideLog:
    """Start collecting torchtitan's override lines (it logs through the root logger) and return the collector.

    Call it in the config function: torchtitan clears the handlers before and applies overrides after.
    """
    log = OverrideLog()
    logging.getLogger().addHandler(log)
    return log


def override_record(
    model: Any,
    *,
    requested: Sequence[str],
    form: str | None,
    log: OverrideLog | None,
    replaced_types: Iterable[str],
    targets: Sequence[str],
) -> dict[str, Any]:
    """Return the record for the built `model` (a torch module).

    `built` lists its modules whose class name is in `replaced_types`; `targets` are the names of the
    modules that the overrides are meant for.
    """
    wanted = set(replaced_types)
    return {
        "requested": list(requested),
        "form": form,
        "factory_calls": sum(factory_calls().values()),
        "log_lines": [] if log is None else list(log.lines),
        "built": [
            {"fqn": module_fqn(name), "type": type(module).__name__}
            for name, module in model.named_modules()
            if type(module).__name__ in wanted
        ],
        "targets": list(targets),
    }
