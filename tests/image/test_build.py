import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InfrastructureError, UserError
from harness.image.build import Request, build_image, labels_of, lint, parse_steps, require_pinned_base
from harness.image.context import FILES, FOLDERS, stage
from harness.pins import SourcePin
from harness.stack import load_stack
from tests.image.conftest import FakeDocker

PINNED = f"registry.example/base:1@sha256:{'a' * 64}"
OUTPUT = """#4 [stage-0 1/3] FROM registry.example/base
#4 CACHED

#5 [stage-0 2/3] COPY harness /project/harness
#5 CACHED

#6 [stage-0 3/3] RUN --mount=type=secret,id=ca     sh /opt/harness/steps/harness/image/inside/step.sh stack
#6 0.316 the base carries 0 packages
#6 DONE 61.1s

#7 exporting to image
#7 DONE 3.0s
"""


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    """A copy of what an image is made of; tests may change it."""
    target = tmp_path / "project"
    target.mkdir()
    for name in FILES:
        shutil.copy(root / name, target / name)
    for name in FOLDERS:
        if name != "tests":
            shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "tests").mkdir()
    return target


@pytest.fixture
def request_cpu(project: Path) -> Request:
    """The cpu stack on a base that carries a digest."""
    return Request(project, load_stack(project, "cpu"), PINNED, True)


def test_a_base_with_a_digest_is_taken() -> None:
    assert require_pinned_base(PINNED, allow_local=False) == f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    "reference", ["python:3.11", "python", "python@sha256:abc", f"python:{'a' * 64}", "", f"{PINNED} x"]
)
def test_a_base_without_a_digest_is_refused_unless_it_is_a_local_one_on_purpose(reference: str) -> None:
    with pytest.raises(UserError, match="has no digest") as caught:
        require_pinned_base(reference, allow_local=False)
    assert "--allow-local-base" in str(caught.value)
    assert caught.value.exit_code == 2
    assert require_pinned_base(reference, allow_local=True) is None


def test_an_unresolved_stack_stops_with_its_sentence_before_anything_else(
    root: Path, fake_docker: FakeDocker
) -> None:
    with pytest.raises(UserError, match="cannot be built as an image: Unresolved: ") as caught:
        build_image(Request(root, load_stack(root, "trn2")))
    assert "harness lock trn2" in str(caught.value)
    assert caught.value.exit_code == 2
    assert fake_docker.calls == []


def test_an_unresolved_stack_stops_with_a_local_base_too(root: Path, fake_docker: FakeDocker) -> None:
    with pytest.raises(UserError, match="Unresolved: "):
        build_image(Request(root, load_stack(root, "trn2"), "local:1", True))


def test_the_unresolved_base_of_a_stack_stops_a_build_without_a_base(
    root: Path, fake_docker: FakeDocker
) -> None:
    with pytest.raises(UserError, match="Unresolved: the digest of the base image"):
        build_image(Request(root, load_stack(root, "cpu")))


def test_a_base_of_ones_own_does_not_make_the_local_one_allowed(root: Path, fake_docker: FakeDocker) -> None:
    stack = load_stack(root, "cpu")
    resolved = stack.model_copy(update={"unresolved": ()})
    with pytest.raises(UserError, match="has no digest"):
        build_image(Request(root, resolved, "python:3.11"))


def test_a_dockerfile_that_the_lint_refuses_is_not_built(
    request_cpu: Request, fake_docker: FakeDocker
) -> None:
    path = request_cpu.root / "Dockerfile"
    path.write_text(path.read_text() + "RUN pip install neuronx-cc==2.20.*\n")
    with pytest.raises(UserError, match=r"dockerfile\.pip: Dockerfile:\d+"):
        build_image(request_cpu)
    assert fake_docker.calls == []


def test_a_step_that_the_lint_refuses_is_not_built(request_cpu: Request) -> None:
    path = request_cpu.root / "harness" / "image" / "inside" / "step.sh"
    path.write_text(path.read_text() + "pip install torch\n")
    assert [finding.code for finding in lint(request_cpu.root)] == ["dockerfile.pip"]


def test_the_shipped_dockerfile_is_clean(root: Path) -> None:
    assert lint(root) == []


def test_no_engine_says_what_to_do(request_cpu: Request, fake_docker: FakeDocker) -> None:
    fake_docker.answer("version", 1, "Cannot connect to the Docker daemon\n")
    with pytest.raises(InfrastructureError, match=r"no Docker engine answers: Cannot connect") as caught:
        build_image(request_cpu)
    assert "scripts/docker-engine.sh start" in str(caught.value)


def test_a_local_base_that_is_not_there_is_named(request_cpu: Request, fake_docker: FakeDocker) -> None:
    with pytest.raises(UserError, match="no image `local:1` on this machine"):
        build_image(replace(request_cpu, base="local:1"))


def test_a_build_gives_id_steps_and_labels_and_compose_finds_it(
    request_cpu: Request, fake_docker: FakeDocker
) -> None:
    fake_docker.answer("buildx build", 0, OUTPUT)
    (request_cpu.root / ".env").write_text("OTHER=1\nHARNESS_CPU_IMAGE=old\n")
    built = build_image(request_cpu)
    assert built.id == f"sha256:{'b' * 64}"
    assert [step.cached for step in built.steps] == [True, True, False]
    assert (request_cpu.root / ".env").read_text() == f"OTHER=1\nHARNESS_CPU_IMAGE={built.id}\n"
    call = fake_docker.calls_of("buildx", "build")[0]
    assert f"--build-arg=BASE_IMAGE={PINNED}" in call
    assert "--build-arg=STACK=cpu" in call
    assert {f"--label={name}={value}" for name, value in built.labels.items()} <= set(call)


def test_an_index_of_this_machine_is_a_secret_and_never_an_argument(
    request_cpu: Request, fake_docker: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://me:pass'word@index.test/simple")
    fake_docker.answer("buildx build", 0, OUTPUT)
    build_image(request_cpu)
    call = " ".join(fake_docker.calls_of("buildx", "build")[0])
    assert "--secret=id=index,src=" in call
    assert "index.test" not in call
    given = (fake_docker.folder / "index").read_text()
    assert "UV_DEFAULT_INDEX='https://me:pass'\"'\"'word@index.test/simple'" in given
    assert "PIP_INDEX_URL=" in given


def test_findings_of_the_verification_are_the_message(request_cpu: Request, fake_docker: FakeDocker) -> None:
    line = "#8 1.2 image-check: lock.placeholder: nki 0.0.1 is the placeholder\n"
    fake_docker.answer("buildx build", 1, OUTPUT + line + line + "ERROR: failed to solve\n")
    with pytest.raises(UserError) as caught:
        build_image(request_cpu)
    assert str(caught.value) == ("the image was not built:\nlock.placeholder: nki 0.0.1 is the placeholder")
    assert not (request_cpu.root / ".env").exists()


def test_any_other_failure_is_infrastructure_and_shows_the_end(
    request_cpu: Request, fake_docker: FakeDocker
) -> None:
    fake_docker.answer("buildx build", 1, OUTPUT + "ERROR: Hash mismatch for einops\n")
    with pytest.raises(InfrastructureError, match="Hash mismatch for einops"):
        build_image(request_cpu)


def test_labels_name_stack_lock_base_and_revision(request_cpu: Request) -> None:
    labels = labels_of(request_cpu, {"reference": PINNED, "digest": f"sha256:{'a' * 64}", "local": False})
    assert labels["trn-harness.stack"] == "cpu"
    assert labels["trn-harness.lock-digest"] == request_cpu.stack.lock_digest()
    assert labels["trn-harness.local-base"] == "false"
    assert labels["org.opencontainers.image.base.digest"] == f"sha256:{'a' * 64}"
    assert labels["org.opencontainers.image.revision"] == "unknown"
    assert not any("created" in name for name in labels)


def test_steps_are_read_in_the_order_of_the_file() -> None:
    steps = parse_steps(OUTPUT)
    assert [(step.text.split()[0], step.cached, step.seconds) for step in steps] == [
        ("FROM", True, None),
        ("COPY", True, None),
        ("RUN", False, 61.1),
    ]
    assert parse_steps("") == ()


def test_the_context_depends_on_content_alone(project: Path, tmp_path: Path) -> None:
    (project / "harness" / "__pycache__").mkdir()
    (project / "harness" / "__pycache__" / "x.pyc").write_text("")
    (project / "recipes" / "native" / "config.py").chmod(0o600)
    (project / "stray").write_text("")
    context = tmp_path / "context"
    context.mkdir()
    stage(project, load_stack(project, "cpu"), {"reference": "x"}, {"a": "b"}, no_source, context)
    names = {path.relative_to(context).as_posix() for path in context.rglob("*")}
    assert not any("__pycache__" in name for name in names)
    assert "stray" not in names
    assert {"Dockerfile", "pins.json", "labels.json", "sources", "recipes/native/config.py"} <= names
    assert (context / "recipes/native/config.py").stat().st_mode & 0o777 == 0o644
    assert json.loads((context / "labels.json").read_text()) == {"a": "b"}


def test_a_source_goes_into_the_context_with_its_modes(project: Path, tmp_path: Path) -> None:
    fetched, context = tmp_path / "fetched", tmp_path / "context"
    fetched.mkdir()
    context.mkdir()
    (fetched / "run.sh").write_text("")
    (fetched / "run.sh").chmod(0o755)
    (fetched / ".complete").touch()
    pin = SourcePin(
        version="1",
        repository="https://example.test/titan",
        ref="v1",
        commit="a" * 40,
        tree=f"sha256:{'b' * 64}",
    )
    stack = load_stack(project, "cpu").model_copy(update={"sources": {"titan": pin}})
    stage(project, stack, {}, {}, lambda name, pin: fetched, context)
    assert [path.name for path in (context / "sources" / "titan").iterdir()] == ["run.sh"]
    assert (context / "sources" / "titan" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert json.loads((context / "pins.json").read_text())["sources"]["titan"]["commit"] == "a" * 40


def test_a_missing_part_of_the_project_is_named(project: Path, tmp_path: Path) -> None:
    (project / "compose.yaml").unlink()
    with pytest.raises(UserError, match=r"compose\.yaml: no such file"):
        stage(project, load_stack(project, "cpu"), {}, {}, no_source, tmp_path / "context")


def no_source(name: str, pin: SourcePin) -> Path:
    raise AssertionError(name)
