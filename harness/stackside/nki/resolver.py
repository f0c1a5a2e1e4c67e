"""Which `nki` the kernels get: AWS's wheel where it works, else the interpreter, never a substitute.

There is no PyTorch branch: what neither can run raises. Whether AWS's wheel is there is found out
by importing it: the package index that everybody reaches holds a placeholder of the same name
(`nki` 0.0.1) that is found, installs, and raises on import.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

__all__ = ["Backend", "BackendName", "resolve"]

BackendName = Literal["aws-nki", "aws-nki-simulator", "interpreter"]

# AWS's simulator models trn3 unless told otherwise; the stack is trn2.
_TARGET = "NEURON_PLATFORM_TARGET_OVERRIDE"
_DEFAULT_TARGET = "trn2"


@dataclass(frozen=True, slots=True)
class Backend:
    """What executes kernels in this process.

    `source` is the file of the bound `nki` module, `reason` why this backend was chosen, `device`
    the Neuron device file when kernels run on hardware, else None. `limits` says what a result of
    this backend does not prove.
    """

    name: BackendName
    version: str
    source: str
    reason: str
    device: str | None
    limits: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON-able dictionary."""
        return asdict(self)


_LIMITS: Mapping[BackendName, str] = {
    "interpreter": (
        "proves logic, indexing, dtype flow and constraints; does not prove that the kernel compiles for "
        "Trainium, SBUF capacity, engine rounding or speed: unverified on hardware"
    ),
    "aws-nki-simulator": (
        "AWS's CPU simulator: does not prove that the kernel compiles for Trainium, engine rounding or speed: "
        "unverified on hardware"
    ),
    "aws-nki": "this path has not been run on hardware by this project: its handling is unverified on hardware",
}

_resolved: Backend | None = None


def resolve(devices: Path = Path("/dev")) -> Backend:
    """Bind `nki`, `nki.isa` and `nki.language` for this process and return what they are bound to.

    Idempotent: the first call decides. AWS's wheel is taken if it imports and has `jit` and
    `simulate`; on a machine with `devices`/neuron* and without NKI_SIMULATOR=1 it runs on hardware
    (`aws-nki`), else in AWS's simulator (`aws-nki-simulator`). Anything else gives the interpreter.
    """
    global _resolved
    if _resolved is None:
        device = _neuron_device(devices)
        simulated = device is None or os.environ.get("NKI_SIMULATOR") == "1"
        if simulated:
            os.environ.setdefault(_TARGET, _DEFAULT_TARGET)
        module, reason = _import_wheel()
        if module is None:
            _resolved = _bind_interpreter(reason)
        elif simulated:
            why = "NKI_SIMULATOR=1" if device else "no Neuron device"
            _resolved = _wheel("aws-nki-simulator", module, f"{why}; target {os.environ[_TARGET]}", None)
        else:
            _resolved = _wheel("aws-nki", module, f"Neuron device {device}", device)
    return _resolved


def _neuron_device(devices: Path) -> str | None:
    found = sorted(devices.glob("neuron[0-9]*"))
    return str(found[0]) if found else None


def _import_wheel() -> tuple[ModuleType | None, str]:
    """Return AWS's `nki`, fully imported, or None with the reason why it is not usable."""
    try:
        module = importlib.import_module("nki")
        missing = [name for name in ("jit", "simulate") if not callable(getattr(module, name, None))]
        if getattr(module, "HARNESS_INTERPRETER", False):
            reason = "nki is bound to the interpreter already"
        elif missing:
            reason = (
                f"the nki module at {getattr(module, '__file__', None)} has no {' and no '.join(missing)}"
            )
        else:
            importlib.import_module("nki.isa")
            importlib.import_module("nki.language")
            return module, ""
    except Exception as error:  # a placeholder may raise anything
        reason = f"import nki raised {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    for name in [name for name in sys.modules if name == "nki" or name.startswith("nki.")]:
        del sys.modules[name]
    return None, f"AWS's nki wheel is not usable: {reason}"


def _wheel(name: BackendName, module: ModuleType, reason: str, device: str | None) -> Backend:
    try:
        version = metadata.version("nki")
    except metadata.PackageNotFoundError:
        version = str(getattr(module, "__version__", "unknown"))
    return Backend(name, version, str(module.__file__), reason, device, _LIMITS[name])


def _bind_interpreter(reason: str) -> Backend:
    from harness.stackside.nki.interpreter import isa, language, nki

    sys.modules.update({"nki": nki, "nki.isa": isa, "nki.language": language})
    return Backend("interpreter", nki.__version__, str(nki.__file__), reason, None, _LIMITS["interpreter"])
