import hashlib
from pathlib import Path

import pytest

from harness.image.content import compare_manifests
from harness.image.manifest import entries


def manifest(root: Path) -> dict[str, dict[str, object]]:
    return {str(entry["path"]): entry for entry in entries(root)}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The root of an image with one program and a link to it."""
    root = tmp_path / "image"
    (root / "opt").mkdir(parents=True)
    (root / "opt" / "app.py").write_text("x = 1")
    (root / "opt" / "link").symlink_to("app.py")
    return root


def test_an_entry_is_path_mode_owner_and_content(image: Path) -> None:
    found = manifest(image)
    assert list(found) == ["opt", "opt/app.py", "opt/link"]
    assert found["opt/app.py"]["content"] == hashlib.sha256(b"x = 1").hexdigest()
    assert found["opt/link"]["content"] == "app.py"
    assert found["opt"]["kind"] == "folder"


@pytest.mark.parametrize(
    "path",
    [
        "opt/__pycache__/app.pyc",
        "opt/app.pyc",
        "var/log/apt.log",
        "var/cache/ldconfig/aux-cache",
        "proc/1/status",
        "etc/resolv.conf",
    ],
)
def test_what_means_nothing_is_left_out(image: Path, path: str) -> None:
    before = manifest(image)
    (image / path).parent.mkdir(parents=True, exist_ok=True)
    (image / path).write_text("differs from build to build")
    added = manifest(image).keys() - before.keys()
    assert not added - {"etc", "var"}


def test_only_times_differ_and_the_content_is_equal(image: Path) -> None:
    import os

    before = manifest(image)
    os.utime(image / "opt" / "app.py", (1, 1))
    comparison = compare_manifests(before, manifest(image), same_digest=False)
    assert comparison.equal
    assert comparison.lines() == [
        "the two builds hold the same 3 entries; digests differ (times in the layers)"
    ]


@pytest.mark.parametrize("change", ["content", "mode", "added", "removed", "link", "kind"])
def test_every_change_is_named_by_path(image: Path, change: str) -> None:
    before = manifest(image)
    app, link = image / "opt" / "app.py", image / "opt" / "link"
    if change == "content":
        app.write_text("x = 2")
    elif change == "mode":
        app.chmod(0o600)
    elif change == "added":
        (image / "opt" / "app.py2").write_text("")
    elif change == "removed":
        app.unlink()
    elif change == "link":
        link.unlink()
        link.symlink_to("other.py")
    else:
        link.unlink()
        link.write_text("app.py")
    comparison = compare_manifests(before, manifest(image), same_digest=False)
    assert len(comparison.differences) == 1
    assert comparison.differences[0].startswith("opt/")
    assert comparison.lines()[0].startswith("the two builds differ in 1 of")


def test_a_long_list_is_cut_and_says_so() -> None:
    entry = {"path": "a", "mode": "0o644", "owner": "0:0", "kind": "file", "content": "x"}
    many = {f"f{n:03}": entry for n in range(30)}
    lines = compare_manifests(many, {}, same_digest=False).lines()
    assert lines[0] == "the two builds differ in 30 of 30 entries:"
    assert lines[-1] == "  and 10 more"
