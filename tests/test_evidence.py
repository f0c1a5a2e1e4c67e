"""Evidence: written whole, read always, sealed, without secrets."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.evidence import REDACTED, Evidence, new_session_folder, redact, write_json


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    found = Evidence(tmp_path / "run")
    found.observed.mkdir(parents=True)
    found.logs.mkdir()
    return found


def test_session_folders_are_fresh(tmp_path: Path) -> None:
    assert len({new_session_folder(tmp_path) for _ in range(20)}) == 20


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_key_order_does_not_change_a_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": 1, "y": {"b": 1, "a": 2}})
    write_json(tmp_path / "b.json", {"y": {"a": 2, "b": 1}, "x": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_full_precision_and_nan_survive(evidence: Evidence) -> None:
    evidence.write("a.json", {"x": 0.1 + 0.2, "n": float("nan")})
    found = evidence.read("a.json")
    assert found["x"].hex() == (0.1 + 0.2).hex()
    assert found["n"] != found["n"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"a": 1'])
def test_half_a_file_reads_as_no_file(evidence: Evidence, content: bytes) -> None:
    (evidence.folder / "outcome.json").write_bytes(content)
    assert evidence.read("outcome.json") is None


def test_a_half_written_last_row_is_left_out(evidence: Evidence) -> None:
    (evidence.observed / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert evidence.metrics() == [{"step": 1}, {"step": 2}]


def test_no_metrics_are_no_rows(evidence: Evidence) -> None:
    assert evidence.metrics() == []


def test_ranks_come_in_order(evidence: Evidence) -> None:
    for rank in (10, 2, 0):
        evidence.write(f"observed/start-rank{rank}.json", {"rank": rank})
    assert list(evidence.per_rank("start")) == [0, 2, 10]


def test_the_export_is_the_last_step(evidence: Evidence) -> None:
    assert evidence.export() is None
    for name in ("step-2", "step-10", "step-x"):
        (evidence.dump / "checkpoint" / name).mkdir(parents=True)
    assert evidence.export() == evidence.dump / "checkpoint" / "step-10"


def sealed(evidence: Evidence) -> Evidence:
    evidence.write("outcome.json", {"state": "ended"})
    (evidence.logs / "rank0.log").write_text("hello\n")
    evidence.seal()
    return evidence


def test_sealed_evidence_verifies(evidence: Evidence) -> None:
    assert sealed(evidence).verify() == []


def test_a_changed_file_is_named(evidence: Evidence) -> None:
    (sealed(evidence).logs / "rank0.log").write_text("hullo\n")
    assert evidence.verify() == ["logs/rank0.log: changed"]


def test_a_missing_and_an_added_file_are_named(evidence: Evidence) -> None:
    (sealed(evidence).logs / "rank0.log").rename(evidence.logs / "rank9.log")
    assert evidence.verify() == ["logs/rank0.log: missing", "logs/rank9.log: added"]


def test_unsealed_evidence_says_so(evidence: Evidence) -> None:
    with pytest.raises(UserError, match="no manifest"):
        evidence.verify()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "anything"),
        ("AWS_SECRET_ACCESS_KEY", "anything"),
        ("my_api_key", "anything"),
        ("DATABASE_PASSWORD", "anything"),
        ("PLAIN", "prefix hf_abcdefghijklmnopqrstuv suffix"),
        ("PLAIN", "AKIAABCDEFGHIJKLMNOP"),
        ("URL", "https://user:secret@host/path"),
    ],
)
def test_planted_secrets_are_redacted(name: str, value: str) -> None:
    clean = redact({name: value})[name]
    assert REDACTED in clean
    for secret in ("anything", "abcdefghijklmnop", "AKIAABCD", "user:secret"):
        assert secret not in clean


def test_ordinary_variables_are_kept() -> None:
    ordinary = {"PATH": "/usr/bin:/bin", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    assert redact(ordinary) == ordinary


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_no_name_is_ever_lost(variables: dict[str, str]) -> None:
    assert redact(variables).keys() == variables.keys()
