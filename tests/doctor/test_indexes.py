"""pip's and uv's effective indexes, and whether a Neuron package would come from the public one."""

from pathlib import Path

import pytest

from harness.doctor.host import Distribution, Host, Index
from harness.doctor.indexes import NEURON_INDEX, check_indexes, parse_pip, parse_uv, read_indexes
from harness.doctor.report import Line

NEURON_URL = f"https://{NEURON_INDEX}"
OTHER = "https://mirror.example/simple"


def read(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str] | None = None
) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return read_indexes(tmp_path, tmp_path / "home", tmp_path / "venv", variables or {})


def seen(indexes: tuple[Index, ...]) -> set[tuple[str, str, str]]:
    return {(index.tool, index.role, index.url) for index in indexes}


def test_nothing_configured_is_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, {}) == ((), ())


@pytest.mark.parametrize(
    "name",
    [
        "etc/pip.conf",
        "etc/xdg/pip/pip.conf",
        "home/.pip/pip.conf",
        "home/.config/pip/pip.conf",
        "venv/pip.conf",
    ],
)
def test_every_place_of_a_pip_configuration_is_read(tmp_path: Path, name: str) -> None:
    indexes, _ = read(tmp_path, {name: f"[global]\nextra-index-url =\n    {NEURON_URL}\n    {OTHER}\n"})
    assert seen(indexes) == {("pip", "extra", NEURON_URL), ("pip", "extra", OTHER)}
    assert indexes[0].source == str(tmp_path / name)


def test_the_stronger_file_replaces_the_weaker_one(tmp_path: Path) -> None:
    indexes, _ = read(
        tmp_path,
        {
            "etc/pip.conf": f"[global]\nextra-index-url = {NEURON_URL}\n",
            "home/.config/pip/pip.conf": f"[global]\nextra-index-url = {OTHER}\n",
        },
    )
    assert seen(indexes) == {("pip", "extra", OTHER)}


def test_variables_are_stronger_than_files(tmp_path: Path) -> None:
    indexes, _ = read(
        tmp_path,
        {"etc/pip.conf": f"[global]\nindex-url = {OTHER}\n"},
        {"PIP_INDEX_URL": "https://a.example", "UV_INDEX": f"neuron={NEURON_URL} {OTHER}"},
    )
    assert seen(indexes) == {
        ("pip", "default", "https://a.example"),
        ("uv", "extra", NEURON_URL),
        ("uv", "extra", OTHER),
    }


def test_a_file_named_by_a_variable_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.conf"
    path.write_text(f"[install]\nindex-url = {OTHER}\n[global]\nindex-url = https://weaker.example\n")
    indexes, _ = read(tmp_path, {}, {"PIP_CONFIG_FILE": str(path)})
    assert seen(indexes) == {("pip", "default", OTHER)}


def test_a_key_set_twice_in_a_file_is_told() -> None:
    text = f"[global]\nextra-index-url = {NEURON_URL}\nextra-index-url = {OTHER}\n"
    indexes, wrong = parse_pip(text, "pip.conf")
    assert [index.url for index in indexes] == [OTHER]
    assert wrong == ["line 3: `extra-index-url` is set twice, only the last would count"]


@pytest.mark.parametrize("text", ["index-url = x\n", "[global\nindex-url = x\n"])
def test_a_file_that_is_no_configuration_is_told(text: str) -> None:
    indexes, wrong = parse_pip(text, "pip.conf")
    assert indexes == []
    assert "not readable as a pip configuration" in wrong[0]


def test_uv_files_in_both_spellings(tmp_path: Path) -> None:
    text = (
        f'index-url = "{OTHER}"\n[pip]\nextra-index-url = ["{NEURON_URL}"]\n'
        '[[index]]\nname = "a"\nurl = "https://a.example"\n[[index]]\nurl = "https://b.example"\ndefault = true\n'
    )
    indexes, wrong = parse_uv(text, "uv.toml")
    assert wrong == []
    assert [(index.role, index.url) for index in indexes] == [
        ("default", OTHER),
        ("extra", NEURON_URL),
        ("extra", "https://a.example"),
        ("default", "https://b.example"),
    ]
    assert parse_uv("index-url = [", "uv.toml")[1][0].startswith("not valid TOML")
    found, problems = read(tmp_path, {"home/.config/uv/uv.toml": text, "etc/uv/uv.toml": "["})
    assert len(found) == 4
    assert len(problems) == 1


def host(*indexes: Index, installed: tuple[str, ...] = (), problems: tuple[str, ...] = ()) -> Host:
    items = tuple(Distribution(name, "1") for name in installed)
    return Host(indexes=indexes, index_problems=problems, distributions=items)


EXTRA = Index("pip", "extra", NEURON_URL, "/etc/pip.conf")
WANTED = ("torch", "neuronx-cc", "nki")


def codes(lines: list[Line]) -> list[str]:
    return [f"{line.level} {line.code}" for line in lines]


def test_a_stack_without_neuron_packages_needs_no_index() -> None:
    assert codes(check_indexes(host(), ["torch", "numpy"], neuron=False)) == ["skipped indexes"]


def test_a_missing_index_names_what_would_be_a_placeholder() -> None:
    lines = check_indexes(host(), WANTED, neuron=True)
    assert codes(lines) == ["error indexes.no-neuron"]
    assert "neuronx-cc, nki would come from the public index" in lines[0].found
    assert NEURON_INDEX in lines[0].action


def test_the_lock_alone_makes_the_index_needed() -> None:
    assert codes(check_indexes(host(), WANTED, neuron=False)) == ["error indexes.no-neuron"]


def test_without_a_lock_a_neuron_stack_still_needs_it() -> None:
    assert codes(check_indexes(host(), [], neuron=True)) == ["error indexes.no-neuron"]


def test_only_what_is_not_installed_yet_is_in_danger() -> None:
    lines = check_indexes(host(installed=("nki",)), WANTED, neuron=True)
    assert "neuronx-cc would come" in lines[0].found
    all_there = check_indexes(host(installed=("nki", "neuronx-cc")), WANTED, neuron=True)
    assert codes(all_there) == ["warning indexes.no-neuron"]


def test_a_configured_index_is_named() -> None:
    lines = check_indexes(host(EXTRA), WANTED, neuron=True)
    assert codes(lines) == ["ok indexes"]
    assert "/etc/pip.conf" in lines[0].found


def test_the_stack_s_own_index_is_enough_for_what_it_rules() -> None:
    assert codes(check_indexes(host(), WANTED, ["neuronx-cc", "nki"], neuron=True)) == ["ok indexes"]
    partly = check_indexes(host(), WANTED, ["nki"], neuron=True)
    assert codes(partly) == ["error indexes.no-neuron"]
    assert "neuronx-cc would come" in partly[0].found


def test_a_global_index_replaced_by_the_vendor_s_is_an_error_everywhere() -> None:
    replaced = Index("pip", "default", f"{NEURON_URL}/", "/etc/pip.conf")
    for neuron, wanted in ((True, WANTED), (False, ("torch",))):
        lines = check_indexes(host(replaced), wanted, neuron=neuron)
        assert codes(lines) == ["error indexes.replaced"]
        assert "/etc/pip.conf sets pip's default index to the Neuron repository" in lines[0].found
        assert "numpy" in lines[0].expected


def test_a_faulty_file_is_a_warning() -> None:
    lines = check_indexes(host(EXTRA, problems=("/etc/pip.conf: line 3: twice",)), WANTED, neuron=True)
    assert codes(lines) == ["warning indexes.file"]


def test_no_other_index_s_address_is_printed() -> None:
    secret = Index("pip", "default", "https://user:secret@mirror.example/simple", "/etc/pip.conf")
    for line in check_indexes(host(secret, EXTRA), WANTED, neuron=True):
        assert "mirror.example" not in f"{line.found} {line.expected} {line.action}"
