"""What runs read besides code: corpus, tokenizer, checkpoints. Made on the spot, or fetched from the Hub.

Both ways give the same thing, an `AssetSet`: files in the harness's cache, verified by content at each use.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Protocol

from harness.asset_set import MANIFEST, AssetSet, content_digest, file_sha256, open_or_make, stays_inside
from harness.errors import InfrastructureError, UserError
from harness.project import package_parent

__all__ = ["HUB_PATTERNS", "SYNTHETIC", "AssetSet", "Completed", "RunProcess", "hub", "synthetic"]

HUB_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt")
"""What is fetched of a model repository: weights as safetensors, configuration, tokenizer, chat template."""
SYNTHETIC: Mapping[str, int] = {"documents": 2000, "vocabulary": 512, "steps": 15, "seed": 0}
"""Options of the maker of synthetic assets."""

_MAKER = "harness.stackside.make_assets"
_MAKER_SOURCES = ("stackside/make_assets.py",)
_MAKER_SECONDS = 600.0
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Pickles run code when they are read; the rest is code.
_REFUSED = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".h5", ".msgpack", ".py", ".pyc", ".so", ".sh"}
_LOOKUP_SECONDS = 10.0


class Completed(Protocol):
    """How a process ended."""

    @property
    def returncode(self) -> int:
        """Exit status; negative for a signal."""

    @property
    def output(self) -> str:
        """Standard output and error together."""


class RunProcess(Protocol):
    """Runs `argv` with exactly the environment `env` for at most `timeout` seconds."""

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout: float) -> Completed:
        """Return how it ended."""


def synthetic(
    stack_python: Path,
    lock_digest: str,
    cache: Path,
    run_process: RunProcess,
    *,
    parameters: Mapping[str, int] = SYNTHETIC,
) -> AssetSet:
    """Return the assets that `make_assets` makes with the stack's Python; made now if they are not in `cache`.

    Their key is made of the maker's source, the stack's lock and the parameters. Raises
    `InfrastructureError` if making fails, `UserError` if a file was changed since.
    """
    sources = [package_parent() / "harness" / name for name in _MAKER_SOURCES]
    origin = {
        "kind": "synthetic",
        "maker": _MAKER,
        "source_digest": content_digest([hashlib.sha256(path.read_bytes()).hexdigest() for path in sources]),
        "lock_digest": lock_digest,
        "parameters": dict(parameters),
    }

    def make(folder: Path) -> None:
        options = [f"--{name}={value}" for name, value in sorted(parameters.items())]
        argv = [str(stack_python), "-m", _MAKER, str(folder), *options]
        done = run_process(argv, env=_maker_environment(cache), timeout=_MAKER_SECONDS)
        if done.returncode != 0:
            last = " | ".join(done.output.strip().splitlines()[-5:])
            raise InfrastructureError(f"{_MAKER} failed (exit {done.returncode}): {last}")

    return open_or_make(cache, origin, make)


def _maker_environment(cache: Path) -> dict[str, str]:
    """A small environment: whatever else is set must not change the bytes that are made."""
    kept = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HF_HUB_OFFLINE": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(package_parent()),
        "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
    }


def hub(
    repo: str,
    revision: str,
    cache: Path,
    *,
    offline: bool,
    allow_patterns: Sequence[str] = HUB_PATTERNS,
    hub_cache: Path | None = None,
    where: str = "revision",
) -> AssetSet:
    """Return the files of a Hub model repository at one commit; fetched now if they are not in `cache`.

    Once here they are used without any network. With `offline` nothing is fetched, but what the Hub
    library's own cache holds is taken: `hub_cache`, by default where that library keeps it. `where` names
    the file and key that hold the revision, for the messages. Raises `UserError` for a revision that is no
    40-hex commit, a pickle or code among the files, remote code in a configuration, or a changed file; and
    `InfrastructureError` if the files cannot be had.
    """
    from huggingface_hub import constants

    library = Path(constants.HF_HUB_CACHE) if hub_cache is None else hub_cache
    _require_commit(repo, revision, where, library, offline)
    for pattern in allow_patterns:
        _require_harmless(pattern, f"{where}: pattern {pattern!r} of {repo}")
    origin = {"kind": "hub", "repo": repo, "revision": revision, "allow_patterns": sorted(allow_patterns)}

    def make(folder: Path) -> None:
        snapshot = _snapshot(repo, revision, library, offline, allow_patterns)
        _take_over(snapshot, allow_patterns, folder)

    return open_or_make(cache, origin, make)


def _require_commit(repo: str, revision: str, where: str, library: Path, offline: bool) -> None:
    if _COMMIT.fullmatch(revision):
        return
    today = _resolved_today(repo, revision, library, offline)
    what = f"it is {today} today. Write that." if today else f"Write the 40 hex digits of a commit of {repo}."
    raise UserError(f"{where}: {revision!r} of {repo} is not a commit and can move; {what}")


def _resolved_today(repo: str, revision: str, library: Path, offline: bool) -> str | None:
    """Return the commit that a branch or tag means now, from the Hub or its local cache, if one can tell."""
    from huggingface_hub import HfApi

    if not offline:
        # Only to make the message better: whatever goes wrong, the revision is refused all the same.
        with contextlib.suppress(Exception):
            return HfApi().model_info(repo, revision=revision, timeout=_LOOKUP_SECONDS).sha
    reference = library / f"models--{repo.replace('/', '--')}" / "refs" / revision
    if stays_inside(revision) and reference.is_file():
        found = reference.read_text(encoding="utf-8", errors="replace").strip()
        return found if _COMMIT.fullmatch(found) else None
    return None


def _require_harmless(name: str, shown: str) -> None:
    if PurePosixPath(name).suffix.lower() in _REFUSED:
        raise UserError(f"{shown}: pickles and code are refused, only safetensors and data are taken.")


def _snapshot(repo: str, revision: str, library: Path, offline: bool, patterns: Sequence[str]) -> Path:
    """Return the folder of one commit in the Hub library's cache, complete for `patterns`."""
    from httpx2 import HTTPError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            repo,
            revision=revision,
            cache_dir=library,
            local_files_only=offline,
            allow_patterns=list(patterns),
        )
    except HFValidationError as error:
        raise UserError(f"{repo!r} is not the name of a repository: {error}") from None
    except LocalEntryNotFoundError as error:
        reason = str(error).splitlines()[0]
        raise InfrastructureError(
            f"{repo} at {revision} is not complete in {library} and cannot be fetched: {reason} "
            f"Next: once, with network: hf download {repo} --revision {revision}"
        ) from None
    except (OSError, HTTPError) as error:
        raise InfrastructureError(f"{repo} at {revision} cannot be fetched: {error}") from None
    return Path(folder)


def _take_over(snapshot: Path, patterns: Sequence[str], target: Path) -> None:
    """Put the snapshot's files into `target` as files of their own: hard links, copies on another disk."""
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

    storage = snapshot.parent.parent.resolve()
    names = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if not _folder(path))
    chosen = list(filter_repo_objects(names, allow_patterns=list(patterns)))
    if not chosen:
        raise UserError(f"{snapshot}: no file matches {', '.join(patterns)}. Next: look at the patterns.")
    for name in chosen:
        shown, source = snapshot / name, (snapshot / name).resolve()
        _require_harmless(name, str(shown))
        if name == MANIFEST:
            raise UserError(
                f"{shown}: the harness keeps its own {MANIFEST} there. Next: narrow the patterns."
            )
        if not source.is_relative_to(storage) or not source.is_file():
            raise UserError(f"{shown}: leads to {source}, which is no file of {storage}. Next: remove it.")
        _require_blob(source, shown)
        _require_no_remote_code(source, shown)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            (target / name).hardlink_to(source)
        except OSError:
            shutil.copyfile(source, target / name)


def _folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _require_blob(source: Path, shown: Path) -> None:
    """The Hub library names its blobs by content: SHA-256 for large files, git's object id for small ones."""
    if re.fullmatch(r"[0-9a-f]{64}", source.name):
        found = file_sha256(source)
    elif _COMMIT.fullmatch(source.name):
        content = source.read_bytes()
        found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        return
    if found != source.name:
        raise UserError(
            f"{shown}: is not what the Hub gave: its digest is {found}, expected {source.name}. "
            f"Next: remove {source} and fetch it again."
        )


def _require_no_remote_code(source: Path, shown: Path) -> None:
    if not shown.name.endswith("config.json"):
        return
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{shown}: not valid JSON: {error}") from None
    if isinstance(content, dict) and "auto_map" in content:
        raise UserError(f"{shown}: `auto_map` asks for code from the Hub; such models are refused.")
