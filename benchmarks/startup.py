"""How long the command line takes to answer, beside an empty Python."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["run"]

REPEATS = 7


def run() -> None:
    """Print the median wall time of `harness --help` and `harness list`, and their ratio to `python -c pass`."""
    harness = str(Path(sys.executable).with_name("harness"))
    empty = _median([sys.executable, "-c", "pass"])
    print(f"python -c pass    {empty:.3f} s")
    for arguments in (["--help"], ["list"]):
        seconds = _median([harness, *arguments])
        name = f"harness {' '.join(arguments)}"
        print(f"{name:18}{seconds:.3f} s, {seconds / empty:.1f} x an empty Python (target: under 0.4 s)")


def _median(argv: list[str]) -> float:
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    run()
