"""A `docker` that is a script: it notes how it was called, and answers what a test wrote down."""

import json
from pathlib import Path

import pytest

_SCRIPT = """#!/usr/bin/env python3
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
for name, (code, output) in json.loads((folder / "answers.json").read_text()).items():
    if " ".join(sys.argv[1:]).startswith(name):
        for word in sys.argv:
            if word.startswith("--iidfile="):
                pathlib.Path(word.partition("=")[2]).write_text("sha256:" + "b" * 64)
            if word.startswith("--secret=") and "id=index" in word:
                pathlib.Path(folder / "index").write_text(pathlib.Path(word.rpartition("=")[2]).read_text())
        print(output, end="")
        sys.exit(code)
print("Error: No such object", file=sys.stderr)
sys.exit(1)
"""


class FakeDocker:
    """Answers by the beginning of the command line; the first entry that fits wins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers: dict[str, tuple[int, str]] = {}
        self.answer("version", 0, "28.0.0\n")
        self.answer("buildx version", 0, "v0.13\n")

    def answer(self, command: str, code: int, output: str = "") -> None:
        """Say what a command that begins so does."""
        self.answers[command] = (code, output)
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def has_image(self, name: str, identity: str) -> None:
        """Let an image be on this machine."""
        self.answer(f"image inspect {name}", 0, json.dumps([{"Id": identity}]))

    @property
    def calls(self) -> list[list[str]]:
        """Every call so far, as its arguments."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls_of(self, *words: str) -> list[list[str]]:
        """The calls that begin with these words."""
        return [call for call in self.calls if tuple(call[: len(words)]) == words]


@pytest.fixture
def fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    """The only `docker` on the path."""
    folder = tmp_path / "fake-docker"
    folder.mkdir()
    (folder / "docker").write_text(_SCRIPT)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "HARNESS_CPU_IMAGE"):
        monkeypatch.delenv(name, raising=False)
    return FakeDocker(folder)
