"""Outcomes: the first failing rank decides, unknown errors are the recipe's own."""

from typing import Any

import pytest

from harness.outcome import Outcome, classify, first_error


def error(rank: int, time: float, kind: str, message: str = "", trace: str = "") -> dict[str, Any]:
    return {"rank": rank, "time": time, "type": kind, "message": message, "traceback": trace}


def test_all_zero_is_passed() -> None:
    assert classify({0: 0, 1: 0}, ended="exited", errors=[]).outcome is Outcome.PASSED


def test_no_exit_code_at_all_is_not_passed() -> None:
    assert classify({}, ended="exited", errors=[]).outcome is not Outcome.PASSED


@pytest.mark.parametrize(
    ("ended", "outcome"), [("timeout", Outcome.TIMEOUT), ("interrupted", Outcome.INTERRUPTED)]
)
def test_a_stopped_run_is_what_stopped_it(ended: str, outcome: Outcome) -> None:
    end = classify({0: 0}, ended=ended, errors=[error(0, 1.0, "ValueError")])
    assert end.outcome is outcome
    assert end.outcome.broken


def test_the_first_rank_by_the_clock_decides_and_later_noise_is_secondary() -> None:
    errors = [
        error(0, 12.0, "DistBackendError", "Connection reset by peer"),
        error(1, 11.5, "KeyError", "'model.layers.0.self_attn.q_norm.weight'", "Traceback ... KeyError"),
    ]
    end = classify({0: 1, 1: 1}, ended="exited", errors=errors)
    assert end.outcome is Outcome.FAILED
    assert end.rank == 1
    assert "rank 1 failed first: KeyError: 'model.layers.0.self_attn.q_norm.weight'" in end.reason
    assert end.traceback == "Traceback ... KeyError"


@pytest.mark.parametrize(
    ("kind", "message", "outcome"),
    [
        ("OutOfMemoryError", "neuronx-cc ran out of memory", Outcome.OUT_OF_MEMORY),
        (
            "RuntimeError",
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
            Outcome.OUT_OF_MEMORY,
        ),
        ("RuntimeError", "neuronx-cc failed with exit code 70", Outcome.COMPILE),
        ("OSError", "[Errno 28] No space left on device", Outcome.INFRASTRUCTURE),
        ("RuntimeError", "No neuron device available", Outcome.INFRASTRUCTURE),
        ("DistNetworkError", "The server socket has failed to listen: EADDRINUSE", Outcome.INFRASTRUCTURE),
        ("RuntimeError", "Loss is not finite (global_avg_loss=nan) at step 7", Outcome.FAILED),
        ("ConfigurationError", "training.steps is 9, asked was 10", Outcome.FAILED),
        ("ModuleNotFoundError", "No module named 'tinytok'", Outcome.FAILED),
        ("AssertionError", "seq len must be multiple of 128 * LNC=2, got 200", Outcome.FAILED),
    ],
)
def test_signatures(kind: str, message: str, outcome: Outcome) -> None:
    assert classify({0: 1}, ended="exited", errors=[error(0, 1.0, kind, message)]).outcome is outcome


def test_a_rank_killed_from_outside_is_infrastructure() -> None:
    end = classify({0: -9, 1: 0}, ended="exited", errors=[])
    assert end.outcome is Outcome.INFRASTRUCTURE
    assert "rank 0 was killed" in end.reason


def test_ranks_that_the_launcher_ended_do_not_decide() -> None:
    end = classify({0: 1, 1: -9}, ended="exited", errors=[], stopped=(1,), output="something odd\n")
    assert end.outcome is Outcome.FAILED
    assert "something odd" in end.reason


def test_a_crash_without_a_python_error_is_the_recipes() -> None:
    end = classify({0: -11, 1: 0}, ended="exited", errors=[])
    assert (end.outcome, end.reason) == (Outcome.FAILED, "rank 0 died of signal 11")


def test_the_launchers_own_code_counts_too() -> None:
    end = classify(1, ended="exited", errors=[], output="torch...ChildFailedError\nlast words\n")
    assert end.outcome is Outcome.FAILED
    assert "last words" in end.reason


def test_no_errors_have_no_first() -> None:
    assert first_error([]) is None
