"""The override check (case R06): exactly one replacement per layer, and four accounts that agree."""

import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.overrides import check_overrides

NAME = "rope_override.nki_rope"

Record = dict[str, Any]


def fqns(layers: int) -> list[str]:
    return [f"layers.{layer}.attention.rope" for layer in range(layers)]


def good(layers: int = 3, prefix: str = "model_spec.model.") -> Record:
    return {
        "requested": [NAME],
        "form": "module.function",
        "factory_calls": layers,
        "log_lines": [
            {"override": NAME, "fqn": prefix + fqn, "from": "CosSinRoPE.Config", "to": "NKIRoPE.Config"}
            for fqn in fqns(layers)
        ],
        "built": [{"fqn": fqn, "type": "NKIRoPE"} for fqn in fqns(layers)],
        "targets": fqns(layers),
    }


def kernel(layers: int = 3) -> Record:
    return {"steps": [{"step": 1, "forward": dict.fromkeys(fqns(layers), 1), "backward": {}}]}


def judged(record: Record, **options: Any) -> CheckResult:
    return check_overrides(record, **{"requested": [NAME], **options})


def codes(result: CheckResult) -> set[str]:
    return {finding.code for finding in result.findings}


def message(result: CheckResult, code: str) -> str:
    return next(finding.message for finding in result.findings if finding.code == code)


@pytest.mark.parametrize("prefix", ["model_spec.model.", "model.", ""])
@pytest.mark.parametrize("layers", [1, 3, 36])
def test_one_per_layer_passes_whatever_path_torchtitan_logs(prefix: str, layers: int) -> None:
    result = judged(good(layers, prefix), kernel=kernel(layers))
    assert result.verdict is Verdict.PASS, result.findings
    assert f"{layers} modules replaced by NKIRoPE" in result.facts[0]
    assert f"each of the {layers} replaced modules ran in the first step" in result.facts[1]


def test_the_older_decorators_names_pass_too() -> None:
    record = good() | {"requested": ["rope_override"], "form": "module"}
    for line in record["log_lines"]:
        line["override"] = "nki_rope"
    assert judged(record, requested=["rope_override"]).verdict is Verdict.PASS


def test_an_override_that_matches_nothing_fails() -> None:
    record = good(36) | {"factory_calls": 0, "log_lines": [], "built": []}
    result = judged(record)
    assert codes(result) == {"overrides.none"}
    assert f"override {NAME}: expected 36 modules, replaced 0" in message(result, "overrides.none")
    assert "after the model was built" in message(result, "overrides.none")


def test_a_patch_after_the_build_is_seen_on_the_built_model() -> None:
    """The case's own input: instances keep the class they were built from."""
    lib = types.SimpleNamespace(RMSNorm=type("RMSNorm", (), {}))
    model = {f"layers.{index}.norm": lib.RMSNorm() for index in range(3)}
    lib.RMSNorm = type("NkiRMSNorm", (), {})
    built = [{"fqn": fqn, "type": "NkiRMSNorm"} for fqn, one in model.items() if type(one) is lib.RMSNorm]
    assert built == []
    record = good() | {"targets": list(model), "built": built}
    assert codes(judged(record)) == {"overrides.none", "overrides.disagree"}


def test_24_of_36_fails_and_names_the_missing() -> None:
    record = good(36)
    record["built"] = record["built"][:24]
    record["log_lines"] = record["log_lines"][:24]
    record["factory_calls"] = 24
    result = judged(record)
    assert codes(result) == {"overrides.partial"}
    text = message(result, "overrides.partial")
    assert "expected 36 modules, replaced 24; missing: " in text
    assert "layers.24.attention.rope" in text
    assert text.endswith("and 8 more")
    assert len(result.findings[0].data["missing"]) == 12


def test_an_extra_module_fails() -> None:
    record = good(4) | {"targets": fqns(3)}
    result = judged(record)
    assert codes(result) == {"overrides.extra"}
    assert "layers.3.attention.rope" in message(result, "overrides.extra")


def test_the_right_number_of_the_wrong_modules_fails() -> None:
    record = good(3)
    record["built"][2]["fqn"] = "vision.rope"
    record["log_lines"][2]["fqn"] = "model_spec.model.vision.rope"
    assert codes(judged(record)) == {"overrides.partial", "overrides.extra"}


@pytest.mark.parametrize("account", ["factory_calls", "log_lines", "built"])
def test_accounts_that_disagree_fail(account: str) -> None:
    record = good(3)
    record[account] = 2 if account == "factory_calls" else record[account][:2]
    assert "overrides.disagree" in codes(judged(record))


def test_a_module_replaced_twice_fails() -> None:
    record = good(3)
    record["log_lines"][2] = record["log_lines"][1]
    assert codes(judged(record)) == {"overrides.twice", "overrides.disagree"}


def test_a_log_without_a_build_and_the_reverse_fail() -> None:
    record = good(3)
    record["log_lines"][0]["fqn"] = "model_spec.model.other.rope"
    result = judged(record)
    assert codes(result) == {"overrides.disagree"}
    assert len(result.findings) == 2


def test_a_model_without_targets_is_no_pass() -> None:
    record = good(0)
    assert codes(judged(record)) == {"overrides.no-targets", "overrides.none"}


def test_an_override_that_nobody_asked_for_fails() -> None:
    record = good(3)
    record["log_lines"][0]["override"] = "other.thing"
    result = judged(record)
    assert codes(result) == {"overrides.requested"}
    assert "other.thing" in message(result, "overrides.requested")


def test_torchtitan_must_have_been_given_what_was_asked_for() -> None:
    result = judged(good() | {"requested": []})
    assert codes(result) == {"overrides.requested"}
    assert NAME in message(result, "overrides.requested")


def test_no_override_asked_for_must_leave_none() -> None:
    none = good(3) | {"requested": [], "factory_calls": 0, "log_lines": [], "built": []}
    result = judged(none, requested=[])
    assert result.verdict is Verdict.PASS
    assert result.facts == ("no override was asked for, none was made",)
    left = judged(good(3) | {"requested": []}, requested=[])
    assert codes(left) == {"overrides.unasked"}
    assert "3 log lines, 3 factory calls, 3 replaced modules" in message(left, "overrides.unasked")


def test_a_replaced_module_that_never_runs_fails() -> None:
    record = kernel(3)
    record["steps"][0]["forward"].pop("layers.1.attention.rope")
    result = judged(good(3), kernel=record)
    assert codes(result) == {"overrides.not-hit"}
    assert "1 of 3 replaced modules did not run in the first step: layers.1.attention.rope" in message(
        result, "overrides.not-hit"
    )
    assert codes(judged(good(3), kernel={"steps": []})) == {"overrides.not-hit"}


def test_a_compiled_graph_is_judged_by_its_total() -> None:
    assert judged(good(3), kernel={"steps": [{"forward": {"(compiled)": 3}}]}).verdict is Verdict.PASS
    assert "overrides.not-hit" in codes(judged(good(3), kernel={"steps": [{"forward": {"(compiled)": 2}}]}))


@pytest.mark.parametrize("key", ["requested", "targets", "built", "log_lines", "factory_calls", "form"])
def test_a_record_without_a_key_fails(key: str) -> None:
    record = good()
    del record[key]
    result = judged(record)
    assert codes(result) == {"overrides.record"}
    assert key in message(result, "overrides.record")


@given(st.sets(st.integers(0, 11)), st.sets(st.integers(0, 11)))
def test_it_passes_exactly_if_the_built_modules_are_the_targets(targets: set[int], built: set[int]) -> None:
    record = good(12)
    record["targets"] = [fqns(12)[index] for index in sorted(targets)]
    for key in ("built", "log_lines"):
        record[key] = [record[key][index] for index in sorted(built)]
    record["factory_calls"] = len(built)
    passed = judged(record).verdict is Verdict.PASS
    assert passed == (bool(targets) and targets == built)
