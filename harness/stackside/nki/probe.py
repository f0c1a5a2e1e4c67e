"""Probe of a recipe's RoPE kernel: run it at op level and write down everything needed to judge it.

    python -m harness.stackside.nki.probe REQUEST.json

The request is `{"recipe_dir": path, "salt": int, "lnc": [1, 2], "mutant": name or null, "output":
path or null}`; the record goes to `output`. The probe measures and never judges: a kernel that
raises, returns garbage or never runs gives a record that says so, and exit code 0.

The record, schema 1:

    {"schema": 1, "mutant": name | null, "salt": int, "lnc": [int], "provider": str,
     "backend": {"name", "version", "source", "reason", "device", "limits"},
     "kernel": {"op", "path", "sha256"}, "versions": {"python", "torch", "numpy", "ml_dtypes"},
     "cases": [{"shape": {"batch", "heads", "kv_heads", "seq", "dim"}, "dtype", "lnc", "device",
                "tables": [int], "error": {"phase", "type", "message"} | null,
                "forward": {"q": comparison, "k": comparison} | null, "backward": the same (null per
                tensor: no gradient) | null, "counts": {"forward", "backward"}, "launches": [launch]}],
     "receipts": [{"lnc", "salt", "shape", "values": [float], "error", "launches": [launch]}],
     "lengths": [{"lnc", "seq", "direction", "raised": {"type", "message"} | null, "instructions": int | null}],
     "gradients": [{"lnc", "error", "parameters": [{"name", "comparison" | null}], "tables_with_gradient"}]}

A comparison is what `compare.compare` returns (plus `rounding_ratio` in cases), a launch what
`ledger.Launch.to_json` returns.
"""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from harness.stackside.nki import kernel_source, probe_parts, registry
from harness.stackside.nki.resolver import resolve
from harness.stackside.records import run_request, write_record

__all__ = ["main", "run"]

SCHEMA = 1


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Return the record for `request` (see the module), and write it if the request has an `output`.

    Raises KeyError for a request without a needed key and `MutantError` for a mutant that does not
    fit; nothing the kernel does raises.
    """
    recipe_dir = Path(request["recipe_dir"])
    salt, cores = int(request["salt"]), [int(lnc) for lnc in request["lnc"]]
    mutant = request.get("mutant")
    op = kernel_source.load_recipe(recipe_dir, mutant)
    device = "neuron" if resolve().name == "aws-nki" else "cpu"
    announced = registry.registered()[-1]
    record = {
        "schema": SCHEMA,
        "mutant": mutant,
        "salt": salt,
        "lnc": cores,
        "provider": announced.provider,
        "backend": resolve().to_json(),
        "kernel": announced.to_json(),
        "versions": _versions(),
        "cases": [case for lnc in cores for case in probe_parts.numerics(op, lnc, device)],
        "receipts": [probe_parts.receipts(op, lnc, salt, device) for lnc in cores],
        "lengths": [length for lnc in cores for length in probe_parts.lengths(op, lnc, device)],
        "gradients": [probe_parts.gradients(op, lnc, device) for lnc in cores],
    }
    if request.get("output"):
        write_record(Path(request["output"]), record)
    return record


def main(arguments: list[str] | None = None) -> int:
    """Run the probe for the request file named on the command line; return 0, or 2 for a wrong call."""
    # The tensors are small: more threads would only wait for each other.
    torch.set_num_threads(1)
    return run_request("harness.stackside.nki.probe", run, arguments)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in ("torch", "numpy", "ml_dtypes"):
        found[package] = metadata.version(package)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
