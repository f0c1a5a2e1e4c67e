"""Versions with their build labels: `2.9.0`, `2.9.0+cpu` and `2.9.0+cu130` are three different builds."""

__all__ = ["label", "number", "other_build"]


def number(version: str) -> str:
    """Return a version without its build label: "2.9.0+cpu" gives "2.9.0"."""
    return version.partition("+")[0]


def label(version: str) -> str:
    """Return the build label of a version, empty if it has none: "2.9.0+cpu" gives "cpu"."""
    return version.partition("+")[2]


def other_build(one: str, other: str) -> bool:
    """Return whether two versions have the same number and different build labels."""
    return one != other and number(one) == number(other)
