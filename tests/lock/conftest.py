"""Fixtures of the lock tests: a loopback server, small stacks that resolve from it, and nothing of this machine."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.lock.site import Server, Site


@pytest.fixture
def site() -> Iterator[Site]:
    """A server on the loopback address, stopped at the end."""
    server = Server()
    yield server.site
    server.close()


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache folder of uv for the whole run: addresses with random ports never meet again."""
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture
def plain_uv(uv_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv without the machine's settings, quick to give up."""
    for name in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


STACK = {
    "name": "small",
    "summary": "a small stack",
    "device": "cpu",
    "device_layer": "cpu",
    "python": ">=3.11",
    "ranks": 1,
    "launcher": "fork",
    "trainer": "torchtitan.train",
    "environment": {"OMP_NUM_THREADS": "1"},
    "profile": {
        "name": "tiny",
        "steps": 1,
        "seq_len": 8,
        "compute_dtype": "float32",
        "seed_checkpoint": True,
        "reference": "training",
        "timeout_seconds": 10,
    },
    "assets": {"kind": "synthetic", "models": {}},
    "locked_for": {"python": "3.11", "platform": "x86_64-unknown-linux-gnu"},
}
"""The least that a stack file needs."""

Maker = Callable[..., Path]


@pytest.fixture
def make_stack(tmp_path: Path) -> Maker:
    """Return a function that writes a project with one stack and returns the project's folder."""

    def make(requirements: str, *, name: str = "small", **fields: object) -> Path:
        folder = tmp_path / "lockfiles" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stack.yaml").write_text(yaml.safe_dump({**STACK, "name": name, **fields}, sort_keys=False))
        (folder / "requirements.in").write_text(requirements)
        return tmp_path

    return make
