"""The kernel check on the records of a training run, one per rank."""

from typing import Any

import pytest

from harness.checks.finding import CheckResult, Verdict
from harness.checks.kernel import check_training
from tests.checks.kernel_examples import (
    SALT,
    SITES,
    SOURCE,
    Break,
    Record,
    backend,
    both,
    change,
    codes,
    lines,
    receipt,
    training,
    update,
)


def judged(*records: Record, **options: Any) -> CheckResult:
    return check_training(records, **{"sites": SITES, "steps": 3, "ranks": len(records), **options})


def test_good_records_of_two_ranks_pass() -> None:
    result = judged(training(0), training(1))
    assert result.verdict is Verdict.PASS, result.findings
    text = "\n".join(result.facts)
    assert "rank 1: 6 runs forward and 6 backward over 3 of 3 steps and 2 sites; 12 launches of" in text
    assert "verified on interpreter only" in text


BROKEN_TRAINING: dict[str, tuple[Break, str, str]] = {
    "fallback": (
        update("launches", count=0, sources=[], signatures=[]),
        "kernel.no-launch",
        "the op ran 12 times, but no kernel was launched",
    ),
    "launch missing": (
        both(change("launches", "count", to=11), change("launches", "signatures", 0, "count", to=5)),
        "kernel.launch-count",
        "11 launches for 12 runs",
    ),
    "backward by the forward kernel": (
        change("launches", "signatures", 1, "args", 4, "value", to=False),
        "kernel.direction",
        "launched 12 times forward and 0 backward",
    ),
    "other kernel": (change("launches", "sources", to=[SOURCE, "/x/y.py:1"]), "kernel.launch-source", "/x/y.py:1"),
    "sentinel": (change("launches", "sentinels", to=1), "kernel.sentinel", "1 elements"),
    "sentinel unknown": (change("launches", "sentinels", to=None), "kernel.sentinel", "None elements"),
    "error": (change("launches", "errors", to=["E: m"]), "kernel.raised", "E: m"),
    "instructions": (change("launches", "signatures", 0, "ops", "memset", to=1), "kernel.instructions", "1 memset"),
    "cores": (change("lnc", to=2), "kernel.arguments", "on 1 cores, the run has LNC=2"),
    "step missing": (lambda record: record["steps"].pop(), "kernel.steps", "steps [1, 2] recorded, expected 1 to 3"),
    "no step": (change("steps", to=[]), "kernel.steps", "steps [] recorded"),
    "layer silent": (
        change("steps", 1, "forward", SITES[1], to=0),
        "kernel.site",
        "rank 0 step 2 forward: expected 1 per site, got layers.1.attention.rope 0",
    ),
    "count": (
        change("steps", 1, "backward", SITES[1], to=2),
        "kernel.count",
        "step 2 backward: the op ran 3 times, expected 2",
    ),
    "one layer does another's work": (
        change("steps", 0, "forward", to={SITES[0]: 2}),
        "kernel.site",
        "layers.0.attention.rope 2, layers.1.attention.rope 0",
    ),
    "stranger": (change("steps", 0, "forward", "layers.9", to=1), "kernel.site", "unexpected sites layers.9"),
    "unnamed": (change("steps", 0, "forward", to={"(unnamed)": 2}), "kernel.site-unnamed", "without a name"),
    "rank": (change("rank", to=3), "kernel.ranks", "ranks [3], expected ranks 0 to 0"),
    "unreadable": (lambda record: record.pop("steps"), "kernel.record", "rank record 0 has no 'steps'"),
    "bool as number": (change("launches", "count", to=True), "kernel.record", "launches.count is bool"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_TRAINING)
def test_a_broken_training_record_fails_with_its_code(name: str) -> None:
    breaks, code, text = BROKEN_TRAINING[name]
    record = training()
    breaks(record)
    result = judged(record)
    assert result.verdict is Verdict.FAIL
    assert code in codes(result)
    assert text in lines(result, code)


def test_a_missing_rank_and_no_rank_fail() -> None:
    assert codes(judged(training(0), ranks=2)) == {"kernel.ranks"}
    assert "kernel.ranks" in codes(check_training([], sites=SITES, steps=3, ranks=2))


def test_nothing_expected_is_no_pass() -> None:
    assert "kernel.empty" in codes(judged(training(), sites=[]))


def test_microbatches_and_recomputation_multiply_the_calls() -> None:
    record = training()
    for step in record["steps"]:
        step["forward"] = dict.fromkeys(SITES, 4)
        step["backward"] = dict.fromkeys(SITES, 2)
    record["launches"]["count"] = 36
    record["launches"]["signatures"][0]["count"] = 24
    record["launches"]["signatures"][1]["count"] = 12
    assert judged(record, microbatches=2, recomputed=True).verdict is Verdict.PASS
    assert codes(judged(record, microbatches=2)) == {"kernel.count", "kernel.site"}


def test_a_compiled_graph_is_judged_by_its_total() -> None:
    record = training()
    for step in record["steps"]:
        step["forward"] = step["backward"] = {"(compiled)": 2}
    assert judged(record).verdict is Verdict.PASS
    record["steps"][0]["forward"] = {"(compiled)": 1}
    assert "kernel.count" in codes(judged(record))


def test_runs_outside_the_steps_are_a_fact_and_need_their_launches() -> None:
    record = training()
    record["outside"]["forward"] = {SITES[0]: 1}
    assert "kernel.launch-count" in codes(judged(record))
    record["launches"]["count"] += 1
    record["launches"]["signatures"][0]["count"] += 1
    result = judged(record)
    assert result.verdict is Verdict.PASS
    assert any("outside the steps the op ran" in fact for fact in result.facts)


def test_a_receipt_is_demanded_with_a_salt_and_on_a_device() -> None:
    assert codes(judged(training(), salt=SALT)) == {"kernel.receipt"}
    record = training()
    record["receipt"] = receipt(1)
    assert judged(record, salt=SALT).verdict is Verdict.PASS
    record["receipt"]["values"] = [float(SALT)]
    assert codes(judged(record, salt=SALT)) == {"kernel.receipt"}
    device = training() | {"backend": backend("aws-nki", "/dev/neuron0"), "provider": "torch_neuronx.nki_op"}
    assert codes(judged(device)) == {"kernel.receipt"}


def test_a_device_claim_needs_a_device() -> None:
    assert codes(judged(training(), claim="device")) == {"kernel.device-claim"}
