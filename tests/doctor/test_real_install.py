"""Wheels made here and installed by uv for real: what an installer leaves behind is what the doctor reads."""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import process
from harness.doctor import inspect, read_host
from harness.doctor.report import Line
from harness.observed import observe
from harness.placeholders import PLACEHOLDER_VERSIONS
from tests.doctor.layouts import load_layout, locked_stack
from tests.doctor.test_placeholders import PUBLISHED

UV = str(Path(sys.prefix) / "bin" / "uv")


def wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    files: Sequence[str] = (),
    text: str = "",
    requires: Sequence[str] = (),
) -> Path:
    """Write a wheel and return its path."""
    folder.mkdir(exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    wanted = "".join(f"Requires-Dist: {line}\n" for line in requires)
    contents = dict.fromkeys(files, "raise ImportError('wrong package')\n") | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}\n{text}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    names = [*contents, f"{info}/RECORD"]
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in names)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in contents.items():
            archive.writestr(member, content)
    return path


def uv(*arguments: str) -> None:
    done = process.run([UV, *arguments, "--offline", "--no-config"])
    assert done.returncode == 0, done.output


def install(folder: Path, wheels: Sequence[Path]) -> Path:
    """Make an environment and install wheels into it as a lock is installed; return its folder."""
    environment = folder / "environment"
    uv("venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / "bin" / "python")
    uv("pip", "install", "--quiet", "--no-deps", "--no-index", "--python", python, *map(str, wheels))
    return environment


def errors(environment: Path, root: Path) -> list[Line]:
    stack = locked_stack(root, load_layout("healthy-trn2")["packages"])
    report = inspect(read_host(root, environment=environment, variables={}), stack)
    return [line for line in report.lines if line.level == "error"]


def test_every_placeholder_that_is_installed_is_caught(tmp_path: Path) -> None:
    wheels = [
        wheel(tmp_path / "wheels", name, PLACEHOLDER_VERSIONS[name], files=files, text=text)
        for name, (files, text) in PUBLISHED.items()
    ]
    environment = install(tmp_path, wheels)
    found = [line.found for line in errors(environment, tmp_path) if line.code == "placeholder.installed"]
    assert sorted(text.split()[0] for text in found) == sorted(PUBLISHED)
    seen = observe(environment, variables={}, root=tmp_path)
    assert {item["name"] for item in seen["distributions"]} == PUBLISHED.keys()
    assert all(len(item["record_sha256"]) == 64 for item in seen["distributions"])
    assert seen["neuron"]["components"] == {}
    assert seen["neuron"]["nkilib"] is None


@pytest.mark.parametrize(
    ("wheels", "code", "words"),
    [
        ([("mytrainer", "1.0", ["tinytok>=2"])], "requirements.missing", "mytrainer 1.0 requires tinytok>=2"),
        (
            [("neuronx-cc", "2.13.66", ["protobuf<3.20"]), ("protobuf", "3.20.3", [])],
            "requirements.conflict",
            "neuronx-cc 2.13.66 requires protobuf<3.20: installed is 3.20.3",
        ),
        (
            [("a", "1", ["n<2"]), ("b", "1", ["n>=2"]), ("n", "1.5", [])],
            "requirements.impossible",
            "a 1 wants <2, b 1 wants >=2",
        ),
    ],
)
def test_what_no_deps_lets_through_is_caught(
    wheels: list[tuple[str, str, list[str]]], code: str, words: str, tmp_path: Path
) -> None:
    built = [
        wheel(
            tmp_path / "wheels",
            name,
            version,
            files=[f"{name.replace('-', '')}/__init__.py"],
            requires=requires,
        )
        for name, version, requires in wheels
    ]
    found = {line.code: line.found for line in errors(install(tmp_path, built), tmp_path)}
    assert words in found[code]


def test_the_label_is_read_as_it_was_installed(tmp_path: Path) -> None:
    built = wheel(tmp_path / "wheels", "torch", "2.14.0+cu130", files=["torch/__init__.py"])
    found = {line.code: line for line in errors(install(tmp_path, [built]), tmp_path)}
    assert "torch 2.14.0+cu130" in found["packages.other-build"].found
    assert "torch 2.14.0+cpu" in found["packages.other-build"].expected
