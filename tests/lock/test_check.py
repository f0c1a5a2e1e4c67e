"""`lock --check`: pins, lock and record agree, or every difference is named."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.lock.check import check_lock, judge_lock, read_lock_files
from harness.lock.record import LockRecord, read_record, record_text, requirements_digest, text_digest
from harness.lock.requirements import marker_environment, parse_requirements
from harness.stack import load_stack
from tests.lock.conftest import Maker

HASH = "--hash=sha256:" + "a" * 64


@pytest.fixture
def cpu(tmp_path: Path, root: Path) -> Path:
    """A copy of the cpu stack's folder, in a project of its own."""
    shutil.copytree(root / "lockfiles" / "cpu", tmp_path / "lockfiles" / "cpu")
    return tmp_path / "lockfiles" / "cpu"


def codes(folder: Path) -> list[str]:
    return [item.code for item in check_lock(load_stack(folder.parent.parent, folder.name)).findings]


def messages(folder: Path) -> str:
    return "\n".join(
        item.message for item in check_lock(load_stack(folder.parent.parent, folder.name)).findings
    )


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def seal(folder: Path, **changes: object) -> None:
    """Write the record that belongs to the folder's lock and pins as they are."""
    stack = load_stack(folder.parent.parent, folder.name)
    files = read_lock_files(stack)
    record = LockRecord(
        stack=stack.name,
        written="2026-11-30T00:00:00+00:00",
        uv="0",
        python=stack.locked_for.python,
        platform=stack.locked_for.platform,
        requirements_sha256=requirements_digest(files.wanted),
        lock_sha256=text_digest(files.text or ""),
        default_index=1,
    )
    (folder / "lock.json").write_text(record_text(record.model_copy(update=changes)))


def small(make_stack: Maker, requirements: str, lock: str, **fields: object) -> Path:
    folder = make_stack(requirements, **fields) / "lockfiles" / "small"
    (folder / "requirements.lock").write_text(lock)
    seal(folder)
    return folder


def test_the_lock_that_ships_is_clean(root: Path, no_network: None) -> None:
    result = check_lock(load_stack(root, "cpu"))
    assert result.findings == ()
    assert result.verdict == "pass"
    assert re.match(r"[1-9]\d* packages, [1-9]\d* hashes", result.facts[0])
    assert any("nvidia" in fact for fact in result.facts)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be asked and nothing may be started."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the check went out")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("harness.process.run", refuse)


def test_a_pin_changed_by_hand_is_reported_with_both_versions(cpu: Path) -> None:
    edit(cpu / "requirements.in", "transformers==5.16.0", "transformers==5.15.0")
    assert codes(cpu) == ["lock.pin", "lock.requirements-changed"]
    assert (
        "requirements.in:3: transformers==5.15.0, but the lock has transformers 5.16.0. Next: harness lock cpu"
        in (messages(cpu))
    )


def test_a_lock_changed_by_hand_is_reported(cpu: Path) -> None:
    edit(cpu / "requirements.lock", "numpy==2.4.6", "numpy==2.4.5")
    assert codes(cpu) == ["lock.edited"]
    edit(cpu / "requirements.lock", "torch==2.14.0", "torch==2.14.1")
    assert codes(cpu) == ["lock.pin", "lock.edited"]


def test_a_new_pin_that_is_not_locked_is_reported(cpu: Path) -> None:
    with (cpu / "requirements.in").open("a") as file:
        file.write("polars==1.0\n")
    assert codes(cpu) == ["lock.absent", "lock.requirements-changed"]


def test_comments_and_order_of_the_pins_do_not_count(cpu: Path) -> None:
    path = cpu / "requirements.in"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    path.write_text("# another word\n" + "\n".join(reversed(lines)) + "\n")
    assert codes(cpu) == []


@pytest.mark.parametrize("label", ["cpu", "cu130"])
def test_a_lock_taken_on_another_platform_is_caught(cpu: Path, label: str) -> None:
    edit(cpu / "requirements.lock", "torch==2.14.0", f"torch==2.14.0+{label}")
    seal(cpu)
    assert codes(cpu) == ["lock.label"]
    assert f"the lock has torch 2.14.0+{label}, requirements.in asks for 2.14.0" in messages(cpu)
    assert "Same number, other build" in messages(cpu)


def test_a_label_that_is_asked_for_is_needed(make_stack: Maker) -> None:
    good = small(make_stack, "torch==2.9.0+cpu\n", f"torch==2.9.0+cpu {HASH}\n")
    assert codes(good) == []
    bad = small(make_stack, "torch==2.9.0+cpu\n", f"torch==2.9.0 {HASH}\n")
    assert codes(bad) == ["lock.label"]


def test_a_label_that_came_in_unasked_is_caught_on_any_package(make_stack: Maker) -> None:
    folder = small(make_stack, "torch==2.9.0\n", f"torch==2.9.0 {HASH}\ntorchvision==0.24.0+cu130 {HASH}\n")
    assert codes(folder) == ["lock.label"]
    assert "torchvision 0.24.0+cu130, requirements.in asks for no build label" in messages(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"platform": "aarch64-unknown-linux-gnu"}, "resolved for Python 3.11 on aarch64"),
        ({"python": "3.12"}, "resolved for Python 3.12"),
    ],
)
def test_a_lock_for_another_target_is_caught(cpu: Path, changes: dict[str, str], words: str) -> None:
    seal(cpu, **changes)
    assert codes(cpu) == ["lock.target"]
    assert words in messages(cpu)


def test_a_missing_hash_is_called_missing(cpu: Path) -> None:
    text = (cpu / "requirements.lock").read_text()
    (cpu / "requirements.lock").write_text(text + "zzz==1\n")
    seal(cpu)
    assert codes(cpu) == ["lock.hash-missing"]
    assert "zzz 1 has no hash. This is not tampering" in messages(cpu)


@pytest.mark.parametrize(
    "line", ["--index-url https://example.invalid/simple", "a @ https://example.invalid/a.whl"]
)
def test_an_address_in_a_lock_is_refused(cpu: Path, line: str) -> None:
    path = cpu / "requirements.lock"
    path.write_text(f"{line}\n{path.read_text()}")
    seal(cpu)
    assert codes(cpu) == ["lock.address"]


def test_an_empty_lock_is_no_pass(make_stack: Maker) -> None:
    assert codes(small(make_stack, "", "")) == ["lock.empty"]


def test_a_package_that_stands_twice_is_caught(make_stack: Maker) -> None:
    folder = small(make_stack, "a==1\n", f"a==1 {HASH}\na==2 {HASH}\n")
    assert codes(folder) == ["lock.twice"]


def test_entries_for_other_targets_do_not_count(make_stack: Maker) -> None:
    lock = f"a==1 ; python_version < '3.12' {HASH}\na==2 ; python_version >= '3.12' {HASH}\n"
    assert codes(small(make_stack, "a==1\n", lock)) == []
    assert codes(small(make_stack, "a==2\n", lock)) == ["lock.pin"]
    broken = small(make_stack, "a==1\n", f"a==1 ; nonsense {HASH}\n")
    assert codes(broken) == ["lock.form", "lock.absent"]


def test_a_lock_without_its_record_is_not_accepted(cpu: Path) -> None:
    (cpu / "lock.json").unlink()
    assert codes(cpu) == ["lock.no-record"]


def test_a_damaged_record_is_the_users_to_mend(cpu: Path) -> None:
    (cpu / "lock.json").write_text("{}")
    with pytest.raises(UserError, match=r"lock\.json"):
        codes(cpu)


def test_a_stack_without_a_lock_says_how_to_get_one(root: Path, make_stack: Maker) -> None:
    (finding,) = check_lock(load_stack(root, "trn2")).findings
    assert finding.code == "lock.missing"
    assert "Unresolved: the hashed lock of the Neuron packages" in finding.message
    assert "harness lock trn2" in finding.message
    other = make_stack("a==1\n") / "lockfiles" / "small"
    assert messages(other).endswith("no such file. Next: harness lock small.")


NEURON = {
    "neuron": {
        "url": "http://127.0.0.1/simple",
        "packages": ["torch-neuronx", "neuronx-cc"],
        "families": {"torch-neuronx": "2.14.3.0.*"},
    }
}
NEURON_PINS = "torch==2.14.0\ntorch-neuronx==2.14.3.0.*\nneuronx-cc==2.28.7631.0\n"


def neuron_lock(
    torch: str = "2.14.0", plugin: str = "2.14.3.0.7+abc", compiler: str = "2.28.7631.0+def"
) -> str:
    return f"torch=={torch} {HASH}\ntorch-neuronx=={plugin} {HASH}\nneuronx-cc=={compiler} {HASH}\n"


@pytest.mark.parametrize(
    ("pins", "lock", "expected"),
    [
        (NEURON_PINS, neuron_lock(), []),
        (NEURON_PINS, neuron_lock(compiler="1.0"), ["lock.pin", "lock.placeholder"]),
        (NEURON_PINS, neuron_lock(plugin="2.14.4.0.1+abc"), ["lock.pin"]),
        (NEURON_PINS, neuron_lock(torch="2.13.0"), ["lock.pin", "lock.family"]),
        (NEURON_PINS.replace("==2.28.7631.0", "==2.28.*"), neuron_lock(), ["lock.range"]),
        (NEURON_PINS, neuron_lock() + f"nki==0.7.0 {HASH}\n", ["lock.no-index-rule"]),
    ],
)
def test_neuron_rules_hold_in_a_lock(make_stack: Maker, pins: str, lock: str, expected: list[str]) -> None:
    folder = small(make_stack, pins, lock, indexes=NEURON)
    seal(folder, other_indexes={"neuron": ("neuronx-cc", "torch-neuronx")})
    assert codes(folder) == expected


def test_a_package_that_came_from_the_wrong_index_is_caught(make_stack: Maker) -> None:
    folder = small(make_stack, NEURON_PINS, neuron_lock(), indexes=NEURON)
    seal(folder, other_indexes={"neuron": ("neuronx-cc",)})
    assert codes(folder) == ["lock.index"]
    assert (
        "torch-neuronx 2.14.3.0.7+abc came from the default index, it may come from the index `neuron` only"
        in (messages(folder))
    )


def test_a_source_that_changed_since_the_lock_is_caught(make_stack: Maker) -> None:
    tree = "sha256:" + "1" * 64
    source = {"version": "1", "repository": "r", "ref": "v1", "commit": "0" * 40, "tree": tree}
    folder = small(make_stack, "a==1\n", f"a==1 {HASH}\n", sources={"mytitan": source})
    assert codes(folder) == ["lock.source-changed"]
    seal(folder, sources={"mytitan": tree})
    assert codes(folder) == []


def test_the_record_names_no_host_and_is_stable(root: Path) -> None:
    path = root / "lockfiles" / "cpu" / "lock.json"
    record = read_record(path.parent)
    assert record is not None
    assert record_text(record) == path.read_text()
    assert "://" not in path.read_text()
    assert json.loads(path.read_text())["schema"] == 1


def test_pins_are_digested_by_content() -> None:
    markers = marker_environment(load_stack(Path(__file__).parent.parent.parent, "cpu").locked_for)
    digest: Callable[[str], str] = lambda text: requirements_digest(parse_requirements(text, "in", markers))  # noqa: E731
    assert digest("a==1\nb==2\n") == digest("# c\nb==2\n\na==1\n")
    assert digest("a==1\n") != digest("a==2\n")


def test_the_judgement_needs_no_files(make_stack: Maker) -> None:
    folder = small(make_stack, "a==1\n", f"a==1 {HASH}\n")
    stack = load_stack(folder.parent.parent, "small")
    files = read_lock_files(stack)
    shutil.rmtree(folder)
    assert judge_lock(stack, files).verdict == "pass"
