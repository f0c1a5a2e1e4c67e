"""Builds a stack's image: refuses what is not pinned, stages the context, calls BuildKit, records the result."""

import contextlib
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import __version__, process
from harness.checks.finding import Finding
from harness.errors import InfrastructureError, UserError
from harness.image import docker
from harness.image.content import Comparison, compare
from harness.image.context import FetchSource, stage
from harness.image.env_file import remember_image
from harness.image.inside.findings import PREFIX
from harness.image.tail import Tail
from harness.lock.dockerfile import lint_dockerfile
from harness.lock.sources import verified_tree
from harness.stack import Stack

__all__ = [
    "Built",
    "Request",
    "Step",
    "build_image",
    "compare_builds",
    "labels_of",
    "lint",
    "parse_steps",
    "require_pinned_base",
]

Say = Callable[[str], None]

_PINNED = re.compile(r"^\S+@(sha256:[0-9a-f]{64})$")
_STEP = re.compile(r"^#(?P<number>\d+) \[[^\]]*?(?P<position>\d+)/\d+\] (?P<text>.+)$")
_ENDED = re.compile(r"^#(?P<number>\d+) (?:(?P<cached>CACHED)|DONE (?P<seconds>[\d.]+)s)$")
_STEPS = "harness/image/inside/step.sh"
_CERTIFICATES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a build. `base` replaces the stack's own base image."""

    root: Path
    stack: Stack
    base: str | None = None
    allow_local_base: bool = False
    """Take a base without digest: an image of this machine. Recorded in labels and `image.json`."""
    tag: str | None = None
    use_cache: bool = True
    remember: bool = True
    """Write the image's id into the project's `.env`, where compose finds it."""

    @property
    def name(self) -> str:
        """The image's name on this machine."""
        return self.tag or f"trn-harness:{self.stack.name}"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the Dockerfile as BuildKit reported it. `seconds` is None for a cached one."""

    text: str
    cached: bool
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Built:
    """A built image. `id` is `sha256:...` of its configuration, and so of everything in it."""

    name: str
    id: str
    labels: dict[str, str]
    steps: tuple[Step, ...]
    seconds: float


def build_image(request: Request, *, say: Say = lambda _: None, fetch: FetchSource = verified_tree) -> Built:
    """Build the image of a stack and return it; its digest is written into the project's `.env` for compose.

    Raises `UserError` for an unresolved stack, a base without digest, a Dockerfile that the lint refuses, and
    for what the verification inside the image found; `InfrastructureError` if Docker or the network failed.
    """
    request.stack.require_resolved("run" if request.allow_local_base and request.base else "image")
    reference = request.base or _base_of(request.stack)
    digest = require_pinned_base(reference, allow_local=request.allow_local_base)
    if findings := lint(request.root):
        raise UserError("\n".join(f"{finding.code}: {finding.message}" for finding in findings))
    docker.require_engine()
    if digest is None:
        digest = docker.image_id(reference)
        if digest is None:
            raise UserError(
                f"no image `{reference}` on this machine. Next: scripts/test-base-image.sh makes one."
            )
    base = {"reference": reference, "digest": digest, "local": _PINNED.match(reference) is None}
    labels = labels_of(request, base)
    with tempfile.TemporaryDirectory(prefix="trn-harness-build.") as folder:
        context = Path(folder) / "context"
        context.mkdir()
        stage(request.root, request.stack, base, labels, fetch, context)
        built = _build(request, reference, labels, context, Path(folder), say)
    if request.remember:
        remember_image(request.root, request.stack.name, built.id)
    return built


def compare_builds(
    request: Request, *, say: Say = lambda _: None, fetch: FetchSource = verified_tree
) -> tuple[Built, Comparison]:
    """Build, build once more without any cached layer, and compare both by content. Raises as `build_image`.

    The second image is removed again; the installer's download cache is shared by both builds.
    """
    first = build_image(request, say=say, fetch=fetch)
    again = replace(request, tag=f"{request.name}-again", use_cache=False, remember=False)
    say("building a second time, without cached layers")
    second = build_image(again, say=say, fetch=fetch)
    try:
        return first, compare(first.id, second.id)
    finally:
        process.run(["docker", "image", "rm", second.name])


def lint(root: Path) -> list[Finding]:
    """Return what makes the project's Dockerfile, or the script that its steps run, unrepeatable."""
    findings = list(lint_dockerfile((root / "Dockerfile").read_text(encoding="utf-8")))
    script = root / _STEPS
    as_step = f"FROM scratch\nRUN <<'SCRIPT'\n{script.read_text(encoding='utf-8')}\nSCRIPT\n"
    return findings + list(lint_dockerfile(as_step, source=_STEPS))


def require_pinned_base(reference: str, *, allow_local: bool) -> str | None:
    """Return the digest in an image reference, None for a local one. Raises `UserError` if there is none."""
    match = _PINNED.match(reference)
    if match is not None:
        return match[1]
    if allow_local:
        return None
    raise UserError(
        f"base image `{reference}` has no digest: a tag can move. Next: write name:tag@sha256:..., "
        "or, to try something out with an image of this machine, add --allow-local-base."
    )


def _base_of(stack: Stack) -> str:
    if stack.base_image is None:
        raise UserError(
            f"{stack.folder / 'stack.yaml'}: `base_image` is missing. Next: add it, or give --base."
        )
    return stack.base_image.reference


def labels_of(request: Request, base: dict[str, Any]) -> dict[str, str]:
    """Return the image's labels. None holds a time: two builds of the same inputs carry the same."""
    stack = request.stack
    return {
        "org.opencontainers.image.title": "trn-harness",
        "org.opencontainers.image.version": __version__,
        "org.opencontainers.image.revision": _revision(request.root),
        "org.opencontainers.image.base.name": str(base["reference"]),
        "org.opencontainers.image.base.digest": str(base["digest"]),
        "trn-harness.stack": stack.name,
        "trn-harness.stack-digest": stack.digest(),
        "trn-harness.lock-digest": stack.lock_digest(),
        "trn-harness.local-base": str(base["local"]).lower(),
    }


def _revision(root: Path) -> str:
    """Return the project's commit, with `-modified` if files differ from it; `unknown` outside git."""
    with contextlib.suppress(InfrastructureError):
        commit = process.run(["git", "-C", str(root), "rev-parse", "HEAD"])
        if commit.returncode == 0:
            status = process.run(["git", "-C", str(root), "status", "--porcelain"])
            return commit.output.strip() + ("-modified" if status.output.strip() else "")
    return "unknown"


def _build(
    request: Request, base: str, labels: dict[str, str], context: Path, folder: Path, say: Say
) -> Built:
    log, identity = folder / "build.log", folder / "image-id"
    argv = ["docker", "buildx", "build", "--progress=plain", "--load", f"--iidfile={identity}"]
    argv += [
        f"--tag={request.name}",
        f"--build-arg=BASE_IMAGE={base}",
        f"--build-arg=STACK={request.stack.name}",
    ]
    argv += [f"--build-arg={name}" for name in _PROXIES if os.environ.get(name)]
    argv += [f"--label={name}={value}" for name, value in labels.items()]
    argv += [] if request.use_cache else ["--no-cache"]
    started = time.monotonic()
    done = process.run(
        [*argv, *_secrets(folder), str(context)], log=log, on_tick=Tail(log, _announce(say)).show
    )
    if done.returncode != 0:
        raise _failure(done.output)
    return Built(
        request.name,
        identity.read_text(encoding="utf-8").strip(),
        labels,
        parse_steps(done.output),
        time.monotonic() - started,
    )


def _secrets(folder: Path) -> list[str]:
    """Return the options that hand this machine's certificates and package index to the steps that install."""
    options = []
    named = (os.environ.get(name, "") for name in _CERTIFICATES)
    certificates = next(filter(None, named), "") or _pip_setting("cert")
    if certificates and Path(certificates).is_file():
        options.append(f"--secret=id=ca,src={certificates}")
    index = next(filter(None, (os.environ.get(name, "") for name in _INDEXES)), "") or _pip_setting(
        "index-url"
    )
    if index:
        path = folder / "index"
        path.touch(mode=0o600)
        lines = [f"{name}={shlex.quote(index)}" for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL")]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options.append(f"--secret=id=index,src={path}")
    return options


def _pip_setting(key: str) -> str:
    done = process.run([sys.executable, "-m", "pip", "config", "get", f"global.{key}"])
    return done.output.strip() if done.returncode == 0 else ""


def _announce(say: Say) -> Callable[[str], None]:
    def line(text: str) -> None:
        if match := _STEP.match(text):
            say(f"step {match['position']}: {re.sub(r'--mount=[^ ]+ +', '', match['text'])}")

    return line


def parse_steps(output: str) -> tuple[Step, ...]:
    """Return the Dockerfile's steps in BuildKit's plain progress output, in the file's order."""
    texts: dict[str, tuple[int, str]] = {}
    ends: dict[str, tuple[bool, float | None]] = {}
    for line in output.splitlines():
        if match := _STEP.match(line):
            texts[match["number"]] = (int(match["position"]), match["text"])
        elif match := _ENDED.match(line):
            seconds = float(match["seconds"]) if match["seconds"] else None
            ends[match["number"]] = (bool(match["cached"]), seconds)
    order = sorted(texts, key=lambda number: texts[number][0])
    return tuple(Step(texts[number][1], *ends.get(number, (False, None))) for number in order)


def _failure(output: str) -> UserError | InfrastructureError:
    found = dict.fromkeys(line.partition(PREFIX)[2].strip() for line in output.splitlines() if PREFIX in line)
    if found:
        return UserError("the image was not built:\n" + "\n".join(found))
    tail = [line for line in output.strip().splitlines() if line.strip()][-15:]
    return InfrastructureError("docker buildx build failed:\n" + "\n".join(tail))
