import json
from pathlib import Path
from typing import Any

from harness.report.step_summary import main, summary_lines


def session(runs: Path, name: str, **run: Any) -> None:
    folder = runs / name
    folder.mkdir(parents=True)
    whole = {"recipe": "native", "run": "random-init", "outcome": "passed", "reason": "", "checks": {}, **run}
    (folder / "session.json").write_text(json.dumps({"stack": "cpu", "runs": [whole]}))


def test_every_run_is_a_row_with_its_verdicts(tmp_path: Path) -> None:
    checks = {
        "loss": {"verdict": "pass", "findings": []},
        "keys": {"verdict": "fail", "findings": [{"code": "keys.missing", "message": "a <b> | c\nd"}]},
        "twin": {"verdict": "not-judged", "findings": []},
    }
    session(tmp_path, "20261130-1", checks=checks)
    lines = list(summary_lines(tmp_path))
    assert "### stack cpu, session 20261130-1" in lines
    assert "| native | random-init | passed | ✓ loss ✗ keys ? twin |" in lines
    assert "- native random-init: `keys.missing` a &lt;b> \\| c d" in lines


def test_a_run_that_broke_says_why(tmp_path: Path) -> None:
    session(tmp_path, "1", outcome="infrastructure", reason="the container was killed")
    assert "- native random-init: the container was killed" in list(summary_lines(tmp_path))


def test_sessions_come_in_their_order_and_an_unfinished_one_is_said(tmp_path: Path) -> None:
    session(tmp_path, "2")
    (tmp_path / "1").mkdir()
    lines = list(summary_lines(tmp_path))
    assert lines[0] == "`1` did not end."
    assert "session 2" in lines[1]


def test_nothing_at_all_is_said(tmp_path: Path, capsys: Any) -> None:
    assert main([str(tmp_path / "absent")]) == 0
    assert capsys.readouterr().out == "No session ran.\n"
