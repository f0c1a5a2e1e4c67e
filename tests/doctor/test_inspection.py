"""The doctor as a whole: what each stack is judged by, how it is shown, and its exit code."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import doctor
from harness.doctor import Level, exit_code, inspect, preflight, report_lines
from harness.doctor.host import Disk, Distribution, Host
from harness.doctor.report import Report, error, ok, skipped, warning
from harness.environment import Environment, lock_packages
from harness.sdk import derive_sdk
from harness.stack import Stack, load_stack
from tests.doctor.layouts import make_environment, recorded

DEVICE_LINES = {"driver", "devices", "cores", "lnc", "holders", "shm", "compile-cache"}


@pytest.fixture
def cpu(root: Path) -> Stack:
    return load_stack(root, "cpu")


def as_locked(stack: Stack) -> Host:
    packages = lock_packages(stack.lock)
    space = Disk("/x", 10**12, 10**12)
    return Host(
        environment="/environment",
        python="3.11.7",
        distributions=tuple(Distribution(name, version) for name, version in packages.items()),
        disks={"cache": space, "runs": space},
    )


def test_the_cpu_stack_needs_no_device(cpu: Stack) -> None:
    report = inspect(as_locked(cpu), cpu)
    assert report.of(Level.ERROR) == report.of(Level.WARNING) == ()
    not_needed = {line.name for line in report.of(Level.SKIPPED) if "not needed" in line.found}
    assert DEVICE_LINES | {"indexes"} <= not_needed
    assert exit_code(report) == 0


def test_the_cpu_lock_s_own_cuda_packages_are_a_fact(cpu: Stack) -> None:
    line = next(line for line in inspect(as_locked(cpu), cpu).lines if line.name == "nvidia")
    assert line.level == "ok"
    assert "all of them the lock's own" in line.found


def test_an_environment_that_is_not_built_is_a_warning(cpu: Stack) -> None:
    report = inspect(replace(as_locked(cpu), environment=None), cpu)
    assert [line.code for line in report.of(Level.WARNING)] == ["packages.no-environment"]
    assert "harness env --stack cpu" in report.of(Level.WARNING)[0].action


def test_an_unresolved_stack_stops_with_its_own_sentence(root: Path) -> None:
    stack = load_stack(root, "trn2")
    line = next(line for line in inspect(Host(), stack).lines if line.code == "stack.unresolved")
    assert line.level == "error"
    assert line.action == stack.unresolved_sentence()


def test_a_stack_without_a_lock_says_how_to_make_one(cpu: Stack, tmp_path: Path) -> None:
    stack = cpu.model_copy(update={"folder": tmp_path, "unresolved": ()})
    line = next(line for line in inspect(as_locked(cpu), stack).lines if line.name == "stack")
    assert (line.code, line.action) == ("stack.no-lock", "`harness lock cpu`")


def test_a_package_from_a_commit_is_expected_like_a_locked_one(tmp_path: Path) -> None:
    found = recorded("healthy-trn2", tmp_path)
    others = tuple(item for item in found.host.distributions if item.name != "torchtitan-neuron")
    report = inspect(replace(found.host, distributions=others), found.stack)
    assert [line.code for line in report.of(Level.ERROR)] == ["packages.missing"]
    assert "torchtitan-neuron" in report.of(Level.ERROR)[0].found


def test_a_placeholder_torch_plugin_is_one_error_not_three(tmp_path: Path) -> None:
    found = recorded("healthy-trn2", tmp_path)
    fake = Distribution("torch-neuronx", "1.0", modules=("torch_neuronx",), text="WRONG PACKAGE")
    others = tuple(item for item in found.host.distributions if item.name != "torch-neuronx")
    report = inspect(replace(found.host, distributions=(*others, fake)), found.stack)
    assert [line.code for line in report.of(Level.ERROR)] == ["placeholder.installed"]


def test_a_run_on_the_cpu_asks_little(cpu: Stack, tmp_path: Path) -> None:
    lines = preflight(cpu, Environment(tmp_path, "digest", {}), tmp_path, host=as_locked(cpu))
    assert {line.level for line in lines} == {"ok"}
    expected = {"python", "placeholder", "torch", "packages", "disk", "determinism"}
    assert {line.name for line in lines} == expected


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"python": "3.10.1"}, "python.version"),
        ({"distributions": ()}, "packages.missing"),
        ({"disks": {"runs": Disk("/r", 0, 1)}}, "disk.runs"),
        ({"variables": {"XLA_USE_BF16": "1"}}, "determinism.rounding"),
    ],
)
def test_a_run_is_stopped_by(change: dict[str, object], code: str, cpu: Stack, tmp_path: Path) -> None:
    host = replace(as_locked(cpu), **change)  # type: ignore[arg-type]
    lines = preflight(cpu, Environment(tmp_path, "digest", {}), tmp_path, host=host)
    assert [line.code for line in lines if line.level == "error"] == [code]


def test_a_run_reads_this_machine_itself(cpu: Stack, tmp_path: Path, cache: Path) -> None:
    make_environment(tmp_path / "env", "3.11.7", {"torch": {"version": "9.9"}})
    lines = preflight(cpu, Environment(tmp_path / "env", "digest", {}), tmp_path / "runs")
    assert {"packages.missing", "packages.version"} <= {line.code for line in lines}
    assert any(str(tmp_path / "runs") in line.found for line in lines)
    assert any(str(cache) in line.found for line in lines)


def test_the_image_s_own_environment_is_taken_inside_an_image(
    cpu: Stack, tmp_path: Path, cache: Path
) -> None:
    make_environment(tmp_path / "image", "3.13.3", {})
    make_environment(tmp_path / "elsewhere", "3.12.2", {})

    def python(given: Path | None = None) -> str:
        report = doctor.examine(
            cpu, built=tmp_path / "elsewhere", environment=given, runs=tmp_path / "runs", root=tmp_path
        )
        return next(line.found for line in report.lines if line.name == "python")

    assert python() == "3.12.2"
    (tmp_path / "opt" / "harness").mkdir(parents=True)
    image = {"stack": "cpu", "lock_digest": "", "prefix": str(tmp_path / "image"), "packages": {}, "base": {}}
    (tmp_path / "opt" / "harness" / "image.json").write_text(json.dumps(image))
    assert python() == "3.13.3"
    assert python(tmp_path / "elsewhere") == "3.12.2"


def test_an_environment_folder_that_is_not_there_is_not_built(
    cpu: Stack, tmp_path: Path, cache: Path
) -> None:
    for built in (tmp_path / "nowhere", None):
        report = doctor.examine(cpu, built=built, runs=tmp_path / "runs", root=tmp_path)
        assert "packages.no-environment" in {line.code for line in report.lines}


def report(*lines: doctor.Line, container: bool = False) -> Report:
    return Report("cpu", container, lines, derive_sdk({"neuronx-cc": "2.26.6360.0"}))


GOOD, OTHER = ok("python", "3.12"), skipped("shm", "not needed")
WARN = warning("packages.extra", "1 not in the lock", "only the lock", "add it")
WRONG = error("devices.hole", "hole at 7", "no hole", "reload")


@pytest.mark.parametrize(
    ("lines", "code"),
    [((), 0), ((GOOD, OTHER), 0), ((GOOD, WARN), 0), ((WRONG,), 1), ((GOOD, WARN, WRONG), 1)],
)
def test_only_errors_fail_the_command(lines: tuple[doctor.Line, ...], code: int) -> None:
    assert exit_code(report(*lines)) == code


def test_text_gives_the_next_action_where_something_is_wrong() -> None:
    text = "\n".join(report_lines(report(GOOD, OTHER, WARN, WRONG, container=True)))
    assert "error    devices        hole at 7\n" in text
    assert "expected: no hole\n" in text
    assert "next: reload\n" in text
    assert "next: add it" in text
    assert "ok       python         3.12\nskipped  shm            not needed\n" in text
    assert text.endswith("stack cpu, in a container: 1 error(s), 1 warning(s), 1 ok, 1 skipped")


def test_json_carries_everything() -> None:
    data = json.loads(json.dumps(report(GOOD, WRONG).as_json()))
    assert (data["schema"], data["stack"], data["where"], data["exit_code"]) == (1, "cpu", "host", 1)
    assert data["sdk"]["releases"] == ["2.31.1", "2.31.0"]
    assert data["lines"][1] == {
        "name": "devices",
        "code": "devices.hole",
        "level": "error",
        "found": "hole at 7",
        "expected": "no hole",
        "action": "reload",
    }
