"""Request files and records of calls inside the stack."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.stackside.records import run_request, write_record


def test_a_record_is_written_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_record(tmp_path / "deep" / "a.json", {"b": 1, "a": [2]})
    assert json.loads((tmp_path / "deep" / "a.json").read_text()) == {"a": [2], "b": 1}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.json"]


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_record(path, {"old": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_record(path, {"new": float("nan")})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_observations_may_hold_nan(tmp_path: Path) -> None:
    write_record(tmp_path / "a.json", {"x": float("nan")}, allow_nan=True)
    assert "NaN" in (tmp_path / "a.json").read_text()


def test_a_request_file_is_run(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    (tmp_path / "request.json").write_text('{"a": 1}')
    assert run_request("some.module", seen.append, [str(tmp_path / "request.json")]) == 0
    assert seen == [{"a": 1}]


@pytest.mark.parametrize("arguments", [[], ["one", "two"]])
def test_a_wrong_call_says_how_it_is_called(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run_request("some.module", lambda request: None, arguments) == 2
    assert "usage: python -m some.module REQUEST.json" in capsys.readouterr().err
