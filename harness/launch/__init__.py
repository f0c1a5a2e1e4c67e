"""Launchers: one small interface to start what runs inside a stack.

`fork` imports the stack once and forks the ranks of many runs; `torchrun` starts every run anew, as a
user would by hand. Both start the same entry point with the same request file.
"""

from harness.launch.fork import ForkLauncher
from harness.launch.job import Ended, Job, Launcher
from harness.launch.torchrun import TorchrunLauncher, torchrun_command

__all__ = ["Ended", "ForkLauncher", "Job", "Launcher", "TorchrunLauncher", "torchrun_command"]
