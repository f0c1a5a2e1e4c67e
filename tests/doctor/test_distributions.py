"""Installed distributions, read from metadata."""

from pathlib import Path

import pytest

from harness.doctor.distributions import (
    importable_modules,
    parse_metadata,
    python_version,
    read_distributions,
    read_torch,
    site_folders,
)
from tests.doctor.layouts import add_distribution, make_environment


def test_a_distribution_is_read_whole(tmp_path: Path) -> None:
    package = {
        "version": "2.28.7631.0+abc",
        "requires": ["numpy>=2", "rich; extra == 'cli'", "tomli; python_version < '3.11'"],
        "modules": ["neuronxcc", "not-a-name"],
        "text": "The compiler.",
    }
    make_environment(tmp_path, "3.12.1", {"Neuronx_CC": package, "numpy": {"version": "2.0"}})
    compiler, numpy = read_distributions(tmp_path)
    assert (compiler.name, compiler.version) == ("neuronx-cc", "2.28.7631.0+abc")
    assert compiler.requires == ("numpy>=2", "tomli; python_version < '3.11'")
    assert compiler.modules == ("neuronxcc",)
    assert compiler.text == "The compiler."
    assert numpy.modules is None


def test_broken_metadata_is_passed_over(tmp_path: Path) -> None:
    site = make_environment(tmp_path, "3.12.1", {"numpy": {"version": "2.0"}})
    (site / "empty-1.dist-info").mkdir()
    broken = site / "broken-1.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Name: broken\n")
    assert [item.name for item in read_distributions(tmp_path)] == ["numpy"]


def test_a_neuron_package_without_a_record_is_not_called_empty(tmp_path: Path) -> None:
    site = make_environment(tmp_path, "3.12.1", {})
    (add_distribution(site, "nki", {"version": "0.7.0"}) / "RECORD").unlink()
    assert read_distributions(tmp_path)[0].modules is None


def test_no_environment_has_nothing(tmp_path: Path) -> None:
    assert read_distributions(tmp_path / "nowhere") == ()
    assert python_version(tmp_path) is None
    assert read_torch(tmp_path) is None


def test_the_header_ends_at_the_first_blank_line() -> None:
    item = parse_metadata("Name: a\nVersion: 1\n\nVersion: 2\nRequires-Dist: b\n")
    assert item is not None
    assert (item.version, item.requires) == ("1", ())


@pytest.mark.parametrize(
    ("record", "modules"),
    [
        (["torch/__init__.py,sha256=x,1", "torch/_C.so,,"], ("torch",)),
        (["single.py,,", "fast.cpython-312-x86_64-linux-gnu.so,,"], ("fast", "single")),
        (["neuronx-cc/__init__.py,,"], ()),
        (
            ["a-1.dist-info/RECORD,,", "../../bin/tool,,", "__pycache__/x.pyc,,", "a-1.data/scripts/x.py,,"],
            (),
        ),
        (["data/readme.txt,,", "stubs-stubs/__init__.pyi,,"], ()),
        (["__editable__.x-1.pth,,"], ("__editable__.x-1.pth",)),
        (['"odd, name/x.py",sha256=y,2', "libs/native.so,,"], ("libs",)),
        ([], ()),
    ],
)
def test_what_an_import_statement_can_name(record: list[str], modules: tuple[str, ...]) -> None:
    assert importable_modules(record) == modules


@pytest.mark.parametrize(
    "line", ["version_info = 3.14.1", "version = 3.14.1", "version_info = 3.14.1.final.0"]
)
def test_a_venv_states_its_python(tmp_path: Path, line: str) -> None:
    (tmp_path / "pyvenv.cfg").write_text(f"home = /x\n{line}\n")
    assert python_version(tmp_path) == "3.14.1"


def test_an_image_s_python_states_it_in_its_headers_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.13" / "site-packages").mkdir(parents=True)
    assert python_version(tmp_path) == "3.13"
    header = tmp_path / "include" / "python3.13" / "patchlevel.h"
    header.parent.mkdir(parents=True)
    header.write_text('#define PY_VERSION              "3.13.4"\n')
    assert python_version(tmp_path) == "3.13.4"


def test_debian_s_folder_and_a_base_that_shows_through_are_read(tmp_path: Path) -> None:
    base = tmp_path / "base"
    debian = base / "lib" / "python3" / "dist-packages"
    debian.mkdir(parents=True)
    add_distribution(debian, "torch", {"version": "2.14.0"})
    assert site_folders(base) == [debian]
    site = make_environment(tmp_path / "venv", "3.12.1", {"numpy": {"version": "2.0"}})
    (site / "harness-base.pth").write_text(f"import os\n{debian}\n{tmp_path}/nowhere\n")
    assert site_folders(tmp_path / "venv") == [site, debian]
    assert [item.name for item in read_distributions(tmp_path / "venv")] == ["numpy", "torch"]


VERSION = "from typing import Optional\n__version__: str = '2.14.0+cu130'\ncuda: Optional[str] = '13.0'\n"


def test_torch_is_read_from_its_own_file(tmp_path: Path) -> None:
    make_environment(
        tmp_path, "3.12.1", {"torch": {"version": "2.14.0", "files": {"torch/version.py": VERSION}}}
    )
    torch = read_torch(tmp_path)
    assert torch is not None
    assert (torch.version, torch.as_recorded) == ("2.14.0+cu130", True)


def test_a_torch_whose_files_were_replaced(tmp_path: Path) -> None:
    package = {"version": "2.14.0", "files": {"torch/version.py": VERSION}}
    site = make_environment(tmp_path, "3.12.1", {"torch": package})
    (site / "torch" / "version.py").write_text(VERSION.replace("2.14.0", "2.13.0"))
    torch = read_torch(tmp_path)
    assert torch is not None
    assert (torch.version, torch.as_recorded) == ("2.13.0+cu130", False)


def test_a_torch_without_a_record_is_not_judged(tmp_path: Path) -> None:
    site = make_environment(tmp_path, "3.12.1", {"torch": {"version": "2.14.0"}})
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text(VERSION)
    torch = read_torch(tmp_path)
    assert torch is not None
    assert torch.as_recorded is None
