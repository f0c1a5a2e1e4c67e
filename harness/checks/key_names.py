"""Names of tensors: wrappers, common prefixes, likely renames and the allow-list. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

__all__ = [
    "WRAPPERS",
    "AllowedKeys",
    "PrefixFault",
    "canonicalise",
    "find_prefix_fault",
    "likely_renames",
    "wrappers_in",
]

WRAPPERS = (
    "_orig_mod",  # torch.compile, at whatever level it was called
    "module",  # DataParallel, DistributedDataParallel, DeepSpeed
    "_fsdp_wrapped_module",  # FullyShardedDataParallel
    "_checkpoint_wrapped_module",  # activation checkpointing
    "_forward_module",  # Lightning Fabric
)
"""Path components that wrappers put into names; none is part of a Qwen3 tensor's name."""

Shapes = Mapping[str, tuple[int, ...]]

_SAMPLE = 8
_CANDIDATES = 16
_MOST_RENAMES = 8
_SIMILAR = 0.6
"""`difflib`'s own rule of thumb for a close match."""


@dataclass(frozen=True, slots=True)
class AllowedKeys:
    """An allow-list entry: `count` keys, no more and no fewer, may be missing or unexpected.

    `pattern` is a whole name in which `*` stands for any text, dots included; `rule` is what messages
    call the entry.
    """

    rule: str
    pattern: str
    count: int
    side: Literal["unexpected", "missing"] = "unexpected"

    def matches(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that the pattern matches as a whole."""
        expression = re.compile(".*".join(re.escape(part) for part in self.pattern.split("*")), re.DOTALL)
        return [name for name in names if expression.fullmatch(name)]


@dataclass(frozen=True, slots=True)
class PrefixFault:
    """Names that match once prefix `remove` is replaced by `add`; `pairs` maps found to wanted."""

    remove: str
    add: str
    pairs: Mapping[str, str]

    @property
    def repair(self) -> str:
        """The repair in words."""
        if not self.remove:
            return f'adding prefix "{self.add}"'
        return (
            f'removing prefix "{self.remove}"'
            if not self.add
            else f'replacing prefix "{self.remove}" by "{self.add}"'
        )


def wrappers_in(name: str) -> tuple[str, ...]:
    """Return the wrapper components in `name`, in order, repeated as they stand."""
    return tuple(component for component in name.split(".") if component in WRAPPERS)


def canonicalise(name: str) -> str:
    """Return `name` without wrapper components, wherever and however often they stand.

    Doing it twice changes nothing. A name that consists of wrappers only is returned as it is.
    """
    kept = ".".join(component for component in name.split(".") if component not in WRAPPERS)
    return kept or name


def find_prefix_fault(missing: Shapes, unexpected: Shapes) -> PrefixFault | None:
    """Return the prefix change that turns most of `unexpected` into `missing`, or None.

    Names are paired only where the shapes agree. A prefix that is added or removed counts from one
    pair on, a replaced one from two: any two names that end in `.weight` would else be a pair.
    """
    best: PrefixFault | None = None
    for remove, add in _candidates(sorted(missing), sorted(unexpected)):
        pairs = {}
        for name, shape in unexpected.items():
            wanted = add + name[len(remove) :]
            if name.startswith(remove) and missing.get(wanted) == shape:
                pairs[name] = wanted
        if len(pairs) >= (2 if remove and add else 1) and (best is None or len(pairs) > len(best.pairs)):
            best = PrefixFault(remove, add, pairs)
    return best


def likely_renames(missing: Shapes, unexpected: Shapes) -> dict[str, str]:
    """Return likely pairs of missing and unexpected names: same shape, and alike or the only choice.

    Looks only at short lists; a long one is not a case of renamed keys.
    """
    if max(len(missing), len(unexpected)) > _MOST_RENAMES:
        return {}
    pairs: dict[str, str] = {}
    for name in sorted(missing):
        choices = [other for other in sorted(unexpected) if unexpected[other] == missing[name]]
        choices = [other for other in choices if other not in pairs.values()]
        if not choices:
            continue
        ratio, closest = max((SequenceMatcher(None, name, other).ratio(), other) for other in choices)
        if ratio >= _SIMILAR or len(missing) == len(unexpected) == 1:
            pairs[name] = closest
    return pairs


def _candidates(missing: Sequence[str], unexpected: Sequence[str]) -> list[tuple[str, str]]:
    """Return the most promising prefix changes, seen on a sample spread over `unexpected`.

    The right change turns up for every sampled name, a chance one only for names of one layer.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for name in unexpected[:: max(1, len(unexpected) // _SAMPLE)]:
        seen.update({change for other in missing if (change := _change(name, other)) is not None})
    ranked = sorted(seen.items(), key=lambda item: (bool(item[0][0] and item[0][1]), -item[1], item[0]))
    return [change for change, _ in ranked[:_CANDIDATES]]


def _change(name: str, wanted: str) -> tuple[str, str] | None:
    """Return what must be removed from and added to `name`'s front to make it `wanted`."""
    ours, theirs = name.split("."), wanted.split(".")
    common = 0
    while common < min(len(ours), len(theirs)) and ours[-1 - common] == theirs[-1 - common]:
        common += 1
    remove = "".join(f"{component}." for component in ours[: len(ours) - common])
    add = "".join(f"{component}." for component in theirs[: len(theirs) - common])
    if not common or (remove and add and common < 2):
        return None
    return remove, add
