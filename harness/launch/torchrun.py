"""The launcher a run can always be repeated with: torchrun."""

from collections.abc import Callable
from pathlib import Path

from harness import evidence, process
from harness.launch.job import Ended, Job

__all__ = ["TorchrunLauncher", "torchrun_command"]


def torchrun_command(python: Path, ranks: int) -> list[str]:
    """Return the command that starts a training run's ranks; its request comes from the environment."""
    return [
        str(python),
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        "-m",
        "harness.stackside.entry",
    ]


class TorchrunLauncher:
    """Starts every job in processes of its own."""

    def __init__(self, python: Path) -> None:
        """Use the stack's `python`."""
        self.python = python

    def launch(self, job: Job, on_tick: Callable[[], None] | None = None) -> Ended:
        """Run `job` by torchrun, or by the stack's Python if it is a call."""
        if job.ranks:
            argv = torchrun_command(self.python, job.ranks)
        else:
            request = job.folder / f"request-{job.module.rpartition('.')[2]}.json"
            evidence.write_json(request, dict(job.request))
            argv = [str(self.python), "-m", job.module, str(request)]
        done = process.run(
            argv, env=job.env, cwd=job.folder, log=job.log, timeout=job.timeout, on_tick=on_tick
        )
        return Ended({0: done.returncode}, done.ended, done.seconds, done.output)

    def close(self) -> None:
        """Nothing outlives a job."""
