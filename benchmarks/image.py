"""An edited recipe, built anew: in the layers of our Dockerfile, and in one layer that does everything.

Both install with the same installer from the same download cache, on the same base; the one-layer image
would otherwise also download everything again. Then the cpu image is built a second time without any cached
layer, and both are compared by content. Needs a Docker engine (scripts/docker-engine.sh) and 30 GB of disk.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.image.build import Built, Request, build_image, compare_builds
from harness.image.context import FILES, FOLDERS
from harness.stack import load_stack

__all__ = ["measure", "run"]

ROOT = Path(__file__).resolve().parent.parent
TARGET_SECONDS = 15.0


def run() -> None:
    """Measure with an engine: the one that runs, or a private one that is stopped afterwards."""
    argv = [sys.executable, "-c", "from benchmarks.image import measure; measure()"]
    subprocess.run([str(ROOT / "scripts" / "docker-engine.sh"), "run", *argv], check=True, cwd=ROOT)


def measure() -> None:
    """Print how long a rebuild takes after a recipe was edited, in both layouts, and what two builds share."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(ROOT / "scripts" / "test-base-image.sh")], check=True, capture_output=True, text=True
        )
        base = done.stdout.strip()
        ours = _request(Path(folder) / "ours", base, "trn-harness-bench:ours")
        naive = _request(Path(folder) / "naive", base, "trn-harness-bench:naive")
        dockerfile = naive.root / "Dockerfile"
        dockerfile.write_text(_in_one_layer(dockerfile.read_text()))
        times = {}
        for name, request in (("our layers", ours), ("one layer", naive)):
            build_image(request)
            recipe = request.root / "recipes" / "native" / "config.py"
            recipe.write_text(recipe.read_text() + "# edited\n")
            built = build_image(request)
            times[name] = built.seconds
            print(f"{name:11}{built.seconds:6.1f} s after an edited recipe, {_installed(built)}", flush=True)
        ratio = times["one layer"] / times["our layers"]
        print(f"{'':11}{ratio:6.1f} x faster (target: under {TARGET_SECONDS:.0f} s)", flush=True)
        first, comparison = compare_builds(ours)
        print(f"cpu image {first.id[7:19]} built twice: " + "\n".join(comparison.lines()))
        for request in (ours, naive):
            subprocess.run(
                ["docker", "image", "rm", "--force", request.name], capture_output=True, check=False
            )


def _request(folder: Path, base: str, tag: str) -> Request:
    folder.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return Request(folder, load_stack(folder, "cpu"), base, True, tag)


def _in_one_layer(dockerfile: str) -> str:
    """Return our Dockerfile with everything copied first, and every step in a single RUN at the end."""
    text = dockerfile.replace("\\\n", " ")
    copies = re.findall(r"^COPY .*$", text, re.MULTILINE)
    runs = re.findall(r"^RUN (.*?)(sh \S+ \w+)$", text, re.MULTILINE)
    mounts = max((mounts for mounts, _ in runs), key=len)
    steps = " && ".join(step for _, step in runs)
    rest = re.sub(r"^(COPY|RUN) .*$", "", text, flags=re.MULTILINE)
    head, user, tail = rest.partition("\nENV ")
    return "\n".join([head, *copies, f"RUN {mounts}{steps}", f"{user.strip()} {tail}"])


def _installed(built: Built) -> str:
    ran = [step.text.split()[-1] for step in built.steps if step.text.startswith("RUN") and not step.cached]
    return f"{len(ran)} installing steps ran"


if __name__ == "__main__":
    run()
