"""The request of a run, and what is refused before torchtitan starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.stackside import entry, faults, request
from harness.stackside.request import Request


def asked(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "recipe": "native",
        "run": "random-init",
        "stack": "cpu",
        "folder": str(folder),
        "recipe_folder": str(folder),
        "config": "start",
        "ranks": 2,
        "steps": 10,
        "seq_len": 128,
        "local_batch_size": 1,
        "seed": 0,
        "compute_dtype": "float32",
        "device_layer": "cpu",
        "trainer": "torchtitan.train",
        "model": str(folder),
        "corpus": str(folder),
        "initial": "random",
        "initial_load_path": None,
        "export": False,
        "overrides": [],
        "sizes": {},
        "configuration": {},
    } | changes


@pytest.fixture
def current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(asked(tmp_path, faults=["nan-at-step-7"])))
    monkeypatch.setattr(request, "_current", None)
    monkeypatch.setenv(request.ENVIRONMENT_VARIABLE, str(path))
    return request.current()


def test_a_process_reads_its_request(current: Request, tmp_path: Path) -> None:
    assert current.observed == tmp_path / "observed"
    assert request.current() is current


def test_without_a_request_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_current", None)
    monkeypatch.delenv(request.ENVIRONMENT_VARIABLE, raising=False)
    with pytest.raises(RuntimeError, match="Next: start the run with `harness run`"):
        request.current()


def test_observations_are_written_whole(current: Request) -> None:
    request.write_observed("a.json", {"x": 1})
    assert json.loads((current.observed / "a.json").read_text()) == {"x": 1}
    assert [path.name for path in current.observed.iterdir()] == ["a.json"]


def test_a_fresh_folder_is_accepted(current: Request) -> None:
    entry.refuse_stale(current)


@pytest.mark.parametrize("left", ["dump/checkpoint/step-20/.metadata", "observed/metrics.jsonl"])
def test_what_an_earlier_run_left_is_refused(current: Request, tmp_path: Path, left: str) -> None:
    (tmp_path / left).parent.mkdir(parents=True)
    (tmp_path / left).touch()
    with pytest.raises(entry.StaleFolderError, match="fresh folder"):
        entry.refuse_stale(current)


def test_a_fault_acts_at_its_place_and_step_only(current: Request) -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    faults.apply("model", [model])
    faults.apply("step", (6, [model]))
    assert torch.isfinite(model.weight).all()
    faults.apply("step", (7, [model]))
    assert torch.isnan(model.weight).all()


def test_no_fault_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_current", Request(**asked(tmp_path)))
    faults.apply("step", (7, None))
    assert not faults.asked("rope-sign")


def test_a_stack_can_put_its_own_module_in_the_place_of_torchtitans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"torchtitan.models.qwen3": "json.decoder", "torchtitan.models.other": "no_such_fork.models"}
    monkeypatch.setattr(request, "_current", Request(**asked(tmp_path, modules=named)))
    assert request.stack_module("torchtitan.models.qwen3").__name__ == "json.decoder"
    assert request.stack_module("json.encoder").__name__ == "json.encoder"
    with pytest.raises(ModuleNotFoundError, match=r"no_such_fork.*in the place of torchtitan\.models\.other"):
        request.stack_module("torchtitan.models.other")
