"""Measure the band of the first loss from random weights: the ground of the `measured` expectations.

`python -m benchmarks.random_init` runs each random start with several seeds and prints the values and the
band. The band is the lowest and the highest value, each moved outwards by the spread between them: seeds
that were not tried may lie outside what was seen, a broken initialisation lies far outside both.
"""

import tempfile
from pathlib import Path

from harness import environment
from harness.execute import child_environment
from harness.launch import ForkLauncher
from harness.project import find_root
from harness.recipe import load_recipes
from harness.stack import load_stack
from harness.workflow import Session, Settings

__all__ = ["RULE", "band", "run"]

SEEDS = range(8)
STARTS = (("hf-backend", "random-init"), ("native", "random-init"), ("moe-nki", "stock-rope"))
RULE = "lowest and highest over 8 seeds, each moved outwards by the spread between them"


def band(values: list[float]) -> tuple[float, float]:
    """Return the band of measured first losses: lowest and highest, each moved outwards by their spread."""
    low, high = min(values), max(values)
    return low - (high - low), high + (high - low)


def run() -> None:
    """Print values and band of every random start."""
    root = find_root()
    stack = load_stack(root, "cpu")
    with tempfile.TemporaryDirectory() as scratch:
        launcher = ForkLauncher(environment.build(stack).python, child_environment(stack), Path(scratch))
        try:
            for recipe, name in STARTS:
                values = [_first_loss(root, launcher, recipe, name, seed, Path(scratch)) for seed in SEEDS]
                low, high = band(values)
                print(f"{recipe} {name}: {values}\n  low {low:.4f} high {high:.4f} ({RULE})", flush=True)
        finally:
            launcher.close()


def _first_loss(
    root: Path, launcher: ForkLauncher, recipe: str, name: str, seed: int, scratch: Path
) -> float:
    session = Session(Settings(root, output=scratch / f"{recipe}-{seed}"), launcher=launcher)
    profile = session.stack.profile.model_copy(update={"seed": seed, "steps": 1})
    session.stack = session.stack.model_copy(update={"profile": profile})
    record = session.ensure(load_recipes(root, (recipe,))[recipe], name)
    return float(record.evidence.metrics()[0]["loss"])


if __name__ == "__main__":
    run()
