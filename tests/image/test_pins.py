import json
from pathlib import Path

import pytest

from harness.image.context import pins_of
from harness.image.inside.pins import read_lock, read_pins
from harness.stack import load_stack


def test_an_entry_keeps_its_text_with_every_hash(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    torch = "Torch_X==2.0+cpu \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    path.write_text(f"# made by uv\n{torch}numpy==1.0 --hash=sha256:cc\n")
    entries = read_lock(path)
    assert {name: entry.version for name, entry in entries.items()} == {"torch-x": "2.0+cpu", "numpy": "1.0"}
    assert entries["torch-x"].text == torch


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("torch==2.0\n", "expected `name==version --hash=...`"),
        ("torch>=2.0 --hash=sha256:aa\n", "expected `name==version --hash=...`"),
        ("torch==2.0 ; sys_platform == 'linux' --hash=sha256:aa\n", "torch has a condition"),
    ],
)
def test_what_is_not_a_pinned_package_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "lock"
    path.write_text("numpy==1.0 --hash=sha256:cc\n" + text)
    with pytest.raises(ValueError, match=says) as caught:
        read_lock(path)
    assert f"{path}:2" in str(caught.value)


def test_every_shipped_lock_can_be_read(root: Path) -> None:
    assert read_lock(root / "lockfiles" / "cpu" / "requirements.lock")["torch"].version == "2.14.0"


@pytest.mark.parametrize("name", ["cpu", "trn2"])
def test_the_pins_of_a_stack_survive_the_way_into_the_image(root: Path, tmp_path: Path, name: str) -> None:
    stack = load_stack(root, name)
    path = tmp_path / "pins.json"
    path.write_text(json.dumps(pins_of(stack, {"reference": "x"})))
    pins = read_pins(path)
    assert pins.raw["stack"] == name
    assert pins.neuron["torch-neuronx"] == "1.0"
    if name == "trn2":
        assert "torch" in pins.keeps
        assert "torchtitan-neuron" in pins.sources
        assert "neuronx-cc" in pins.indexes["neuron"][1]
