"""The exceptions that end a command with one clear message instead of a traceback."""

__all__ = ["HarnessError", "InfrastructureError", "UserError"]


class HarnessError(Exception):
    """Base of everything that is reported as one message; `exit_code` is the command's."""

    exit_code = 3


class UserError(HarnessError):
    """Bad input: a file, an option or a selection that the user can mend. Exit code 2."""

    exit_code = 2


class InfrastructureError(HarnessError):
    """The machine, the network or a tool failed; nothing can be said of the recipe. Exit code 3."""

    exit_code = 3
