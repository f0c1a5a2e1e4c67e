"""Which tokens each rank is given at each step, from the definition: tokenisation, packing, sharing out.

Written a second time, independently of torchtitan 0.3.0's `hf_datasets/text_datasets.py`, whose behaviour
for a map-style dataset it states.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from harness.stackside.digests import batch_sha256

__all__ = ["Batch", "batches", "pack", "read_corpus", "share", "tokenise"]


@dataclass(frozen=True, slots=True)
class Batch:
    """One rank's batch of one step; every tensor is int64 [local batch, seq]."""

    input_ids: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor

    def sha256(self) -> str:
        """Return the digest that the run records of the batch it was given."""
        return batch_sha256(self.input_ids, self.positions)


def read_corpus(folder: Path) -> list[str]:
    """Return the texts of `folder/data.json`, one JSON object with `text` a line.

    Raises `ValueError` if the folder holds other files: `datasets` would read those too.
    """
    others = sorted(
        path.name for path in folder.iterdir() if path.name != "data.json" and path.name[0] != "."
    )
    if others:
        raise ValueError(f"{folder}: {others[0]} lies beside data.json and would be part of the dataset")
    lines = (folder / "data.json").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines if line]


def tokenise(folder: Path, texts: Iterable[str]) -> Iterator[list[int]]:
    """Yield each text's token ids with the tokenizer in `folder`: beginning token (if any), text, end token.

    Raises `ValueError` if the tokenizer's configuration names no end token.
    """
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    begin, end = (_special(tokenizer, settings, name) for name in ("bos_token", "eos_token"))
    if end is None:
        raise ValueError(f"{folder / 'tokenizer_config.json'}: no eos_token: documents cannot be told apart")
    added = tokenizer.encode("").ids
    before = [begin] if begin is not None and begin not in added else []
    after = [end] if end not in added else []
    for text in texts:
        yield [*before, *tokenizer.encode(text).ids, *after]


def _special(tokenizer: Tokenizer, settings: Mapping[str, Any], name: str) -> int | None:
    token = settings.get(name)
    if isinstance(token, Mapping):
        token = token["content"]
    return None if token is None else tokenizer.token_to_id(token)


def pack(
    documents: Iterable[Sequence[int]], seq_len: int
) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield full rows (inputs, labels, positions), each `seq_len` long.

    Labels are the inputs shifted by one within a document, so a document of n tokens gives n - 1 of each
    and no label crosses into the next document. Positions count from 0 in each document; what is left of
    a document in the next row counts from 0 again.
    """
    row: list[tuple[int, int, int]] = []
    for document in documents:
        position = 0
        for token, label in pairwise(document):
            row.append((token, label, position))
            position += 1
            if len(row) == seq_len:
                inputs, labels, positions = (list(column) for column in zip(*row, strict=True))
                yield inputs, labels, positions
                row, position = [], 0


def share(texts: Sequence[str], rank: int, ranks: int) -> Sequence[str]:
    """Return rank `rank`'s contiguous part; the first `len(texts) % ranks` ranks get one text more."""
    size, longer = divmod(len(texts), ranks)
    start = rank * size + min(rank, longer)
    return texts[start : start + size + (rank < longer)]


def batches(
    model: Path, texts: Sequence[str], *, ranks: int, steps: int, seq_len: int, local_batch_size: int
) -> list[list[Batch]]:
    """Return the batches of every step, each a list by rank.

    Raises `ValueError` if a rank's share of the corpus ends before: the second pass is shuffled, and
    that order is not repeated here.
    """
    needed = steps * local_batch_size
    by_rank: list[list[Batch]] = []
    for rank in range(ranks):
        documents = tokenise(model, share(texts, rank, ranks))
        rows = list(islice(pack(documents, seq_len), needed))
        if len(rows) < needed:
            raise ValueError(
                f"the corpus gives rank {rank} of {ranks} only {len(rows)} rows of {seq_len} tokens, {needed} are "
                "needed. Next: fewer steps, or a larger corpus"
            )
        columns = (torch.tensor(column).split(local_batch_size) for column in zip(*rows, strict=True))
        by_rank.append([Batch(*parts) for parts in zip(*columns, strict=True)])
    return [list(step) for step in zip(*by_rank, strict=True)]
