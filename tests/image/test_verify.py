from pathlib import Path
from typing import Any

import pytest

from harness.image.inside.pins import SourcePin
from harness.image.inside.plan import base_record
from harness.image.inside.requires import judge_requirements
from harness.image.inside.verify import judge_installed, judge_unchanged
from tests.image.installed import COMMIT, found, install, lock, pins

NO_BASE: dict[str, Any] = {"distributions": {}, "kept": []}


def test_what_the_lock_says_is_installed(tmp_path: Path) -> None:
    install(tmp_path, "einops", "0.8")
    install(tmp_path, "titan", "1.0")
    stack = pins(sources={"titan": SourcePin("1.0", "", COMMIT)})
    assert judge_installed(found(tmp_path), lock(einops="0.8"), stack, NO_BASE) == []


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("einops", "0.7", "lock.version: einops: the lock says 0.8, installed is 0.7"),
        ("einops", "0.8+cpu", "lock.version: einops: the lock says 0.8, installed is 0.8+cpu"),
        ("other", "1.0", "lock.missing: einops: the lock says 0.8, nothing is installed"),
        ("other", "1.0", "lock.unknown: other 1.0 is installed, the lock does not hold it"),
    ],
)
def test_every_difference_is_named(tmp_path: Path, name: str, version: str, says: str) -> None:
    install(tmp_path, name, version)
    assert says in judge_installed(found(tmp_path), lock(einops="0.8"), pins(), NO_BASE)


def test_a_locked_placeholder_is_found_although_the_versions_agree(tmp_path: Path) -> None:
    install(tmp_path, "nki", "0.0.1")
    findings = judge_installed(found(tmp_path), lock(nki="0.0.1"), pins(), NO_BASE)
    assert findings[0].startswith("lock.placeholder: nki 0.0.1")


def test_what_the_base_brought_on_top_may_stay_and_another_version_of_it_not(tmp_path: Path) -> None:
    install(tmp_path, "awscli", "1.0")
    base = {"distributions": {"awscli": {"version": "1.0"}}, "kept": []}
    assert judge_installed(found(tmp_path), {}, pins(), base) == []
    base["distributions"]["awscli"]["version"] = "0.9"
    assert "lock.unknown: awscli 1.0" in judge_installed(found(tmp_path), {}, pins(), base)[0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("nothing", []),
        ("content", ["base.changed: files of torch 2.14.0 are no longer those of the base"]),
        ("removed", ["base.removed: torch 2.14.0 of the base is gone"]),
        ("version", ["base.changed: torch was 2.14.0 in the base, now 2.15.0"]),
    ],
)
def test_a_change_of_the_base_is_found(tmp_path: Path, change: str, says: list[str]) -> None:
    info = install(tmp_path, "torch", "2.14.0")
    record = base_record(found(tmp_path), pins(), [str(tmp_path)])
    if change == "content":
        (tmp_path / "torch" / "__init__.py").write_text("other\n")
    elif change == "removed":
        info.rename(tmp_path / "gone")
    elif change == "version":
        info.rename(tmp_path / "gone")
        install(tmp_path, "torch", "2.15.0")
    assert judge_unchanged(record, found(tmp_path)) == says


def test_a_changed_record_of_an_unprotected_package_is_found(tmp_path: Path) -> None:
    info = install(tmp_path, "einops", "0.8")
    record = base_record(found(tmp_path), pins(), [str(tmp_path)])
    (info / "RECORD").write_text("other.py,,\n")
    assert "einops" in judge_unchanged(record, found(tmp_path))[0]


def requirements(site: Path, *ours: str, python: str = "3.12.4") -> list[str]:
    return judge_requirements(found(site), frozenset(ours), python)


def test_a_dependency_that_was_never_locked_is_named(tmp_path: Path) -> None:
    install(tmp_path, "trainer", "1.0", header="Requires-Dist: tinytok>=2\n")
    assert requirements(tmp_path, "trainer") == [
        "lock.requires: trainer 1.0 requires tinytok, which is not installed"
    ]


def test_a_package_of_ours_that_breaks_the_bases_compiler_is_named(tmp_path: Path) -> None:
    install(tmp_path, "neuronx-cc", "2.13.66", header="Requires-Dist: protobuf<3.20\n")
    install(tmp_path, "protobuf", "3.20.3")
    assert requirements(tmp_path, "protobuf") == [
        "lock.requires: neuronx-cc 2.13.66 requires protobuf<3.20, the image has 3.20.3"
    ]


def test_what_the_bases_maker_left_open_is_not_ours(tmp_path: Path) -> None:
    install(tmp_path, "oldtool", "1.0", header="Requires-Dist: absent\nRequires-Dist: protobuf<3\n")
    install(tmp_path, "protobuf", "3.20.3")
    assert requirements(tmp_path, "einops") == []


@pytest.mark.parametrize(
    "text",
    [
        "tinytok>=2; python_version < '3.12'",
        "tinytok>=2; extra == 'dev'",
        "tinytok>=2; sys_platform == 'win32'",
    ],
)
def test_a_condition_that_does_not_hold_asks_for_nothing(tmp_path: Path, text: str) -> None:
    install(tmp_path, "trainer", "1.0", header=f"Requires-Dist: {text}\n")
    assert requirements(tmp_path, "trainer") == []


def test_conditions_are_judged_for_the_stacks_python(tmp_path: Path) -> None:
    install(tmp_path, "trainer", "1.0", header="Requires-Dist: tinytok; python_version >= '3.14'\n")
    assert requirements(tmp_path, "trainer", python="3.14.1")
    assert not requirements(tmp_path, "trainer", python="3.13.1")
