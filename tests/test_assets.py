"""Assets: made or fetched once, verified at each use. No network: the Hub is stood for by a local folder."""

import ast
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import asset_set, assets
from harness.asset_set import MANIFEST, AssetSet, open_or_make, stays_inside
from harness.assets import SYNTHETIC, hub, synthetic
from harness.errors import InfrastructureError, UserError

PYTHON = Path("/stack/bin/python")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "org/tiny"


@dataclass
class Done:
    returncode: int = 0
    output: str = ""


@dataclass
class Maker:
    """Stands for the stack's Python: writes small files where the real maker writes its own."""

    result: Done = field(default_factory=Done)
    calls: list[tuple[list[str], dict[str, str], float]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float) -> Done:
        self.calls.append((list(argv), dict(env), timeout))
        folder = Path(argv[3])
        for name in ("c4_test/data.json", "qwen3-tiny/config.json", "qwen3-tiny/model.safetensors"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"content of {name}")
        return self.result


def make(cache: Path, maker: Maker, lock: str = "lock", **options: Any) -> AssetSet:
    return synthetic(PYTHON, lock, cache, maker, **options)


# Synthetic


def test_synthetic_assets_are_made_once_and_reused(tmp_path: Path) -> None:
    maker = Maker()
    first, second = make(tmp_path, maker), make(tmp_path, maker)
    assert len(maker.calls) == 1
    assert first.digest == second.digest
    assert first.folder.parent == tmp_path / "assets"
    assert first.path("qwen3-tiny") == first.folder / "qwen3-tiny"
    assert first.path("c4_test/data.json").read_text() == "content of c4_test/data.json"


def test_the_maker_is_the_module_in_the_stacks_python_with_a_small_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    maker = Maker()
    make(tmp_path, maker)
    ((argv, env, timeout),) = maker.calls
    assert argv[:3] == [str(PYTHON), "-m", "harness.stackside.make_assets"]
    assert argv[4:] == ["--documents=2000", "--seed=0", "--steps=15", "--vocabulary=512"]
    assert timeout > 0
    assert env["HF_HUB_OFFLINE"] == "1"
    assert (Path(env["PYTHONPATH"]) / "harness" / "stackside" / "make_assets.py").is_file()
    assert not {"ATEN_CPU_CAPABILITY", "PYTHONDONTWRITEBYTECODE"} & env.keys()


def test_the_manifest_says_how_they_were_made_and_what_they_hold(tmp_path: Path) -> None:
    made = make(tmp_path, Maker())
    manifest = json.loads((made.folder / MANIFEST).read_text())
    assert manifest["origin"]["kind"] == "synthetic"
    assert manifest["origin"]["lock_digest"] == "lock"
    assert manifest["origin"]["parameters"] == dict(SYNTHETIC)
    assert len(manifest["origin"]["source_digest"]) == 64
    content = b"content of c4_test/data.json"
    expected = {
        "path": "c4_test/data.json",
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    assert expected in manifest["files"]
    assert len(manifest["files"]) == 3


def test_another_lock_another_parameter_and_another_source_are_other_assets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Maker()
    folders = {
        make(tmp_path, maker).folder,
        make(tmp_path, maker, lock="other").folder,
        make(tmp_path, maker, parameters={**SYNTHETIC, "seed": 1}).folder,
    }
    source = tmp_path / "root" / "harness" / "stackside" / "make_assets.py"
    source.parent.mkdir(parents=True)
    source.write_text("# edited")
    monkeypatch.setattr(assets, "package_parent", lambda: tmp_path / "root")
    folders.add(make(tmp_path, maker).folder)
    assert len(folders) == len(maker.calls) == 4


def test_the_digest_does_not_depend_on_the_place_or_the_order_of_parameters(tmp_path: Path) -> None:
    one = make(tmp_path / "a", Maker())
    other = make(tmp_path / "b", Maker(), parameters=dict(reversed(SYNTHETIC.items())))
    assert one.digest == other.digest
    assert one.folder.name == other.folder.name


def test_a_maker_that_fails_leaves_nothing_and_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"exit 3.*no space left"):
        make(tmp_path, Maker(Done(3, "a traceback\nno space left")))
    assert [path for path in (tmp_path / "assets").iterdir() if path.is_dir()] == []
    assert make(tmp_path, Maker()).files


def test_a_maker_that_makes_nothing_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="nothing was made"):
        open_or_make(tmp_path, {"kind": "nothing"}, lambda _: None)


def test_two_at_once_make_them_once(tmp_path: Path) -> None:
    maker = Maker()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(make(tmp_path, maker).digest)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(maker.calls) == 1
    assert len(set(found)) == 1
    assert len(found) == 4


def test_the_makers_sources_are_all_that_it_imports_of_the_project() -> None:
    folder = assets.package_parent() / "harness"
    imported: set[str] = set()
    for source in assets._MAKER_SOURCES:
        for node in ast.walk(ast.parse((folder / source).read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name for name in names if name.startswith("harness")}
    known = {"harness." + source.removesuffix(".py").replace("/", ".") for source in assets._MAKER_SOURCES}
    assert imported <= known


# Verification


def change(path: Path) -> None:
    path.write_text("changed")


def change_keeping_the_size(path: Path) -> None:
    path.write_bytes(b"C" + path.read_bytes()[1:])


def to_a_link(path: Path) -> None:
    aside = path.parent.parent.parent / "aside"
    shutil.move(path, aside)
    path.symlink_to(aside)


def add_beside(path: Path) -> None:
    (path.parent / "other.json").write_text("{}")


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (change, "was changed"),
        (change_keeping_the_size, "was changed"),
        (Path.unlink, "is gone"),
        (to_a_link, "is a symbolic link"),
        (add_beside, r"other\.json: is not one of the assets"),
    ],
)
def test_a_changed_set_names_the_file_and_what_to_do(
    tmp_path: Path, break_it: Callable[[Path], None], words: str
) -> None:
    maker = Maker()
    made = make(tmp_path, maker)
    break_it(made.path("c4_test/data.json"))
    with pytest.raises(UserError, match=words) as raised:
        make(tmp_path, maker)
    message = str(raised.value)
    assert "c4_test" in message
    assert "Next: remove" in message
    assert "\n" not in message
    assert len(maker.calls) == 1


def test_removing_the_folder_as_told_makes_them_again(tmp_path: Path) -> None:
    maker = Maker()
    made = make(tmp_path, maker)
    change(made.path("c4_test/data.json"))
    shutil.rmtree(made.folder)
    assert make(tmp_path, maker).digest == made.digest
    assert len(maker.calls) == 2


@pytest.mark.parametrize("manifest", ["", "{}", '{"format": 2, "origin": {}, "files": []}', None])
def test_a_damaged_manifest_is_one_clear_error(tmp_path: Path, manifest: str | None) -> None:
    made = make(tmp_path, Maker())
    (made.folder / MANIFEST).unlink()
    if manifest is not None:
        (made.folder / MANIFEST).write_text(manifest)
    with pytest.raises(UserError, match="no manifest of assets") as raised:
        make(tmp_path, Maker())
    assert str(made.folder / MANIFEST) in str(raised.value)


@pytest.mark.parametrize("outside", ["../x", "/etc/passwd", "a/../../x", "", "..\\x"])
def test_a_manifest_whose_paths_leave_the_folder_is_refused(tmp_path: Path, outside: str) -> None:
    made = make(tmp_path, Maker())
    manifest = json.loads((made.folder / MANIFEST).read_text())
    manifest["files"][0]["path"] = outside
    (made.folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="no manifest of assets"):
        AssetSet(made.folder)


@pytest.mark.parametrize("name", ["../c4_test", "/etc", "c4_test/other", "qwen3", ""])
def test_a_path_that_is_no_asset_is_refused(tmp_path: Path, name: str) -> None:
    made = make(tmp_path, Maker())
    with pytest.raises(UserError, match="no asset is called") as raised:
        made.path(name)
    assert "c4_test, qwen3-tiny" in str(raised.value)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_a_name_that_stays_inside_does(name: str) -> None:
    if stays_inside(name) and "\0" not in name:
        root = Path("/some/folder")
        assert Path(os.path.normpath(root / name)).is_relative_to(root)


# Hub


@dataclass
class Hub:
    """A Hub cache as the Hub's library lays it out: blobs by content, a snapshot of links to them."""

    library: Path

    @property
    def storage(self) -> Path:
        return self.library / "models--org--tiny"

    @property
    def snapshot(self) -> Path:
        return self.storage / "snapshots" / COMMIT

    def add(self, name: str, content: bytes, *, large: bool = False) -> Path:
        """Store a file and return its blob."""
        git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        blob = self.storage / "blobs" / (hashlib.sha256(content).hexdigest() if large else git)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        link = self.snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
        return blob

    def refer(self, name: str) -> None:
        (self.storage / "refs").mkdir(exist_ok=True)
        (self.storage / "refs" / name).write_text(COMMIT)


@pytest.fixture
def stored(tmp_path: Path) -> Hub:
    """A small model in a Hub cache."""
    stand_in = Hub(tmp_path / "library")
    stand_in.add("config.json", b'{"model_type": "qwen3"}')
    stand_in.add("tokenizer.json", b"{}")
    stand_in.add("model.safetensors", b"weights", large=True)
    stand_in.add("README.md", b"read me")
    stand_in.refer("main")
    return stand_in


def fetch(cache: Path, stand_in: Hub, revision: str = COMMIT, **options: Any) -> AssetSet:
    return hub(REPO, revision, cache, **{"offline": True, "hub_cache": stand_in.library, **options})


def test_hub_files_become_files_of_their_own(tmp_path: Path, stored: Hub) -> None:
    fetched = fetch(tmp_path, stored)
    assert [file.path for file in fetched.files] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert not any(path.is_symlink() for path in fetched.folder.rglob("*"))
    assert fetched.path("model.safetensors").read_bytes() == b"weights"
    assert fetched.origin["repo"] == REPO
    assert fetched.origin["revision"] == COMMIT


def test_once_here_the_hub_is_not_asked_again(tmp_path: Path, stored: Hub) -> None:
    first = fetch(tmp_path, stored)
    shutil.rmtree(stored.library)
    second = fetch(tmp_path, stored, offline=False)
    assert second.digest == first.digest


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, stored: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_disk(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", another_disk)
    assert fetch(tmp_path, stored).path("model.safetensors").read_bytes() == b"weights"


@pytest.mark.parametrize("revision", ["main", "v1.0", COMMIT[:7], COMMIT.upper(), COMMIT + "0", ""])
def test_a_revision_that_can_move_is_refused(tmp_path: Path, stored: Hub, revision: str) -> None:
    with pytest.raises(UserError) as raised:
        fetch(tmp_path, stored, revision, where="lockfiles/trn2/stack.yaml: assets.models.published.revision")
    message = str(raised.value)
    assert message.startswith("lockfiles/trn2/stack.yaml: assets.models.published.revision: ")
    assert repr(revision) in message
    assert "is not a commit" in message
    assert "Write" in message
    assert not (tmp_path / "assets").exists()


def test_a_branch_is_refused_with_the_commit_it_is_today(tmp_path: Path, stored: Hub) -> None:
    with pytest.raises(UserError, match=f"it is {COMMIT} today. Write that."):
        fetch(tmp_path, stored, "main")


def test_online_the_hub_is_asked_what_a_branch_is_today(
    tmp_path: Path, stored: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    class Information:
        sha = "f" * 40

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: Information())
    with pytest.raises(UserError, match=f"it is {'f' * 40} today"):
        fetch(tmp_path, stored, "main", offline=False)


def test_a_hub_that_cannot_be_asked_changes_only_the_message(
    tmp_path: Path, stored: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", unreachable)
    with pytest.raises(UserError, match="Write that"):
        fetch(tmp_path, stored, "main", offline=False)


def test_what_is_not_in_the_hub_cache_is_one_clear_error(tmp_path: Path, stored: Hub) -> None:
    with pytest.raises(InfrastructureError, match=f"hf download {REPO} --revision {'f' * 40}"):
        fetch(tmp_path, stored, "f" * 40)


def test_a_wrong_repository_name_is_one_clear_error(tmp_path: Path, stored: Hub) -> None:
    with pytest.raises(UserError, match="is not the name of a repository"):
        hub("a/b/c", COMMIT, tmp_path, offline=True, hub_cache=stored.library)


@pytest.mark.parametrize("pattern", ["*.bin", "pytorch_model.pt", "*.py", "x/*.PKL"])
def test_patterns_that_ask_for_pickles_or_code_are_refused(tmp_path: Path, stored: Hub, pattern: str) -> None:
    with pytest.raises(UserError, match="pickles and code are refused") as raised:
        fetch(tmp_path, stored, allow_patterns=["*.json", pattern])
    assert pattern in str(raised.value)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "modeling_tiny.py", "training_args.pt"])
def test_pickles_and_code_that_a_wide_pattern_selects_are_refused(
    tmp_path: Path, stored: Hub, name: str
) -> None:
    stored.add(name, b"code")
    assert name not in [file.path for file in fetch(tmp_path, stored).files]
    with pytest.raises(UserError, match="pickles and code are refused") as raised:
        fetch(tmp_path, stored, allow_patterns=["*"])
    assert name in str(raised.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_configuration_that_asks_for_remote_code_is_refused(tmp_path: Path, stored: Hub, name: str) -> None:
    (stored.snapshot / name).unlink(missing_ok=True)
    stored.add(name, b'{"auto_map": {"AutoConfig": "other/repo--configuration.Config"}}')
    with pytest.raises(UserError, match="`auto_map` asks for code") as raised:
        fetch(tmp_path, stored)
    assert name in str(raised.value)


def test_a_configuration_that_is_no_json_is_refused(tmp_path: Path, stored: Hub) -> None:
    stored.add("generation_config.json", b"{")
    with pytest.raises(UserError, match=r"generation_config\.json: not valid JSON"):
        fetch(tmp_path, stored)


def test_a_link_out_of_the_hub_cache_is_refused(tmp_path: Path, stored: Hub) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (stored.snapshot / "vocab.json").symlink_to(secret)
    with pytest.raises(UserError, match=r"vocab\.json: leads to .*secret\.json"):
        fetch(tmp_path, stored)


def test_a_link_to_a_folder_is_refused(tmp_path: Path, stored: Hub) -> None:
    (stored.snapshot / "folder.json").symlink_to(stored.storage / "blobs")
    with pytest.raises(UserError, match=r"folder\.json: leads to"):
        fetch(tmp_path, stored)


@pytest.mark.parametrize("large", [True, False])
def test_a_blob_that_is_not_its_name_is_refused(tmp_path: Path, stored: Hub, large: bool) -> None:
    blob = stored.add("extra.safetensors", b"as the Hub gave it", large=large)
    blob.write_bytes(b"something else")
    with pytest.raises(UserError, match="is not what the Hub gave") as raised:
        fetch(tmp_path, stored)
    assert f"remove {blob}" in str(raised.value)


def test_a_changed_hub_file_is_found_at_the_next_use(tmp_path: Path, stored: Hub) -> None:
    change(fetch(tmp_path, stored).path("config.json"))
    with pytest.raises(UserError, match=r"config\.json: was changed"):
        fetch(tmp_path, stored)


def test_patterns_that_select_nothing_are_refused(tmp_path: Path, stored: Hub) -> None:
    with pytest.raises(UserError, match=r"no file matches \*\.model"):
        fetch(tmp_path, stored, allow_patterns=["*.model"])


def test_a_file_with_the_manifests_name_is_refused(tmp_path: Path, stored: Hub) -> None:
    stored.add(asset_set.MANIFEST, b"{}")
    with pytest.raises(UserError, match="keeps its own"):
        fetch(tmp_path, stored)


def test_other_patterns_are_another_set(tmp_path: Path, stored: Hub) -> None:
    tokenizer = fetch(tmp_path, stored, allow_patterns=["tokenizer.json"])
    assert [file.path for file in tokenizer.files] == ["tokenizer.json"]
    assert tokenizer.folder != fetch(tmp_path, stored).folder
