"""Files at the border: what is wrong with one is said with file, line and key."""

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.files import FileModel, load_json, load_model, load_yaml


class Inner(FileModel):
    size: int


class Outer(FileModel):
    name: str
    inner: dict[str, Inner]


def written(folder: Path, text: str) -> Path:
    path = folder / "file.yaml"
    path.write_text(text)
    return path


def test_a_good_file_becomes_a_frozen_model(tmp_path: Path) -> None:
    found = load_model(written(tmp_path, "name: a\ninner:\n  x: {size: 3}\n"), Outer)
    assert found.inner["x"].size == 3
    with pytest.raises(ValueError, match="frozen"):
        found.name = "b"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: a\ninner:\n  x:\n    size: many\n", 4, ["inner.x.size", "'many'", "integer"]),
        ("name: a\ninner:\n  x:\n    size: 1\n    sise: 2\n", 5, ["inner.x.sise", "not a known key"]),
        ("inner: {}\n", 1, ["`name` is missing"]),
        ("name: a\nname: b\ninner: {}\n", 2, ["`name` stands twice", "line 1"]),
        ("name: [a\n", 2, ["not valid YAML"]),
        ("", 1, ["empty"]),
        ("- a\n- b\n", 1, ["(the file)"]),
        ("name: !!python/object/apply:os.system ['true']\ninner: {}\n", 1, ["not valid YAML", "python"]),
    ],
)
def test_a_mistake_names_file_line_and_key(tmp_path: Path, text: str, line: int, words: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError) as raised:
        load_model(path, Outer)
    message = str(raised.value)
    assert f"{path}:{line}" in message
    for word in words:
        assert word in message
    assert "Traceback" not in message


def test_every_mistake_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        load_model(written(tmp_path, "nome: a\ninner: 3\n"), Outer)
    assert len(str(raised.value).splitlines()) == 3


def test_a_missing_file_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_yaml(tmp_path / "absent.yaml")
    with pytest.raises(UserError, match="no such file"):
        load_json(tmp_path / "absent.json")


def test_a_file_that_is_not_text_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        load_yaml(path)


def test_broken_json_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        load_json(path)


@given(st.text())
def test_no_text_at_all_gives_a_traceback(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.yaml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        # Hardly any text is a valid file; what is not must be the user's mistake, whatever it is.
        with contextlib.suppress(UserError):
            load_model(path, Outer)
