import json
import os
import sys
from pathlib import Path

import pytest

from harness import process
from harness.image.inside.pins import SourcePin
from harness.image.inside.plan import base_record, index_findings, judge_base, judge_source, write_lists
from tests.image.installed import COMMIT, found, install, lock, pins

PIN = SourcePin("1.0", "https://example.test/titan.git", COMMIT)


def git_url(commit: str = COMMIT, url: str = "https://example.test/titan") -> dict[str, object]:
    return {"url": url, "vcs_info": {"vcs": "git", "commit_id": commit}}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of the pinned commit."""
    folder = tmp_path / "sources" / "titan"
    (folder / "src" / "titan").mkdir(parents=True)
    (folder / "src" / "titan" / "__init__.py").write_text("pinned\n")
    return folder


def test_a_base_that_fits_has_no_findings(tmp_path: Path, tree: Path) -> None:
    site = tmp_path / "site"
    install(site, "torch", "2.14.0")
    install(site, "titan", files={"titan/__init__.py": "pinned\n"}, direct_url=git_url())
    assert judge_base(found(site), lock(torch="2.14.0"), pins(sources={"titan": PIN}), tree.parent) == []


def test_another_build_of_a_protected_package_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.14.0+neuron")
    findings = judge_base(found(tmp_path), lock(torch="2.14.0"), pins(), tmp_path)
    assert len(findings) == 1
    assert findings[0].startswith("base.changed: the base carries torch 2.14.0+neuron, the lock pins 2.14.0")


def test_another_version_of_any_other_package_is_no_finding(tmp_path: Path) -> None:
    install(tmp_path, "einops", "0.7")
    assert judge_base(found(tmp_path), lock(einops="0.8"), pins(), tmp_path) == []


def test_what_the_stack_keeps_is_protected(tmp_path: Path) -> None:
    install(tmp_path, "einops", "0.7")
    findings = judge_base(found(tmp_path), lock(einops="0.8"), pins(keeps=("einops",)), tmp_path)
    assert "base.changed" in findings[0]


def test_a_placeholder_in_the_base_is_found_even_outside_the_lock(tmp_path: Path) -> None:
    install(tmp_path, "nki", "0.0.1")
    findings = judge_base(found(tmp_path), lock(einops="0.8"), pins(), tmp_path)
    assert findings[0].startswith("base.placeholder: nki 0.0.1 in the base")


@pytest.mark.parametrize("with_origin", [True, False])
def test_the_pinned_commit_in_the_base_is_recognised(tmp_path: Path, tree: Path, with_origin: bool) -> None:
    url = git_url() if with_origin else None
    install(tmp_path / "site", "titan", files={"titan/__init__.py": "pinned\n"}, direct_url=url)
    assert judge_source(found(tmp_path / "site")["titan"], PIN, tree) == ""


@pytest.mark.parametrize(
    ("version", "url", "content", "says"),
    [
        ("2.0", git_url(), "pinned\n", "the pin is 1.0"),
        ("1.0", git_url(commit="f" * 40), "pinned\n", f"comes from commit {'f' * 40}"),
        (
            "1.0",
            git_url(url="https://example.test/other"),
            "pinned\n",
            "comes from https://example.test/other",
        ),
        ("1.0", git_url(), "edited\n", f"is no file of commit {COMMIT} (1 of 1 differ)"),
        ("1.0", None, "edited\n", "is no file of commit"),
    ],
)
def test_anything_but_the_pinned_commit_is_refused(
    tmp_path: Path, tree: Path, version: str, url: dict[str, object] | None, content: str, says: str
) -> None:
    install(tmp_path / "site", "titan", version, files={"titan/__init__.py": content}, direct_url=url)
    wrong = judge_source(found(tmp_path / "site")["titan"], PIN, tree)
    assert says in wrong
    findings = judge_base(found(tmp_path / "site"), {}, pins(sources={"titan": PIN}), tree.parent)
    assert findings == [f"base.source: {wrong}"]


def test_a_source_without_any_module_is_refused(tmp_path: Path, tree: Path) -> None:
    install(tmp_path / "site", "titan", files={"titan/note.txt": ""}, direct_url=git_url())
    assert "no module" in judge_source(found(tmp_path / "site")["titan"], PIN, tree)


@pytest.mark.parametrize(
    "url",
    ["git+https://user@example.test/Titan", "git@example.test:titan.git", "ssh://git@example.test/titan/"],
)
def test_spellings_of_a_repository_are_the_same(tmp_path: Path, tree: Path, url: str) -> None:
    install(tmp_path / "s", "titan", files={"titan/__init__.py": "pinned\n"}, direct_url=git_url(url=url))
    assert judge_source(found(tmp_path / "s")["titan"], PIN, tree) == ""


def test_an_index_that_replaces_the_common_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pip.conf"
    path.write_text("[global]\nindex-url = https://vendor.test/simple\n")
    findings = index_findings((str(path), str(tmp_path / "absent.conf")))
    assert len(findings) == 1
    assert f"{path} of the base sets global.index-url = https://vendor.test/simple" in findings[0]


def test_an_additional_index_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "pip.conf"
    path.write_text("[global]\nextra-index-url = https://vendor.test/simple\n")
    assert index_findings((str(path),)) == []


def test_each_package_is_installed_from_its_own_index_and_nothing_that_stays(tmp_path: Path) -> None:
    stack = pins(
        indexes={"neuron": ("https://vendor.test", ("neuronx-cc",))}, sources={"titan": PIN, "kept": PIN}
    )
    wanted = lock(torch="2.14.0", neuronx_cc="2.28", einops="0.8")
    write_lists(tmp_path / "install", {"torch", "kept"}, wanted, stack, tmp_path)
    install_folder = tmp_path / "install"
    assert (install_folder / "index-default.lock").read_text() == wanted["einops"].text
    assert (install_folder / "index-default.options").read_text() == ""
    assert (install_folder / "index-neuron.lock").read_text() == wanted["neuronx-cc"].text
    assert (install_folder / "index-neuron.options").read_text() == "--default-index https://vendor.test"
    assert [path.name for path in install_folder.glob("source-*")] == ["source-titan.path"]


def test_only_protected_packages_have_their_files_read(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.14.0")
    install(tmp_path, "einops", "0.8")
    record = base_record(found(tmp_path), pins(), [str(tmp_path)])["distributions"]
    assert len(record["torch"]["files"]) == 64
    assert record["einops"]["files"] is None


def test_the_step_writes_its_record_and_lists(root: Path, tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    install(site, "torch", "2.14.0")
    (home / "locks").mkdir(parents=True)
    (home / "locks" / "stack.lock").write_text(
        "".join(e.text for e in lock(torch="2.14.0", einops="0.8").values())
    )
    data = {"stack": "t", "keeps": ["torch"], "sources": {}, "indexes": {}, "neuron": {}, "python": ">=3.11"}
    (home / "pins.json").write_text(json.dumps(data))
    env = {**os.environ, "PYTHONPATH": f"{root}:{site}"}
    argv = [sys.executable, "-B", "-m", "harness.image.inside.plan", "--home", str(home)]
    done = process.run(argv, env=env)
    assert done.returncode == 0, done.output
    assert json.loads((home / "base.json").read_text())["kept"] == ["torch"]
    assert str(site) in (home / "install" / "base.pth").read_text()
    assert "einops" in (home / "install" / "index-default.lock").read_text()
    (home / "locks" / "stack.lock").write_text(lock(torch="2.13.0")["torch"].text)
    done = process.run(argv, env=env)
    assert done.returncode == 1
    assert "image-check: base.changed: the base carries torch 2.14.0" in done.output
