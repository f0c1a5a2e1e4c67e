"""`harness build`: what it prints, and its exit code."""

import json
from collections.abc import Callable
from pathlib import Path

from harness.image.build import Request, build_image, compare_builds
from harness.stack import load_stack

__all__ = ["run_build"]


def run_build(
    root: Path,
    stack: str,
    base: str | None,
    allow_local_base: bool,
    tag: str | None,
    *,
    compare: bool,
    as_json: bool,
    echo: Callable[[str], None],
    say: Callable[[str], None],
) -> int:
    """Build the image of `stack` and print its id; with `compare` build it twice and print what differs.

    Returns 0, or 1 if two builds differ in content. Raises as `build_image`.
    """
    request = Request(root, load_stack(root, stack), base, allow_local_base, tag)
    comparison = None
    if compare:
        built, comparison = compare_builds(request, say=say)
    else:
        built = build_image(request, say=say)
    if as_json:
        data = {
            "name": built.name,
            "id": built.id,
            "labels": built.labels,
            "seconds": round(built.seconds, 1),
            "steps": [
                {"text": step.text, "cached": step.cached, "seconds": step.seconds} for step in built.steps
            ],
        }
        if comparison is not None:
            data["differences"] = list(comparison.differences)
        echo(json.dumps(data, indent=1))
    else:
        cached = sum(step.cached for step in built.steps)
        say(f"{built.name}: {len(built.steps)} steps, {cached} of them cached, {built.seconds:.1f} s")
        echo(built.id)
        for line in comparison.lines() if comparison is not None else ():
            echo(line)
    return 1 if comparison is not None and not comparison.equal else 0
