"""What fails a build, and what a build keeps: shown on real images of a few small packages."""

import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness import process
from harness.errors import HarnessError, UserError
from harness.image.build import Request, build_image, compare_builds
from harness.image.content import compare
from harness.pins import SourcePin
from tests.conftest import ROOT
from tests.docker.conftest import PROJECT, build

Small = Callable[..., Request]
SITE = "/usr/lib/python3/dist-packages"


def lock_of(*names: str) -> str:
    """The entries of the cpu stack's own lock for some packages."""
    entries = re.split(r"\n(?=\S)", (ROOT / "lockfiles" / "cpu" / "requirements.lock").read_text())
    found = [entry.rstrip("\n") + "\n" for entry in entries if entry.partition("==")[0] in names]
    assert len(found) == len(names)
    return "".join(found)


@pytest.fixture
def base_with(base: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Makes a base that carries further distributions, by name: version, more of METADATA, the module."""
    made: list[str] = []

    def image(**distributions: tuple[str, ...]) -> str:
        folder = tmp_path / f"base-{len(made)}"
        for module, (version, more, *content) in distributions.items():
            info = folder / f"{module}-{version}.dist-info"
            info.mkdir(parents=True)
            (folder / module).mkdir()
            (folder / module / "__init__.py").write_text("".join(content))
            name = module.replace("_", "-")
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
            (info / "RECORD").write_text(
                f"{module}/__init__.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n"
            )
        (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY . {SITE}/\n")
        made.append(f"{PROJECT}-base:{secrets.token_hex(4)}")
        done = process.run(["docker", "build", "--quiet", f"--tag={made[-1]}", str(folder)])
        assert done.returncode == 0, done.output
        return made[-1]

    yield image
    for name in made:
        process.run(["docker", "image", "rm", "--force", name])


def inside(image: str, code: str) -> str:
    argv = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--entrypoint=/opt/stack/bin/python",
        image,
        "-c",
        code,
    ]
    done = process.run(argv)
    assert done.returncode == 0, done.output
    return done.output.strip()


def test_every_public_placeholder_in_the_lock_fails_the_build(small: Small) -> None:
    lock = (Path(__file__).parent / "placeholders.lock").read_text()
    with pytest.raises(UserError) as caught:
        build(small(lock))
    message = str(caught.value)
    for name in re.findall(r"^([a-z-]+)==", lock, re.MULTILINE):
        assert f"lock.placeholder: {name} " in message
    assert caught.value.exit_code == 2


def test_a_placeholder_in_the_base_fails_the_build(small: Small, base_with: Callable[..., str]) -> None:
    base = base_with(neuronx_cc=("1.0.post1", "Summary: WRONG PACKAGE, see the vendor's index\n"))
    with pytest.raises(UserError, match=r"base\.placeholder: neuronx-cc 1\.0\.post1 in the base"):
        build(small(lock_of("einops"), base=base))


def test_the_bases_own_build_of_torch_stays(small: Small, base_with: Callable[..., str]) -> None:
    base = base_with(torch=("2.14.0", ""))
    built = build(small(lock_of("torch", "einops"), base=base, keeps=("torch",)))
    assert inside(built.id, "import torch; print(torch.__file__)") == f"{SITE}/torch/__init__.py"
    assert "/opt/stack" in inside(built.id, "import einops; print(einops.__file__)")
    code = "import json; print(json.load(open('/opt/harness/image.json'))['kept'])"
    assert inside(built.id, code) == "['torch']"


def test_a_lock_that_would_replace_the_bases_torch_fails_the_build(
    small: Small, base_with: Callable[..., str]
) -> None:
    base = base_with(torch=("2.14.0+neuron", ""))
    with pytest.raises(UserError, match=r"the base carries torch 2\.14\.0\+neuron, the lock pins 2\.14\.0"):
        build(small(lock_of("torch", "einops"), base=base, keeps=("torch",)))


def test_a_missing_dependency_and_an_unsuitable_one_fail_the_build(
    small: Small, base_with: Callable[..., str]
) -> None:
    base = base_with(oldtool=("1.0", "Requires-Dist: einops<0.1\n"))
    with pytest.raises(UserError) as caught:
        # rich needs markdown-it-py and pygments.
        build(small(lock_of("einops", "rich"), base=base))
    assert "rich 15.0.0 requires markdown-it-py, which is not installed" in str(caught.value)


@pytest.fixture
def titan(tmp_path: Path) -> Path:
    """The files of a pinned commit: a package with one module."""
    folder = tmp_path / "titan"
    (folder / "titan").mkdir(parents=True)
    (folder / "titan" / "__init__.py").write_text("pinned = True\n")
    project = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    project += '[project]\nname = "titan"\nversion = "1.0+fork"\n[tool.setuptools]\npackages = ["titan"]\n'
    (folder / "pyproject.toml").write_text(project)
    return folder


@pytest.mark.parametrize("base_has", ["nothing", "the commit", "something else"])
def test_a_pinned_commit_is_installed_kept_or_refused(
    small: Small, base_with: Callable[..., str], base: str, titan: Path, base_has: str
) -> None:
    content = "pinned = True\n" if base_has == "the commit" else "pinned = False\n"
    chosen = base if base_has == "nothing" else base_with(titan=("1.0+fork", "", content))
    request = small(lock_of("setuptools"), base=chosen)
    pin = SourcePin(
        version="1.0+fork",
        repository="https://example.test/titan",
        ref="v1",
        commit="a" * 40,
        tree=f"sha256:{'b' * 64}",
    )
    stack = request.stack.model_copy(update={"sources": {"titan": pin}})
    request = replace(request, stack=stack)
    if base_has == "something else":
        with pytest.raises(
            UserError, match=r"base\.source: titan 1\.0\+fork in the base: .* is no file of commit"
        ):
            build_image(request, fetch=lambda name, pin: titan)
        return
    built = build_image(request, fetch=lambda name, pin: titan)
    where = inside(built.id, "import titan; print(titan.pinned, titan.__file__)")
    assert where.startswith("True " + (SITE if base_has == "the commit" else "/opt/stack"))


def test_a_wrong_hash_fails_the_build_and_names_the_package(small: Small) -> None:
    lock = re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", lock_of("einops"))
    with pytest.raises(HarnessError, match="einops"):
        build(small(lock))


def test_two_builds_hold_the_same_and_a_change_is_named(small: Small) -> None:
    request = small(lock_of("einops"))
    built, comparison = compare_builds(request)
    assert comparison.equal, comparison.lines()
    print(*comparison.lines(), sep="\n")
    recipe = request.root / "recipes" / "native" / "config.py"
    recipe.write_text(recipe.read_text() + "# edited\n")
    other = build(request)
    lines = compare(built.id, other.id).differences
    assert [line.partition(":")[0] for line in lines] == ["project/recipes/native/config.py"]


def test_no_secret_of_the_building_machine_is_in_the_image(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"mark-{secrets.token_hex(12)}"
    # The installer's own default index, with credentials that must not stay anywhere.
    index = index_of_this_machine().replace("://", f"://user:{mark}@", 1)
    certificates = tmp_path / f"{mark}.crt"
    known = next(filter(Path.is_file, map(Path, ("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"))))
    certificates.write_text(f"{known.read_text()}\n# {mark}\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates))
    monkeypatch.setenv("UV_DEFAULT_INDEX", index)
    request = small(lock_of("einops"))
    built = build(Request(request.root, request.stack, request.base, True, request.tag, use_cache=False))
    history = process.run(["docker", "history", "--no-trunc", built.id]).output
    archive = tmp_path / "image.tar"
    assert process.run(["docker", "save", f"--output={archive}", built.id]).returncode == 0
    assert mark not in history
    assert not contains(archive, mark.encode())
    assert contains(archive, b"einops")


def index_of_this_machine() -> str:
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    configured = process.run(["python3", "-m", "pip", "config", "get", "global.index-url"])
    if configured.returncode == 0:
        return configured.output.strip()
    done = process.run(["/usr/bin/python3", "-c", code])
    assert done.returncode == 0, done.output
    return done.output.strip()


def contains(archive: Path, text: bytes) -> bool:
    """Whether the bytes are anywhere in the image's layers, which are stored uncompressed."""
    with archive.open("rb") as file:
        before = b""
        while chunk := file.read(1 << 20):
            if text in before + chunk:
                return True
            before = chunk[-len(text) :]
    return False
