"""Log excerpts of the runtime and the compiler: which side is old, what is cached, who holds the cores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.doctor.host import Holder
from harness.doctor.logs import (
    cached_failure,
    cores_taken,
    driver_too_old,
    missing_features,
    newer_neff,
    recognise,
)

STAMP = "2026-Jan-05 11:17:54.0589 16:16 ERROR "
RETOLD = (
    f"{STAMP}NRT:nrt_init   this runtime (compatibility id: 6) does not fit the installed driver package\n"
    f"{STAMP}NRT:nrt_init   installed driver supports runtime compatibility id range: 2 - 4\n"
)
WORDED = (
    f"{STAMP}NRT:nrt_init  This Neuron Runtime (compatibility id: 6) is not compatible with the driver.\n"
    f"{STAMP}NRT:nrt_init  Installed driver supports Runtime compatibility id range: 2 - 4.\n"
)
NEFF = (
    f"{STAMP}NEFF:neff_parse  NEFF version: 2.0, features: 0x100 are not supported. "
    "Currently supporting: 0x80000000000000ff\nRuntimeError: nrt_load_collectives status=10\n"
)
FAILED_AT = "/var/tmp/cache/neuronxcc-2.15.141.0+d3cfc8ca/MODULE_d3007680bbf6cce0a595+4497a662/model.neff"
CACHED = f"ERROR ||NEURON_CC_WRAPPER||: found a cached failed neff at {FAILED_AT}, compilation is skipped\n"
CACHED_TOO = f"INFO ||NCC_WRAPPER||: Got a cached failed neff at {FAILED_AT}. Will skip compilation\n"
TAKEN = f"{STAMP}NRT:nrt_allocate_neuron_cores  logical neuron core(s) not available - requested: 2, available: 0\n"
TAKEN_TOO = (
    f"{STAMP}NRT:nrt_allocate_neuron_cores  Logical Neuron Core(s) not available - Requested:4 Available:3\n"
)


@pytest.mark.parametrize("text", [RETOLD, WORDED])
def test_an_old_driver_is_named_with_both_numbers(text: str) -> None:
    finding = driver_too_old(text)
    assert finding is not None
    assert finding.code == "neuron.driver"
    assert "needs driver compatibility id 6, host driver offers 2-4: the driver is too old" in finding.message
    assert "upgrade aws-neuronx-dkms on the host (not in the image)" in finding.message


def test_an_old_runtime_is_the_other_side() -> None:
    finding = driver_too_old(RETOLD.replace("id: 6", "id: 1"))
    assert finding is not None
    assert "the runtime is too old" in finding.message


def test_half_of_the_pair_says_nothing() -> None:
    assert driver_too_old(RETOLD.splitlines()[0]) is None
    assert driver_too_old(RETOLD.splitlines()[1]) is None


def test_the_missing_feature_bit_is_decoded() -> None:
    finding = newer_neff(NEFF, "2.12.54.0")
    assert finding is not None
    assert finding.code == "neuron.neff-features"
    assert "needs features 0x100, runtime supports 0x80000000000000ff: bit 8 missing" in finding.message
    assert "Compiled by neuronx-cc 2.12.54.0, the runtime is older" in finding.message
    assert finding.data["bits"] == [8]


def test_the_compiler_is_read_from_a_cache_path_or_unknown() -> None:
    from_path = newer_neff(NEFF + f"loading {FAILED_AT}\n")
    assert from_path is not None
    assert "neuronx-cc 2.15.141.0+d3cfc8ca" in from_path.message
    unknown = newer_neff(NEFF)
    assert unknown is not None
    assert "neuronx-cc (unknown)" in unknown.message


def test_features_that_are_all_there_are_no_finding() -> None:
    assert newer_neff(NEFF.replace("0x100 ", "0x10 ")) is None


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_missing_bits_are_exactly_those(need: int, have: int) -> None:
    bits = missing_features(need, have)
    assert sum(1 << bit for bit in bits) == need & ~have
    assert list(bits) == sorted(set(bits))


@pytest.mark.parametrize("text", [CACHED, CACHED_TOO])
def test_a_cached_failure_names_module_and_age(text: str) -> None:
    asked: list[str] = []

    def age(path: str) -> float:
        asked.append(path)
        return 3 * 86400 + 7200.0

    finding = cached_failure(text, age)
    assert finding is not None
    assert finding.code == "neuron.cached-failure"
    assert (
        "compile was not attempted; a failure is cached for MODULE_d3007680bbf6cce0a595+4497a662, 3 d 2 h old"
        in (finding.message)
    )
    assert "--retry_failed_compilation" in finding.message
    assert asked == [FAILED_AT]


def test_a_failure_now_is_not_a_cached_one() -> None:
    assert cached_failure("ERROR ||NEURON_CC_WRAPPER||: compilation failed") is None
    without_age = cached_failure(CACHED)
    assert without_age is not None
    assert " old" not in without_age.message


@pytest.mark.parametrize(("text", "numbers"), [(TAKEN, (2, 0)), (TAKEN_TOO, (4, 3))])
def test_taken_cores_name_who_holds_them(text: str, numbers: tuple[int, int]) -> None:
    finding = cores_taken(text, [Holder(4121, "python -m torchtitan.train", 7833.0, (0, 1))])
    assert finding is not None
    assert finding.code == "neuron.cores-taken"
    assert (finding.data["requested"], finding.data["available"]) == numbers
    assert "held by pid 4121 (started 02:10:33 ago): python -m torchtitan.train" in finding.message
    assert "not of the recipe" in finding.message


def test_taken_cores_without_a_known_holder() -> None:
    finding = cores_taken(TAKEN)
    assert finding is not None
    assert "another process holds them" in finding.message


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("ERROR TDRV: Could not open the nd1", "neuron.device-closed", "/dev/neuron1 cannot be opened"),
        ("ERROR Neuron cores are not contiguous", "neuron.hole", "hole"),
        ("ERROR TDRV:tdrv_get_dev_info No neuron device available", "neuron.no-device", "no /dev/neuron*"),
    ],
)
def test_plain_texts_are_recognised(text: str, code: str, words: str) -> None:
    findings = recognise(text)
    assert [finding.code for finding in findings] == [code]
    assert words in findings[0].message


def test_every_fault_of_a_log_is_found() -> None:
    assert [finding.code for finding in recognise(RETOLD + TAKEN + NEFF + CACHED)] == [
        "neuron.driver",
        "neuron.cores-taken",
        "neuron.neff-features",
        "neuron.cached-failure",
    ]


def test_an_ordinary_log_says_nothing() -> None:
    assert recognise("[rank0]: step:  1  loss: 12.43120\nINFO NRT:nrt_init Neuron Runtime 2.35.30.0\n") == ()
