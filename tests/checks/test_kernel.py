"""The kernel check on a probe's record: what is right passes, each broken thing gets its own code."""

import copy

import numpy as np
import pytest

from harness.checks.finding import Verdict
from harness.checks.kernel import check_probe
from harness.stackside.nki.compare import compare
from tests.checks.kernel_examples import (
    SALT,
    Break,
    both,
    change,
    codes,
    launch,
    lines,
    message,
    on_trainium,
    probe,
    update,
)


def test_a_good_probe_passes_and_says_what_it_proves() -> None:
    result = check_probe(probe(), salt=SALT)
    assert result.verdict is Verdict.PASS, result.findings
    assert result.facts[0].startswith("verified on interpreter only: backend interpreter 1")
    assert any("unverified on hardware" in fact for fact in result.facts)


FIRST = ("cases", 0)
LAUNCH = (*FIRST, "launches", 0)
REFUSED = ("lengths", 0)
ACCEPTED = ("lengths", 6)

BROKEN: dict[str, tuple[Break, str, str]] = {
    "fallback": (change(*FIRST, "launches", to=[]), "kernel.no-launch", "no kernel was launched"),
    "one launch": (
        change(*FIRST, "launches", to=[launch(1)]),
        "kernel.launch-count",
        "1 kernel launches, expected 2",
    ),
    "launch raised": (update(*LAUNCH, error="ValueError: x"), "kernel.raised", "ended with ValueError: x"),
    "other kernel": (
        update(*LAUNCH, source="/run/other/fast_rope.py:3"),
        "kernel.launch-source",
        "/run/other/fast_rope.py:3",
    ),
    "more instructions": (
        change(*LAUNCH, "ops", "dma_copy", to=29),
        "kernel.instructions",
        "29 dma_copy, 60 tensor_tensor executed, the shapes imply 28 dma_copy, 60 tensor_tensor",
    ),
    "no instruction": (change(*LAUNCH, "ops", to={}), "kernel.instructions", "no instruction executed"),
    "uncounted": (change(*LAUNCH, "ops", to=None), "kernel.instructions", "has no instruction counts"),
    "fewer bytes": (
        change(*LAUNCH, "hbm_bytes_written", to=98304),
        "kernel.hbm-bytes",
        "98304 bytes written",
    ),
    "sentinel": (change(*LAUNCH, "sentinels", to=7), "kernel.sentinel", "7 elements"),
    "sentinel unknown": (change(*LAUNCH, "sentinels", to=None), "kernel.sentinel", "does not say"),
    "other cores": (change(*LAUNCH, "grid", to=2), "kernel.arguments", "launched on 2 cores, expected 1"),
    "other argument": (
        change(*LAUNCH, "args", 0, "shape", to=[1, 4, 128, 32]),
        "kernel.arguments",
        "q = (1, 4, 128, 32) float32, expected (1, 4, 256, 32)",
    ),
    "no arguments": (change(*LAUNCH, "args", to=[]), "kernel.arguments", "not those of the RoPE kernel"),
    "forward twice": (change(*FIRST, "counts", "forward", to=2), "kernel.count", "ran 2 times forward"),
    "no backward": (change(*FIRST, "counts", "backward", to=0), "kernel.count", "ran 0 times backward"),
    "forward off": (
        update(
            *FIRST, "forward", "q", max_abs_diff=1e-7, relative=1e-8, rows_differ=1, first_rows_differ=[9]
        ),
        "kernel.forward",
        "max|diff| 1.000e-07 (relative 1.000e-08), allowed 0.0 on interpreter; 1 of 256 rows differ (9)",
    ),
    "backward off": (
        update(*FIRST, "backward", "k", max_abs_diff=0.5, relative=0.1),
        "kernel.backward",
        "backward k: max|diff| 5.000e-01",
    ),
    "bfloat16 off": (
        update("cases", 1, "forward", "q", max_abs_diff=0.03125, relative=2e-3),
        "kernel.forward",
        "bfloat16 LNC1 forward q: max|diff| 3.125e-02",
    ),
    "rounding": (
        change("cases", 1, "forward", "q", "rounding_ratio", to=1.3),
        "kernel.rounding",
        "1.3 times",
    ),
    "no rounding": (
        change("cases", 1, "forward", "q", "rounding_ratio", to=None),
        "kernel.rounding",
        "undefined",
    ),
    "not finite": (
        update(*FIRST, "forward", "k", max_abs_diff=None, relative=None, nonfinite=3),
        "kernel.forward",
        "3 of 8192 values not finite",
    ),
    "case raised": (
        change(
            *FIRST,
            "error",
            to={"phase": "forward", "type": "NkiValidationError", "message": "256 partitions"},
        ),
        "kernel.raised",
        "forward raised NkiValidationError: 256 partitions",
    ),
    "no gradient of q": (
        change(*FIRST, "backward", "q", to=None),
        "kernel.gradient-missing",
        "gave nothing for q",
    ),
    "salt": (change("salt", to=1), "kernel.receipt", "used salt 1, 1234 was asked for"),
    "receipt one off": (
        change("receipts", 1, "values", to=[1236.0, 1235.0]),
        "kernel.receipt",
        "receipt [1236.0, 1235.0]",
    ),
    "receipt of one core": (change("receipts", 1, "values", to=[1236.0]), "kernel.receipt", "LNC2"),
    "receipt raised": (
        update("receipts", 0, values=None, error={"phase": "receipt", "type": "E", "message": "m"}),
        "kernel.receipt",
        "gave no receipt: E: m",
    ),
    "receipt without launch": (change("receipts", 0, "launches", to=[]), "kernel.no-launch", "receipt LNC1"),
    "length accepted": (
        change(*REFUSED, "raised", to=None),
        "kernel.length-accepted",
        "LNC1 forward with seq 200, no multiple of 128, returned numbers",
    ),
    "length text": (
        change(*REFUSED, "raised", "message", to="shapes do not broadcast"),
        "kernel.length-text",
        "seq len must be multiple of 128 * LNC=1, got 200",
    ),
    "length late": (change(*REFUSED, "instructions", to=3), "kernel.length-late", "after 3 instructions"),
    "length refused": (
        change(*ACCEPTED, "raised", to={"type": "AssertionError", "message": "no"}),
        "kernel.length-refused",
        "seq 256, a multiple of 128, was refused",
    ),
    "gradient missing": (
        change("gradients", 0, "parameters", 0, "comparison", to=None),
        "kernel.gradient-missing",
        "1 of 2 parameters (query.weight) upstream of the op have no gradient; register the backward",
    ),
    "no parameters": (change("gradients", 0, "parameters", to=[]), "kernel.gradient-missing", "0 of 0"),
    "gradient zero": (
        change("gradients", 0, "parameters", 1, "comparison", "nonzero", to=0),
        "kernel.gradient",
        "key.weight has only zeros",
    ),
    "gradient nan": (
        update("gradients", 0, "parameters", 1, "comparison", nonfinite=2, relative=None),
        "kernel.gradient",
        "2 non-finite values",
    ),
    "gradient off": (
        change("gradients", 0, "parameters", 1, "comparison", "relative", to=0.1),
        "kernel.gradient",
        "key.weight is 0.1 (relative)",
    ),
    "gradient raised": (
        change("gradients", 0, "error", to={"phase": "gradients", "type": "E", "message": "m"}),
        "kernel.raised",
        "the gradient toy raised E: m",
    ),
    "table gradient": (
        change("gradients", 0, "tables_with_gradient", to=2),
        "kernel.gradient-table",
        "2 of the",
    ),
    "unknown backend": (change("backend", "name", to="numpy"), "kernel.backend", "'numpy'"),
    "mutant": (change("mutant", to="sign-flipped"), "kernel.mutant-survived", "'sign-flipped' passed"),
    "no bfloat16": (
        lambda record: record["cases"].pop(1),
        "kernel.incomplete",
        "LNC1: the probe did not measure bfloat16",
    ),
    "no case": (change("cases", to=[]), "kernel.incomplete", "float32 cases, bfloat16 cases"),
    "no receipt": (change("receipts", to=[]), "kernel.incomplete", "a receipt"),
    "no toy": (change("gradients", to=[]), "kernel.incomplete", "upstream gradients"),
    "no lengths": (change("lengths", to=[]), "kernel.incomplete", "backward at seq 257"),
    "unreadable": (
        change(*FIRST, "shape", "seq", to="256"),
        "kernel.record",
        "record.cases[0].shape.seq is str '256'",
    ),
    "no key": (lambda record: record.pop("cases"), "kernel.record", "record has no 'cases'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_probe_fails_with_its_code(name: str) -> None:
    breaks, code, text = BROKEN[name]
    record = copy.deepcopy(probe())
    breaks(record)
    result = check_probe(record, salt=SALT)
    assert result.verdict is Verdict.FAIL
    assert code in codes(result)
    assert text in lines(result, code)


def test_an_empty_record_fails() -> None:
    assert codes(check_probe({}, salt=SALT)) == {"kernel.record"}


def test_lnc_that_was_asked_for_must_be_there() -> None:
    record = probe()
    assert check_probe(record, salt=SALT, lnc=(2,)).verdict is Verdict.PASS
    assert codes(check_probe(record, salt=SALT, lnc=(1, 2, 4))) == {"kernel.incomplete"}


def test_the_file_can_be_pinned_by_digest() -> None:
    assert check_probe(probe(), salt=SALT, kernel_sha256="ab" * 32).verdict is Verdict.PASS
    assert codes(check_probe(probe(), salt=SALT, kernel_sha256="cd" * 32)) == {"kernel.launch-source"}


def test_equal_findings_are_folded_into_one_with_all_messages() -> None:
    record = probe()
    for one in record["cases"]:
        one["launches"] = []
    finding = next(one for one in check_probe(record, salt=SALT).findings if one.code == "kernel.no-launch")
    assert finding.message.endswith("(and 3 more)")
    assert len(finding.data["all"]) == finding.data["count"] == 4


def test_on_trainium_a_small_difference_is_allowed_and_recorded() -> None:
    record = on_trainium()
    record["cases"][0]["forward"]["q"] |= {"max_abs_diff": 9e-7, "relative": 1e-7}
    record["cases"][1]["forward"]["q"] |= {"max_abs_diff": 0.03, "relative": 2e-3}
    result = check_probe(record, salt=SALT, claim="device")
    assert result.verdict is Verdict.PASS, result.findings
    assert "max|diff| 9e-07 over float32 cases, forward and backward" in result.facts
    assert result.facts[0].startswith("verified on device /dev/neuron0")


def test_on_trainium_more_than_1e_6_fails() -> None:
    record = on_trainium()
    record["cases"][0]["forward"]["q"] |= {"max_abs_diff": 2e-6, "relative": 1e-7}
    assert codes(check_probe(record, salt=SALT)) == {"kernel.forward"}


# --- the cases of kind R ---------------------------------------------------------------------------


def test_r01_zeros_fail_where_an_absolute_tolerance_lets_them_pass() -> None:
    reference = np.linspace(1e-8, 1e-7, 64, dtype=np.float32)
    zeros = np.zeros_like(reference)
    assert np.allclose(zeros, reference, rtol=0, atol=1e-6)  # what Trainium's limit alone would say
    record = on_trainium()
    record["cases"][0]["forward"]["q"] = compare(zeros, reference)
    result = check_probe(record, salt=SALT)
    assert codes(result) == {"kernel.zeros", "kernel.forward"}
    assert "output is all zeros (0 of 64 nonzero), reference max 1.0e-07" in message(result, "kernel.zeros")
    assert "relative error is 1" in message(result, "kernel.zeros")


def test_r02_a_device_that_broadcasts_is_caught_and_the_simulator_is_no_device() -> None:
    a, s = np.arange(12.0).reshape(4, 3), np.array([[1.0], [2.0], [3.0], [4.0]])
    reference = a * s
    simulator, device = probe(), on_trainium()
    device["cases"][0]["forward"]["q"] = compare(np.repeat(reference[:1], 4, 0), reference)
    said = check_probe(simulator, salt=SALT)
    assert said.verdict is Verdict.PASS
    assert "verified on interpreter only" in said.facts[0]
    claimed = check_probe(simulator, salt=SALT, claim="device")
    assert codes(claimed) == {"kernel.device-claim"}
    broken = check_probe(device, salt=SALT, claim="device")
    assert codes(broken) == {"kernel.forward"}
    assert "3 of 4 rows differ (1, 2, 3), which all equal row 0: looks like a broadcast fault" in message(
        broken, "kernel.forward"
    )


@pytest.mark.parametrize(
    "forge",
    [
        update("backend", name="aws-nki", device="/dev/neuron0"),
        update("backend", name="aws-nki"),
        update("backend", name="aws-nki-simulator"),
        both(update("backend", name="aws-nki", device="/dev/neuron0"), change("provider", to="torch_neuronx.nki_op")),
    ],
)  # fmt: skip
def test_r02_a_simulators_record_cannot_be_passed_off_as_a_devices(forge: Break) -> None:
    record = probe()
    forge(record)
    found = codes(check_probe(record, salt=SALT, claim="device"))
    assert "kernel.device-claim" in found
    assert "kernel.backend" in codes(check_probe(record, salt=SALT))


@pytest.mark.parametrize("seq", [250, 255, 257])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_r04_a_length_that_is_no_multiple_must_be_refused_in_both_directions(
    seq: int, direction: str
) -> None:
    record = probe()
    (one,) = [
        found
        for found in record["lengths"]
        if (found["lnc"], found["seq"], found["direction"]) == (2, seq, direction)
    ]
    one["raised"] = None
    result = check_probe(record, salt=SALT)
    assert codes(result) == {"kernel.length-accepted"}
    assert f"LNC2 {direction} with seq {seq}, no multiple of 256" in message(result, "kernel.length-accepted")
    assert f"pad to {256 if seq < 256 else 512}" in message(result, "kernel.length-accepted")


def test_r04_a_gradient_that_is_nan_fails_where_the_output_is_fine() -> None:
    record = probe()
    record["cases"][0]["backward"]["q"] |= {"max_abs_diff": None, "relative": None, "nonfinite": 4}
    assert codes(check_probe(record, salt=SALT)) == {"kernel.backward"}


def test_r05_an_op_without_backward_leaves_parameters_without_gradient() -> None:
    record = probe()
    for toy in record["gradients"]:
        toy["parameters"][0]["comparison"] = None
    result = check_probe(record, salt=SALT)
    assert codes(result) == {"kernel.gradient-missing"}
    assert "output ok, but 1 of 2 parameters (query.weight)" in message(result, "kernel.gradient-missing")
