"""Which `nki` a process gets. Each case is a process of its own: the first resolution decides."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

SCRIPT = """
import json, sys
from pathlib import Path
from harness.stackside.nki import resolver
backend = resolver.resolve(Path(sys.argv[1]))
assert resolver.resolve() is backend
import nki, nki.isa as nisa, nki.language as nl
from nki.isa import dma_copy
bound = {"nki": nki.__file__, "isa": nisa.__file__, "language": nl.__file__}
import os
print(json.dumps({**backend.to_json(), "bound": bound, "target": os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE")}))
"""

WHEEL = {
    "__init__.py": "__version__ = '0.7.0'\ndef jit(f): return f\ndef simulate(k): return k\n",
    "isa.py": "def dma_copy(): ...\n",
    "language.py": "",
}


def run(tmp_path: Path, files: dict[str, str], *, device: bool = False, **environment: str) -> dict[str, Any]:
    package, devices = tmp_path / "site" / "nki", tmp_path / "dev"
    package.mkdir(parents=True)
    devices.mkdir()
    for name, text in files.items():
        (package / name).write_text(text)
    if not files:
        package.rmdir()
    if device:
        (devices / "neuron0").touch()
        (devices / "neuron_class").touch()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NKI_", "NEURON_"))}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(devices)],
        env={**clean, "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_without_any_nki_the_interpreter_is_bound(tmp_path: Path) -> None:
    found = run(tmp_path, {})
    assert found["name"] == "interpreter"
    assert found["device"] is None
    assert "No module named 'nki'" in found["reason"]
    assert "unverified on hardware" in found["limits"]
    assert all("/nki/interpreter/" in path for path in found["bound"].values())
    assert found["source"] == found["bound"]["nki"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"__init__.py": "raise ImportError('WRONG PACKAGE: install from the Neuron index')"},
            "WRONG PACKAGE",
        ),
        ({"__init__.py": "raise RuntimeError('placeholder')"}, "RuntimeError: placeholder"),
        ({"__init__.py": "__version__ = '0.0.1'"}, "no jit and no simulate"),
        ({"__init__.py": "def jit(f): return f"}, "no simulate"),
        ({"__init__.py": WHEEL["__init__.py"]}, "No module named 'nki.isa'"),
    ],
    ids=["placeholder", "raises-otherwise", "empty", "older", "incomplete"],
)
def test_a_package_that_is_only_called_nki_is_not_used(
    tmp_path: Path, files: dict[str, str], reason: str
) -> None:
    found = run(tmp_path, files, device=True)
    assert found["name"] == "interpreter"
    assert reason in found["reason"]
    assert all("/nki/interpreter/" in path for path in found["bound"].values())


def test_the_wheel_without_a_device_is_the_simulator(tmp_path: Path) -> None:
    found = run(tmp_path, WHEEL)
    assert (found["name"], found["version"], found["device"]) == ("aws-nki-simulator", "0.7.0", None)
    assert found["source"] == str(tmp_path / "site" / "nki" / "__init__.py") == found["bound"]["nki"]
    assert found["target"] == "trn2"
    assert "unverified on hardware" in found["limits"]


def test_the_wheel_with_a_device_runs_on_it(tmp_path: Path) -> None:
    found = run(tmp_path, WHEEL, device=True)
    assert (found["name"], found["device"]) == ("aws-nki", str(tmp_path / "dev" / "neuron0"))
    assert found["target"] is None
    assert "unverified on hardware" in found["limits"]


def test_a_device_can_be_left_aside_for_the_simulator(tmp_path: Path) -> None:
    found = run(tmp_path, WHEEL, device=True, NKI_SIMULATOR="1", NEURON_PLATFORM_TARGET_OVERRIDE="trn3")
    assert (found["name"], found["device"]) == ("aws-nki-simulator", None)
    assert "NKI_SIMULATOR=1" in found["reason"]
    assert found["target"] == "trn3"
