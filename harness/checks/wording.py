"""Words shared by the messages of checks: names made safe to print, short lists, counts."""

from collections.abc import Iterable

__all__ = ["counted", "few", "shown"]

_LONGEST_NAME = 160


def shown(name: object) -> str:
    """Return `name` as one printable line of at most 160 characters.

    Names come out of files that may be damaged: control characters and lone surrogates are escaped,
    so that a message can always be printed and stays on its line.
    """
    text = name if isinstance(name, str) else repr(name)
    if not text.isprintable():
        text = ascii(text)[1:-1]
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."


def few(names: Iterable[object], limit: int = 3) -> str:
    """Return the first `limit` names, in the order given, and how many more there are."""
    every = list(names)
    text = ", ".join(shown(name) for name in every[:limit])
    return f"{text} and {len(every) - limit} more" if len(every) > limit else text


def counted(number: int, noun: str) -> str:
    """Return `number` with its noun in the right form: "1 tensor", "12 tensors"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
