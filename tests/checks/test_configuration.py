"""The configuration check."""

from typing import Any

import pytest

from harness.checks.configuration import check_configuration
from harness.checks.finding import Verdict
from harness.stackside.configuration import MISSING, look_up

RESOLVED = {
    "training": {"steps": 10, "local_batch_size": 1},
    "compile": {"enable": False},
    "override": {"imports": ["a.b"]},
    "optimizer": {"param_groups": [{"lr": 8e-4}]},
    "checkpoint": {"initial_load_path": None},
}
ASKED = {
    "training.steps": 10,
    "compile.enable": False,
    "override.imports": ["a.b"],
    "optimizer.param_groups.0.lr": 8e-4,
    "checkpoint.initial_load_path": None,
}


def test_what_was_asked_passes() -> None:
    result = check_configuration(RESOLVED, ASKED)
    assert result.verdict is Verdict.PASS
    assert "5 values" in result.facts[0]


@pytest.mark.parametrize(
    ("key", "asked", "code"),
    [
        ("training.steps", 9, "configuration.differs"),
        ("compile.enable", True, "configuration.differs"),
        ("compile.enable", 0, "configuration.differs"),
        ("training.local_batch_size", True, "configuration.differs"),
        ("override.imports", [], "configuration.differs"),
        ("override.imports", ["a.b", "c.d"], "configuration.differs"),
        ("checkpoint.initial_load_path", "/x", "configuration.differs"),
        ("training.stops", 10, "configuration.missing"),
        ("optimizer.param_groups.1.lr", 8e-4, "configuration.missing"),
        ("training.steps.deeper", 1, "configuration.missing"),
    ],
)
def test_anything_else_fails_and_names_the_key(key: str, asked: Any, code: str) -> None:
    result = check_configuration(RESOLVED, {**ASKED, key: asked})
    assert [finding.code for finding in result.findings] == [code]
    assert key in result.findings[0].message


def test_nothing_asked_verifies_nothing() -> None:
    assert [f.code for f in check_configuration(RESOLVED, {}).findings] == ["configuration.empty"]


def test_an_empty_configuration_fails() -> None:
    assert len(check_configuration({}, ASKED).findings) == len(ASKED)


def test_a_string_is_no_list() -> None:
    assert look_up({"a": "xyz"}, "a.0") == MISSING
