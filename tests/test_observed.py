"""The observed environment of a run: what was there, whole, without secrets; absent parts say so."""

import hashlib
import json
from pathlib import Path

import pytest

from harness import process
from harness.doctor.host import Distribution
from harness.evidence import REDACTED
from harness.observed import (
    nkilib_source,
    observe,
    parse_git_status,
    parse_os_release,
    parse_torch_version,
)
from tests.doctor.layouts import add_distribution, make_environment, recorded


def test_a_trn2_host_is_observed_whole(tmp_path: Path) -> None:
    found = recorded("healthy-trn2", tmp_path)
    (found.root / "etc" / "os-release").write_text('NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 26.04 LTS"\n')
    seen = observe(found.environment, variables={"HF_TOKEN": "secret", "HOME": "/h"}, root=found.root)
    assert json.loads(json.dumps(seen)) == seen
    assert seen["schema"] == 1
    assert seen["system"]["os"] == "Ubuntu 26.04 LTS"
    assert seen["system"]["container"] is False
    assert seen["python"] == "3.14.0"
    assert seen["os_packages"]["aws-neuronx-tools"] == "2.33.38.0"
    assert seen["neuron"] == {
        "driver": "2.31.7.0",
        "runtime": "2.35.30.0",
        "devices": list(range(16)),
        "devices_of_the_driver": 16,
        "sdk": ["2.33.0"],
        "components": {
            "aws-neuronx-collectives": "2.35.43.0",
            "aws-neuronx-runtime-lib": "2.35.30.0",
            "aws-neuronx-tools": "2.33.38.0",
            "libneuronxla": "3.0.10135.0",
            "neuronx-cc": "2.28.7631.0",
            "nki": "0.7.0",
            "torch-neuronx": "2.14.3.0.0",
        },
        "nkilib": None,
    }
    assert seen["torch"] == {"version": "2.14.0+cpu"}
    assert seen["variables"] == {"HF_TOKEN": REDACTED, "HOME": "/h"}
    assert (seen["image"], seen["git"]) == (None, None)
    assert [{**index, "source": Path(index["source"]).name} for index in seen["indexes"]] == [
        {"tool": "pip", "role": "extra", "source": "pip.conf", "neuron": True}
    ]


def test_a_distribution_has_the_digest_of_its_record(tmp_path: Path) -> None:
    site = make_environment(
        tmp_path / "env", "3.12.1", {"b": {"version": "1.0+local"}, "a": {"version": "2"}}
    )
    (add_distribution(site, "c", {"version": "3"}) / "RECORD").unlink()
    record = (site / "b-1.0+local.dist-info" / "RECORD").read_bytes()
    seen = observe(tmp_path / "env", variables={}, root=tmp_path / "root")["distributions"]
    assert [(item["name"], item["version"]) for item in seen] == [("a", "2"), ("b", "1.0+local"), ("c", "3")]
    assert seen[1]["record_sha256"] == hashlib.sha256(record).hexdigest()
    assert seen[2]["record_sha256"] is None


def test_one_changed_file_of_a_wheel_changes_the_digest(tmp_path: Path) -> None:
    digests = []
    for number, content in enumerate(("x = 1\n", "x = 2\n")):
        folder = tmp_path / str(number)
        make_environment(folder, "3.12.1", {"a": {"version": "1", "files": {"a/x.py": content}}})
        digests.append(observe(folder, variables={}, root=tmp_path)["distributions"][0]["record_sha256"])
    assert digests[0] != digests[1]


def test_an_empty_machine_is_observed_as_empty(tmp_path: Path) -> None:
    seen = observe(tmp_path / "nowhere", variables={}, root=tmp_path)
    assert seen["distributions"] == []
    assert (seen["os_packages"], seen["image"], seen["torch"], seen["git"]) == (None, None, None, None)
    assert seen["neuron"]["devices"] == []
    assert seen["neuron"]["sdk"] == []
    assert seen["system"]["os"] is None


def test_the_image_is_what_its_build_left_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "opt" / "harness"
    home.mkdir(parents=True)
    image = {
        "stack": "cpu",
        "lock_digest": "f" * 8,
        "prefix": "/opt/stack",
        "packages": {},
        "base": {"name": "b"},
    }
    (home / "image.json").write_text(json.dumps(image))
    (home / "labels.json").write_text('{"org.opencontainers.image.revision": "abc"}')
    monkeypatch.setenv("HARNESS_IMAGE", "trn-harness@sha256:00ff")
    seen = observe(tmp_path / "nowhere", variables={}, root=tmp_path)["image"]
    assert seen["digest"] == "sha256:00ff"
    assert seen["labels"] == {"org.opencontainers.image.revision": "abc"}
    assert seen["lock_digest"] == "f" * 8


COMPILER = (Distribution("neuronx-cc", "2.28.7631.0"), ["neuronxcc/nki/_private/nkilib/core/x.py,sha256=a,1"])
LIBRARY = (
    Distribution("nki-library", "0.7.0"),
    ["nkilib_src/nkilib/core/x.py,sha256=a,1", "x.dist-info/RECORD,,"],
)


def test_the_compiler_s_own_nkilib() -> None:
    plain = (Distribution("nki", "0.7.0"), ["nki/__init__.py,,", "nki/nkilib.py,,"])
    assert nkilib_source([plain, COMPILER]) == {
        "source": "compiler",
        "distribution": "neuronx-cc",
        "version": "2.28.7631.0",
        "replaces_bundled": False,
    }


@pytest.mark.parametrize(("records", "replaces"), [([COMPILER, LIBRARY], True), ([LIBRARY], False)])
def test_a_separately_installed_nkilib_wins(
    records: list[tuple[Distribution, list[str]]], replaces: bool
) -> None:
    assert nkilib_source(records) == {
        "source": "separate",
        "distribution": "nki-library",
        "version": "0.7.0",
        "replaces_bundled": replaces,
    }


def test_no_nkilib_is_none() -> None:
    assert nkilib_source([]) is None
    # The placeholder of nki-library is metadata only.
    assert (
        nkilib_source([(Distribution("nki-library", "0.0.2"), ["nki_library-0.0.2.dist-info/RECORD,,"])])
        is None
    )


def test_torch_s_build_settings() -> None:
    text = (
        "from typing import Optional\n\n__all__ = ['__version__', 'debug']\n__version__ = '2.14.0+cu130'\n"
        "debug = False\ncuda: Optional[str] = '13.0'\ngit_version = \"08187d9\"\nhip: Optional[str] = None\n"
    )
    assert parse_torch_version(text) == {
        "version": "2.14.0+cu130",
        "debug": False,
        "cuda": "13.0",
        "git_version": "08187d9",
        "hip": None,
    }
    assert parse_torch_version("import os\n") == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n', "Debian GNU/Linux 12 (bookworm)"),
        ("PRETTY_NAME=Plain\n", "Plain"),
        ("ID=x\n", None),
        ("", None),
    ],
)
def test_the_system_s_name(text: str, name: str | None) -> None:
    assert parse_os_release(text) == name


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "commit.gpgsign=false"]
    done = process.run(["git", *identity, "-C", str(folder), *arguments])
    assert done.returncode == 0, done.output


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    (folder / "with blank.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def state(folder: Path, tmp_path: Path) -> dict[str, object]:
    found = observe(tmp_path / "nowhere", repository=folder, variables={}, root=tmp_path / "root")["git"]
    assert isinstance(found, dict)
    return found


def test_a_clean_repository(repository: Path, tmp_path: Path) -> None:
    found = state(repository, tmp_path)
    assert len(str(found["commit"])) == 40
    assert (found["branch"], found["dirty"], found["changed"], found["reason"]) == ("trunk", False, [], "")


def test_every_kind_of_change_makes_it_dirty(repository: Path, tmp_path: Path) -> None:
    commit = state(repository, tmp_path)["commit"]
    (repository / "with blank.py").write_text("x = 2\n")
    (repository / "new.py").write_text("")
    found = state(repository, tmp_path)
    assert found["commit"] == commit
    assert (found["dirty"], found["changed"], found["changes"]) == (True, ["new.py", "with blank.py"], 2)
    git(repository, "checkout", "-q", "--", ".")
    (repository / "new.py").unlink()
    git(repository, "mv", "with blank.py", "moved.py")
    assert state(repository, tmp_path)["changed"] == ["moved.py"]


def test_a_detached_head_and_a_repository_without_a_commit(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    assert state(repository, tmp_path)["branch"] is None
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q", "-b", "trunk")
    assert state(empty, tmp_path)["commit"] is None


def test_a_look_writes_nothing_into_the_repository(repository: Path, tmp_path: Path) -> None:
    index = repository / ".git" / "index"
    (repository / "with blank.py").touch()
    before = index.read_bytes()
    state(repository, tmp_path)
    assert index.read_bytes() == before


def test_no_repository_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    found = state(folder, tmp_path)
    assert (found["commit"], found["dirty"]) == (None, None)
    assert "not a git repository" in str(found["reason"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "cannot start `git`" in str(state(folder, tmp_path)["reason"])


def test_many_changes_are_counted_and_cut() -> None:
    found = parse_git_status("\n".join(f"? f{number:03}" for number in range(80)))
    assert (found["changes"], len(found["changed"])) == (80, 50)


def test_a_conflict_is_a_change() -> None:
    line = "u UU N... 100644 100644 100644 100644 a b c recipes/x y.py"
    assert parse_git_status(line)["changed"] == ["recipes/x y.py"]
