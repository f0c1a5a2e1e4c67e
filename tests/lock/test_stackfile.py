"""Values are set in a stack file without touching anything else."""

from pathlib import Path

import pytest
import yaml

from harness.errors import UserError
from harness.lock.stackfile import set_values, write_text

TEXT = """# first
base_image:
  tag: v1   # a tag
  digest: unresolved  # see below
sources:
  my.thing-neuron:
    commit: "unresolved"
    # kept
    tree: unresolved
list: [a, b]
nested: {digest: unresolved}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "stack.yaml"
    file.write_text(TEXT)
    return file


def test_only_the_value_changes(path: Path) -> None:
    set_values(
        path, {"base_image.digest": "sha256:1", "sources.my.thing-neuron.tree": "t", "base_image.tag": "v2"}
    )
    expected = TEXT.replace("digest: unresolved  #", "digest: sha256:1  #", 1).replace(
        "tree: unresolved", "tree: t"
    )
    assert path.read_text() == expected.replace("tag: v1 ", "tag: v2 ")


def test_a_quoted_value_is_replaced(path: Path) -> None:
    set_values(path, {"sources.my.thing-neuron.commit": "abc"})
    assert "    commit: abc\n    # kept\n" in path.read_text()


@pytest.mark.parametrize("value", ["1" * 40, "1e" + "5" * 38, "0" * 40, "12e03", "abc", "sha256:12"])
def test_a_value_that_looks_like_a_number_stays_text(path: Path, value: str) -> None:
    set_values(path, {"sources.my.thing-neuron.commit": value})
    assert yaml.safe_load(path.read_text())["sources"]["my.thing-neuron"]["commit"] == value


@pytest.mark.parametrize("key", ["base_image.nothing", "nested.digest", "list", "base_image"])
def test_what_cannot_be_set_is_left_and_said(path: Path, key: str) -> None:
    with pytest.raises(UserError, match=f"`{key}`.*by hand"):
        set_values(path, {key: "x"})
    assert path.read_text() == TEXT


def test_nothing_to_set_reads_nothing(tmp_path: Path) -> None:
    set_values(tmp_path / "missing.yaml", {})


def test_a_file_with_the_same_content_is_not_touched(path: Path) -> None:
    before = path.stat()
    write_text(path, TEXT)
    assert path.stat().st_ino == before.st_ino
    path.chmod(0o640)
    write_text(path, "other\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert [item.name for item in path.parent.iterdir()] == ["stack.yaml"]
