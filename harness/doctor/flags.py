"""Compiler flags, independent of their order and spelling."""

import shlex

from harness.checks.finding import Finding

__all__ = ["compare_flags", "logical_cores_flag", "normalise_flags", "parse_flags"]

_ALIASES = {
    "-O": "--optlevel",
    "-lnc": "--lnc",
    "--logical-nc-config": "--lnc",
}
_NOT_COMPILED = frozenset({"--cache_dir", "--retry_failed_compilation", "--log_level", "--verbose", "-v"})
"""Flags of the wrapper or the log: they do not change the binary."""


def parse_flags(text: str) -> dict[str, str]:
    """Return NEURON_CC_FLAGS as flag -> value (empty for a switch); of a repeated flag the last one counts.

    `--flag=value` and `--flag value` are one form, and so are the documented aliases
    (`-O1`, `-O 1`, `--optlevel=1`; `-lnc 2`, `--logical-nc-config=2`, `--lnc=2`).
    """
    try:
        tokens = shlex.split(text)
    except ValueError:
        tokens = text.split()
    flags: dict[str, str] = {}
    last = ""
    for token in tokens:
        if not token.startswith("-") or _is_number(token):
            if last and not flags[last]:
                flags[last] = token
            else:
                flags[token] = ""
            continue
        name, _, value = token.partition("=")
        if name.startswith("-O") and name[2:].isdigit():
            name, value = "-O", name[2:]
        last = _ALIASES.get(name, name)
        flags[last] = value
    return flags


def _is_number(token: str) -> bool:
    return token.lstrip("-").replace(".", "", 1).isdigit()


def normalise_flags(text: str) -> tuple[str, ...]:
    """Return the flags that change the compiled binary, sorted, in one spelling."""
    return tuple(
        sorted(
            f"{name}={value}" if value else name
            for name, value in parse_flags(text).items()
            if name not in _NOT_COMPILED
        )
    )


def compare_flags(first: str, second: str, names: tuple[str, str] = ("A", "B")) -> Finding | None:
    """Return what differs between two settings of NEURON_CC_FLAGS that change the binary, None if nothing does.

    Artefacts and losses made with different flags are not the same experiment, whatever the cache says.
    """
    one, other = normalise_flags(first), normalise_flags(second)
    if one == other:
        return None
    only = [
        " ".join(flag for flag in mine if flag not in theirs) for mine, theirs in ((one, other), (other, one))
    ]
    message = (
        f"NEURON_CC_FLAGS differ: {names[0]} has {only[0] or 'none of its own'}, "
        f"{names[1]} has {only[1] or 'none of its own'}; a difference in loss cannot be put down to the packages. "
        "Next: compile both with the same flags."
    )
    return Finding("compiler.flags", message, {names[0]: list(one), names[1]: list(other)})


def logical_cores_flag(text: str) -> int | None:
    """Return the LNC that NEURON_CC_FLAGS asks the compiler for, None if it names none or no number."""
    value = parse_flags(text).get("--lnc", "")
    return int(value) if value.isdigit() else None
