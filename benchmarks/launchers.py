"""Where a recipe's wall time goes: the harness beside torchrun by hand, and forked ranks beside torchrun."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import environment
from harness.execute import child_environment
from harness.launch import torchrun_command
from harness.project import find_root
from harness.stack import Stack, load_stack

__all__ = ["run"]

RECIPE, RUN = "native", "random-init"
"""Two torchrun starts (the seed checkpoint by one rank, then the training by two) and no reference."""
REPEATS = 3


def run() -> None:
    """Print what the harness adds to torchrun by hand, and what forking saves."""
    root = find_root()
    stack = load_stack(root, "cpu")
    python = environment.build(stack).python
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # Once without the clock: bytecode and data set caches fill.
        _harness(root, folder / "warm", ["--run", RUN, "--launcher", "fork"])
        through, hand = [], []
        for turn in range(REPEATS):
            made = folder / f"harness-{turn}"
            through.append(_harness(root, made, ["--run", RUN, "--launcher", "torchrun"]))
            hand.append(_by_hand(stack, python, made / RECIPE, folder / f"hand-{turn}"))
        with_torchrun, by_hand = statistics.median(through), statistics.median(hand)
        print(f"{RECIPE} {RUN}: torchrun by hand {by_hand:.1f} s, through the harness {with_torchrun:.1f} s")
        print(
            f"the harness adds {with_torchrun - by_hand:.2f} s, ratio {with_torchrun / by_hand:.3f} (target: under 2 s)"
        )
        forked = _harness(root, folder / "fork-all", ["--launcher", "fork"])
        started = _harness(root, folder / "torchrun-all", ["--launcher", "torchrun"])
        print(f"recipe {RECIPE}, all runs: torchrun {started:.1f} s, imported once and forked {forked:.1f} s")
        print(f"torchrun takes {started / forked:.2f} x as long")


def _harness(root: Path, output: Path, arguments: list[str]) -> float:
    harness = str(Path(sys.executable).with_name("harness"))
    argv = [harness, "-C", str(root), "run", RECIPE, "--output", str(output), *arguments]
    began = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - began


def _by_hand(stack: Stack, python: Path, made: Path, folder: Path) -> float:
    """Repeat a run's torchrun starts from copies of its request files; return the seconds they took."""
    total = 0.0
    seed = made / f"{RUN}.seed"
    for original, ranks in ((seed, 1), (made / RUN, stack.ranks)):
        target = folder / original.name
        target.mkdir(parents=True)
        request = json.loads((original / "request.json").read_text())
        request["folder"] = str(target)
        (target / "request.json").write_text(json.dumps(request))
        env = {**os.environ, **child_environment(stack), "HARNESS_REQUEST": str(target / "request.json")}
        began = time.perf_counter()
        subprocess.run(torchrun_command(python, ranks), env=env, cwd=target, capture_output=True, check=True)
        total += time.perf_counter() - began
    return total


if __name__ == "__main__":
    run()
