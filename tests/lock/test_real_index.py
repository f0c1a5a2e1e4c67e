"""The machine's own index, with two small packages and one real placeholder."""

from pathlib import Path

import pytest

from harness.errors import UserError
from harness.lock.check import check_lock
from harness.lock.relock import lock_stack
from harness.stack import load_stack
from tests.lock.conftest import Maker


def test_two_small_packages_are_locked_without_a_host(make_stack: Maker, root: Path) -> None:
    controller = (root / "lockfiles" / "controller" / "requirements.lock").read_text().splitlines()
    pinned = [line.split(" ")[0] for line in controller if line.startswith(("iniconfig==", "pluggy=="))]
    project = make_stack("\n".join(pinned) + "\n")
    (report,) = lock_stack(project, "small").parts
    assert (report.part, report.state) == ("packages", "resolved")
    stack = load_stack(project, "small")
    assert "://" not in stack.lock.read_text() + (stack.folder / "lock.json").read_text()
    assert check_lock(stack).findings == ()


def test_a_neuron_package_from_the_public_index_is_refused(make_stack: Maker) -> None:
    project = make_stack("nki\n")
    with pytest.raises(UserError, match=r"nki 0\.0\.1 from the default index would have been installed"):
        lock_stack(project, "small")
    assert not load_stack(project, "small").lock.exists()
