"""Assets made once for all tests that run inside the stack."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def made_assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic assets as recipes use them. Tests read them; none may change them."""
    from harness.stackside.make_assets import make

    folder = tmp_path_factory.mktemp("assets")
    make(folder)
    return folder
