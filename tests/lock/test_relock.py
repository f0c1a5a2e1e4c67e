"""`harness lock`: every part against stand-ins on the loopback address, with real uv and real git."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UserError
from harness.lock.check import check_lock
from harness.lock.relock import LockReport, lock_stack
from harness.lock.sources import tree_digest
from harness.stack import load_stack
from tests.lock.conftest import Maker
from tests.lock.site import Site, git, wheel

pytestmark = pytest.mark.usefixtures("plain_uv", "cache")

MANIFEST = b'{"manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
HUB = "1234567890" * 4


def states(report: LockReport) -> dict[str, str]:
    return {part.part: part.state for part in report.parts}


def publish(site: Site, tag: str, manifest: bytes) -> None:
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    for reference in (tag, digest):
        site.pages[f"/v2/neuron/train/manifests/{reference}"] = (200, {}, manifest)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "mytitan"\nversion = "1"\ndependencies = ["einops"]\n'
    )
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "release-1")
    return folder


@pytest.fixture
def project(site: Site, repository: Path, make_stack: Maker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stack like trn2: everything open, everything reachable."""
    default = site.index("public", wheel("torch", "2.14.0"), wheel("einops", "0.8"), wheel("nki", "0.0.1"))
    own = site.index("neuron", wheel("torch-neuronx", "2.14.3.0.7+abc", ("nki",)), wheel("nki", "0.7.0"))
    monkeypatch.setenv("UV_DEFAULT_INDEX", default)
    publish(site, "v1", MANIFEST)
    site.pages["/api/models/me/model"] = (200, {}, json.dumps({"id": "me/model", "sha": HUB}).encode())
    fields: dict[str, Any] = {
        "base_image": {"repository": f"{site.host}/neuron/train", "tag": "v1", "digest": "unresolved"},
        "sources": {
            "mytitan": {
                "version": "1",
                "repository": str(repository),
                "ref": "release-1",
                "commit": "unresolved",
                "tree": "unresolved",
            }
        },
        "indexes": {
            "neuron": {
                "url": own,
                "packages": ["torch-neuronx", "nki"],
                "families": {"torch-neuronx": "2.14.3.0.*"},
            }
        },
        "assets": {
            "kind": "hub",
            "corpus": "assets",
            "models": {"published": {"repo": "me/model", "revision": "unresolved"}},
        },
        "unresolved": [
            {"pins": pins, "what": "it", "why": "because", "command": "harness lock small", "stops": stops}
            for pins, stops in (
                (["requirements.lock"], "run"),
                (["sources.mytitan.commit", "sources.mytitan.tree"], "run"),
                (["assets.models.published.revision"], "run"),
                (["base_image.digest"], "image"),
            )
        ],
    }
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", site.url)
    return make_stack("torch==2.14.0\ntorch-neuronx==2.14.3.0.*\n", **fields)


def test_everything_open_is_resolved_and_the_stack_is_then_usable(project: Path, repository: Path) -> None:
    before = load_stack(project, "small")
    assert len(before.open_pins()) == 4
    report = lock_stack(project, "small")
    assert states(report) == dict.fromkeys(("sources", "assets", "packages", "image"), "resolved")
    assert report.exit_code == 0
    after = load_stack(project, "small")
    after.require_resolved("image")
    assert after.base_image is not None
    assert after.base_image.digest == DIGEST
    assert after.sources["mytitan"].commit == git(repository, "rev-parse", "HEAD")
    assert after.sources["mytitan"].tree == tree_digest(repository)
    assert after.assets.models["published"].revision == HUB  # type: ignore[union-attr]
    result = check_lock(after)
    assert result.findings == ()
    text = after.lock.read_text()
    assert [line.split(" ")[0] for line in text.splitlines() if "==" in line] == [
        "einops==0.8",
        "nki==0.7.0",
        "torch==2.14.0",
        "torch-neuronx==2.14.3.0.7+abc",
    ]


def test_a_second_time_changes_nothing(project: Path) -> None:
    lock_stack(project, "small")
    folder = project / "lockfiles" / "small"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    report = lock_stack(project, "small")
    assert states(report) == dict.fromkeys(("sources", "assets", "packages", "image"), "kept")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_the_record_says_from_what_and_with_what(project: Path) -> None:
    lock_stack(project, "small")
    record = json.loads((project / "lockfiles" / "small" / "lock.json").read_text())
    assert record["other_indexes"] == {"neuron": ["nki", "torch-neuronx"]}
    assert record["default_index"] == 2
    assert record["sources"] == {"mytitan": load_stack(project, "small").sources["mytitan"].tree}
    assert (record["python"], record["platform"]) == ("3.11", "x86_64-unknown-linux-gnu")
    assert "127.0.0.1" not in json.dumps(record)


def test_what_moved_stays_pinned_until_an_upgrade_is_asked_for(
    project: Path, repository: Path, site: Site
) -> None:
    lock_stack(project, "small")
    old = load_stack(project, "small")
    (repository / "new.py").write_text("")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "two")
    git(repository, "tag", "-f", "release-1")
    publish(site, "v1", b"{}")
    site.index("public", wheel("torch", "2.14.0"), wheel("einops", "0.8"), wheel("einops", "0.9"))
    assert set(states(lock_stack(project, "small")).values()) == {"kept"}
    report = lock_stack(project, "small", upgrade=True)
    assert states(report) == {"sources": "moved", "assets": "kept", "packages": "moved", "image": "moved"}
    text = " ".join(part.text for part in report.parts)
    assert old.sources["mytitan"].commit in text
    assert "einops 0.8 -> 0.9" in text
    assert check_lock(load_stack(project, "small")).findings == ()


def test_only_the_named_parts_are_done(project: Path, site: Site) -> None:
    assert states(lock_stack(project, "small", parts=["image"])) == {"image": "resolved"}
    stack = load_stack(project, "small")
    assert not stack.lock.exists()
    assert stack.sources["mytitan"].commit == "unresolved"


def test_what_cannot_be_reached_stays_open_and_is_said(
    project: Path, repository: Path, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.rename(repository.with_name("away"))
    site.pages.clear()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    site.pages["/v2/neuron/train/manifests/v1"] = (500, {}, b"")
    before = (project / "lockfiles" / "small" / "stack.yaml").read_text()
    report = lock_stack(project, "small")
    assert states(report) == dict.fromkeys(("sources", "assets", "packages", "image"), "unreachable")
    assert report.exit_code == 3
    assert all("stays unresolved" in part.text for part in report.parts)
    assert all("`harness lock small` on a machine that reaches it" in part.text for part in report.parts)
    assert (project / "lockfiles" / "small" / "stack.yaml").read_text() == before
    assert not (project / "lockfiles" / "small" / "requirements.lock").exists()


def test_an_index_that_is_gone_leaves_the_lock_as_it_was(project: Path, site: Site) -> None:
    lock_stack(project, "small")
    lock = project / "lockfiles" / "small" / "requirements.lock"
    before = lock.read_bytes()
    site.pages = {path: page for path, page in site.pages.items() if "/simple/" not in path}
    site.pages["/neuron/simple/torch-neuronx/"] = (500, {}, b"")
    report = lock_stack(project, "small", parts=["packages"])
    assert states(report) == {"packages": "unreachable"}
    assert "stays as it was" in report.parts[0].text
    assert lock.read_bytes() == before


def edit(project: Path, old: str, new: str) -> None:
    path = project / "lockfiles" / "small" / "requirements.in"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_range_is_refused_with_what_it_means_today(project: Path, site: Site) -> None:
    site.index(
        "neuron",
        wheel("torch-neuronx", "2.14.3.0.7+abc"),
        wheel("nki", "0.6.0"),
        wheel("nki", "0.7.0", python=">=3.12"),
    )
    edit(project, "torch-neuronx==2.14.3.0.*\n", "torch-neuronx==2.14.3.0.*\nnki==0.*\n")
    with pytest.raises(UserError) as raised:
        lock_stack(project, "small")
    assert (
        "requirements.in:3: nki==0.* is a range; the lock says 0.6.0 (0.7.0 exists but requires Python >=3.12"
        in (str(raised.value))
    )
    assert not (project / "lockfiles" / "small" / "requirements.lock").exists()


def test_a_range_whose_newest_does_not_fit_is_refused_too(project: Path, site: Site) -> None:
    site.index("neuron", wheel("torch-neuronx", "2.14.3.0.7+abc"), wheel("nki", "0.7.0", python="<3.0"))
    edit(project, "torch-neuronx==2.14.3.0.*\n", "torch-neuronx==2.14.3.0.*\nnki>=0.5\n")
    with pytest.raises(UserError, match=r"nki>=0\.5 is a range .*requires Python <3\.0"):
        lock_stack(project, "small")


def test_a_torch_of_another_family_is_refused(project: Path, site: Site) -> None:
    site.index("public", wheel("torch", "2.13.0"), wheel("einops", "0.8"))
    edit(project, "torch==2.14.0", "torch==2.13.0")
    with pytest.raises(
        UserError, match=r"left as it was.*\n.*lock\.family: .*torch 2\.13\.0 with torch-neuronx"
    ):
        lock_stack(project, "small")


def test_a_build_that_was_not_asked_for_is_refused(project: Path, site: Site) -> None:
    site.index("public", wheel("torch", "2.14.0+cpu"), wheel("einops", "0.8"))
    with pytest.raises(UserError, match=r"lock\.label: .*torch 2\.14\.0\+cpu"):
        lock_stack(project, "small")
    edit(project, "torch==2.14.0", "torch==2.14.0+cpu")
    assert lock_stack(project, "small").exit_code == 0


def test_a_source_that_an_index_offers_too_is_refused(project: Path, repository: Path, site: Site) -> None:
    site.index(
        "public", wheel("torch", "2.14.0"), wheel("einops", "0.8", ("mytitan",)), wheel("mytitan", "9")
    )
    with pytest.raises(UserError, match=r"lock\.source: .*mytitan 9 would come from an index"):
        lock_stack(project, "small")


def test_a_tag_that_was_never_there_is_the_users(project: Path) -> None:
    path = project / "lockfiles" / "small" / "stack.yaml"
    path.write_text(path.read_text().replace("ref: release-1", "ref: release-9"))
    with pytest.raises(UserError, match="no tag or branch release-9"):
        lock_stack(project, "small")
    path.write_text(
        path.read_text().replace("ref: release-9", "ref: release-1").replace("tag: v1", "tag: v9")
    )
    with pytest.raises(UserError, match=r"the registry has no .*:v9"):
        lock_stack(project, "small", parts=["image"])


def test_a_model_that_is_not_there_is_the_users(project: Path, site: Site) -> None:
    site.pages["/api/models/me/model"] = (404, {"X-Error-Code": "RepoNotFound"}, b"")
    with pytest.raises(UserError, match="me/model: no such model repository"):
        lock_stack(project, "small", parts=["assets"])


def test_hashes_changed_by_hand_are_healed_not_kept(project: Path) -> None:
    lock_stack(project, "small")
    lock = project / "lockfiles" / "small" / "requirements.lock"
    good = lock.read_text()
    first = good.split("sha256:")[1][:64]
    lock.write_text(good.replace(first, "0" * 64))
    assert states(lock_stack(project, "small", parts=["packages"])) == {"packages": "moved"}
    assert lock.read_text() == good
