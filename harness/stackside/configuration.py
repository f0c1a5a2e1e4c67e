"""Compare a resolved torchtitan configuration with what was asked.

Standard library only: the stack asserts with it before training starts, and the controller's
`configuration` check judges the evidence with the same words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["MISSING", "ConfigurationError", "Difference", "differences", "look_up"]

MISSING = "<not in the configuration>"


class ConfigurationError(RuntimeError):
    """The resolved configuration is not what the recipe asked; training did not start."""


class Difference(tuple[str, Any, Any]):
    """(dotted key, expected, found)."""

    __slots__ = ()

    def __str__(self) -> str:
        key, expected, found = self
        return f"{key} is {found!r}, asked was {expected!r}"


def look_up(configuration: Mapping[str, Any], dotted: str) -> Any:
    """Return the value at a dotted key (digits index lists), `MISSING` if there is none."""
    value: Any = configuration
    for part in dotted.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and part.isdigit()
            and int(part) < len(value)
        ):
            value = value[int(part)]
        else:
            return MISSING
    return value


def differences(configuration: Mapping[str, Any], expected: Mapping[str, Any]) -> list[Difference]:
    """Return every asked value that the configuration does not have, by key."""
    found = {key: look_up(configuration, key) for key in expected}
    return [
        Difference((key, expected[key], found[key]))
        for key in sorted(expected)
        if not _same(expected[key], found[key])
    ]


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return isinstance(found, Sequence) and not isinstance(found, str) and list(expected) == list(found)
    return bool(expected == found)
