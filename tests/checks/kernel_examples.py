"""Kernel records written by hand, right in every number, and the means to break them.

Instructions and bytes were counted from the kernel's source for the two shapes used here: q [1, 4, S, 32]
and k [1, 2, S, 32] with S = 256 * LNC.
"""

from collections.abc import Callable
from typing import Any

from harness.checks.finding import CheckResult

__all__ = [
    "KERNEL",
    "SALT",
    "SITES",
    "SOURCE",
    "Break",
    "Record",
    "backend",
    "both",
    "change",
    "codes",
    "launch",
    "lines",
    "message",
    "on_trainium",
    "probe",
    "receipt",
    "training",
    "update",
]

SALT = 1234
SOURCE = "/run/recipes/moe-nki/rope_kernel.py:18"
SITES = ["layers.0.attention.rope", "layers.1.attention.rope"]

Record = dict[str, Any]


def args(lnc: int, dtype: str, backward: bool, *, salted: bool = False) -> list[Record]:
    seq = 256 * lnc
    shapes = {"q": [1, 4, seq, 32], "k": [1, 2, seq, 32], "cos": [seq, 32], "sin": [seq, 32]}
    dtypes = {"q": dtype, "k": dtype, "cos": "float32", "sin": "float32"}
    salt = (
        {"name": "salt", "shape": [1, 1], "dtype": "float32"} if salted else {"name": "salt", "value": None}
    )
    arrays = [{"name": name, "shape": shapes[name], "dtype": dtypes[name]} for name in shapes]
    return [*arrays, {"name": "backward", "value": backward}, salt]


def launch(lnc: int, dtype: str = "float32", backward: bool = False) -> Record:
    return {
        "kernel": "rope_kernel",
        "source": SOURCE,
        "backend": "interpreter",
        "grid": lnc,
        "args": args(lnc, dtype, backward),
        "ops": {"dma_copy": 28 * lnc, "tensor_tensor": 60 * lnc},
        "hbm_bytes_written": {"float32": 196608, "bfloat16": 98304}[dtype] * lnc,
        "sentinels": 0,
        "error": None,
    }


def comparison(**changes: Any) -> Record:
    return {
        "max_abs_diff": 0.0,
        "max_abs_reference": 4.5,
        "relative": 0.0,
        "elements": 8192,
        "nonzero": 8192,
        "nonfinite": 0,
        "rows": 256,
        "rows_differ": 0,
        "first_rows_differ": [],
        "differing_rows_equal_row_0": False,
        "rounding_ratio": 0.63,
        **changes,
    }


def case(lnc: int, dtype: str) -> Record:
    seq = 256 * lnc
    return {
        "shape": {"batch": 1, "heads": 4, "kv_heads": 2, "seq": seq, "dim": 32},
        "dtype": dtype,
        "lnc": lnc,
        "device": "cpu",
        "tables": [seq, 32],
        "error": None,
        "forward": {"q": comparison(), "k": comparison()},
        "backward": {"q": comparison(), "k": comparison()},
        "counts": {"forward": 1, "backward": 1},
        "launches": [launch(lnc, dtype), launch(lnc, dtype, backward=True)],
    }


def receipt(lnc: int) -> Record:
    # 1 batch of 256 * LNC rows: 2 tiles per core.
    salted = launch(lnc) | {"args": args(lnc, "float32", False, salted=True)}
    salted["ops"] = {"dma_copy": 30 * lnc, "tensor_tensor": 62 * lnc, "memset": lnc}
    salted["hbm_bytes_written"] += 4 * lnc
    shape = {"batch": 1, "heads": 4, "kv_heads": 2, "seq": 256 * lnc, "dim": 32}
    values = [float(SALT + 2)] * lnc
    return {"lnc": lnc, "salt": SALT, "shape": shape, "values": values, "error": None, "launches": [salted]}


def length(lnc: int, seq: int, direction: str) -> Record:
    legal = seq % (128 * lnc) == 0
    text = f"seq len must be multiple of 128 * LNC={lnc}, got {seq}"
    raised = None if legal else {"type": "AssertionError", "message": text}
    return {
        "lnc": lnc,
        "seq": seq,
        "direction": direction,
        "raised": raised,
        "instructions": 46 if legal else 0,
    }


def gradients(lnc: int) -> Record:
    names = ("query.weight", "key.weight")
    parameters = [{"name": name, "comparison": comparison()} for name in names]
    return {"lnc": lnc, "error": None, "parameters": parameters, "tables_with_gradient": 0}


def backend(name: str = "interpreter", device: str | None = None) -> Record:
    return {
        "name": name,
        "version": "1",
        "source": "nki.py",
        "reason": "",
        "device": device,
        "limits": "unverified on hardware",
    }


KERNEL = {"op": "harness::nki_rope", "path": SOURCE.rpartition(":")[0], "sha256": "ab" * 32}


def probe() -> Record:
    both = (1, 2)
    return {
        "schema": 1,
        "mutant": None,
        "salt": SALT,
        "lnc": list(both),
        "provider": "torch.library.custom_op[cpu]",
        "backend": backend(),
        "kernel": dict(KERNEL),
        "versions": {"torch": "2.14.0"},
        "cases": [case(lnc, dtype) for lnc in both for dtype in ("float32", "bfloat16")],
        "receipts": [receipt(lnc) for lnc in both],
        "lengths": [
            length(lnc, seq, direction)
            for lnc in both
            for seq in (200, 250, 255, 256, 257, 512)
            for direction in ("forward", "backward")
        ],
        "gradients": [gradients(lnc) for lnc in both],
    }


def on_trainium() -> Record:
    """The same record as a Neuron device would leave it: no counts, the receipt as proof."""
    record = probe()
    record["backend"] = backend("aws-nki", "/dev/neuron0")
    record["provider"] = "torch_neuronx.nki_op"
    launches = [one for where in (*record["cases"], *record["receipts"]) for one in where["launches"]]
    for one in launches:
        one |= {"backend": "aws-nki", "ops": None, "hbm_bytes_written": None, "sentinels": None}
    for one in record["cases"]:
        one["device"] = "neuron"
    for one in record["lengths"]:
        one["instructions"] = None
    return record


def codes(result: CheckResult) -> set[str]:
    return {finding.code for finding in result.findings}


def message(result: CheckResult, code: str) -> str:
    return next(finding.message for finding in result.findings if finding.code == code)


Break = Callable[[Record], Any]


def change(*path: Any, to: Any) -> Break:
    """Return what sets the value at `path` to `to`."""

    def apply(record: Record) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = to

    return apply


def update(*path: Any, **changes: Any) -> Break:
    """Return what updates the dictionary at `path`."""

    def apply(record: Record) -> None:
        for key in path:
            record = record[key]
        record |= changes

    return apply


def both(*breaks: Break) -> Break:
    """Return what applies every one of `breaks`."""

    def apply(record: Record) -> None:
        for one in breaks:
            one(record)

    return apply


def lines(result: CheckResult, code: str) -> str:
    """Every message of findings with `code`."""
    return "\n".join(
        line
        for finding in result.findings
        if finding.code == code
        for line in finding.data.get("all", [finding.message])
    )


def training(rank: int = 0, steps: int = 3) -> Record:
    calls = dict.fromkeys(SITES, 1)
    signatures = [
        {key: launch(1, "float32", backward)[key] for key in ("args", "grid", "ops", "hbm_bytes_written")}
        | {"count": 2 * steps}
        for backward in (False, True)
    ]
    return {
        "schema": 1,
        "rank": rank,
        "provider": "torch.library.custom_op[cpu]",
        "lnc": 1,
        "backend": backend(),
        "kernel": dict(KERNEL),
        "layouts": {"[batch, seq, heads, dim]": 2 * steps},
        "steps": [
            {"step": step, "forward": dict(calls), "backward": dict(calls)} for step in range(1, steps + 1)
        ],
        "outside": {"forward": {}, "backward": {}},
        "launches": {
            "count": 4 * steps,
            "sources": [SOURCE],
            "sentinels": 0,
            "errors": [],
            "signatures": signatures,
        },
        "receipt": None,
    }
