"""Fixtures of all tests."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

pytest_plugins = ["pytester"]

# These run inside the stack's Python (see scripts/test.sh); the controller's has none of its packages.
collect_ignore = [] if importlib.util.find_spec("torch") else ["stackside"]


@pytest.fixture
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder that the code under test uses."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HARNESS_CACHE", str(folder))
    return folder
