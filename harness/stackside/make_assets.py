"""Make the offline assets: a small corpus, a tokenizer for it and two small trained Qwen3 checkpoints.

    python -m harness.stackside.make_assets FOLDER

    FOLDER/c4_test/data.json      the corpus, one {"text", "timestamp", "url"} a line
    FOLDER/tokenizer/             byte-level BPE
    FOLDER/qwen3-tiny/            config, tokenizer and float32 weights; the head is a tensor of its own
    FOLDER/qwen3-tiny-tied/       the same shape, the head is the embedding and is not stored

The checkpoints stand for published ones: trained with plain PyTorch and Transformers until their loss is
clearly below a random model's, so that a loss tells whether they were really loaded, and no longer, so that
it still falls in the few steps of a run. Nothing in them is constant, so that wrong maths changes the loss
too. Two makings on one machine give the same bytes.
"""

import argparse
import json
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

__all__ = ["END_OF_TEXT", "MODELS", "corpus", "main", "make"]

END_OF_TEXT = "<|endoftext|>"
MODELS = {"qwen3-tiny": False, "qwen3-tiny-tied": True}
"""Folder of each checkpoint -> whether its head is tied to the embedding."""

_MAX_POSITION = 2048
_THREADS = 2
_SEQ_LEN, _BATCH, _PEAK_LR = 128, 16, 3e-3

_LENGTHS = (2, 5, 1, 12, 3)
"""Sentences per story, in turn. The start of every rank's share then packs several stories into one row, so
that causal and block-causal attention differ from the first step, and some stories span several rows."""


def _words(text: str) -> list[str]:
    return text.split("|")


_NAMES = _words(
    "Ada|Benno|Chloé|Dmitri|Elif|Farah|Goran|Hanna|Ibrahim|Jun|Kofi|Lucía|Mirela|Noor|Otto|Priya|Quentin|"
    "Rosa|Søren|Tomás|Uma|Viktor|Wanda|Ximena|Yusuf|Zoë"
)
_ROLES = _words(
    "baker|clerk|nurse|farmer|teacher|sailor|tailor|mason|painter|gardener|miller|porter|printer|doctor|"
    "fiddler|watchmaker|ferryman|beekeeper|stonecutter|librarian"
)
_VERBS = _words(
    "watched|carried|found|repaired|painted|counted|sold|lost|opened|followed|measured|forgot|borrowed|"
    "hid|cleaned|bought|drew|dropped|returned|wrapped|weighed|examined|promised|buried"
)
_THINGS = _words(
    "clock|door|letter|basket|bridge|loaf|map|gate|coin|book|wall|lamp|kettle|ladder|mirror|wagon|violin|"
    "candle|barrel|hammer|blanket|bell|window|boat|chair|key|saddle|compass|lantern|umbrella"
)
_QUALITIES = _words(
    "broken|blue|empty|wooden|warm|long|silver|heavy|narrow|old|painted|missing|strange|cheap|green|"
    "rusty|borrowed|hollow|bright|crooked"
)
_PLACES = _words(
    "by the station|near the mill|under the lamp|behind the market|on the hill|beside the lake|"
    "in the rain|at the corner|across the river|outside the café|below the tower|along the coast|"
    "in the cellar|between two barns|at the crossroads|over the stable"
)
_TIMES = _words(
    "before dawn|after supper|at noon|last winter|in early spring|on market day|during the storm|"
    "that evening|a week later|every Sunday|at half past nine|on the first of May"
)
_LINKS = _words("and then|because|so|while|but later|until|although|as soon as")


def corpus(documents: int, seed: int) -> list[str]:
    """Return `documents` short stories. Each keeps its own people, thing and year, so that context helps."""
    rng = random.Random(seed)  # noqa: S311 - stories, not secrets
    return [_story(rng, _LENGTHS[index % len(_LENGTHS)]) for index in range(documents)]


def _story(rng: random.Random, sentences: int) -> str:
    hero, friend = rng.sample(_NAMES, 2)
    role, thing, quality = rng.choice(_ROLES), rng.choice(_THINGS), rng.choice(_QUALITIES)
    year, count = rng.randint(1804, 1999), rng.randint(2, 60)

    def sentence() -> str:
        verb, again, other = rng.choice(_VERBS), rng.choice(_VERBS), rng.choice(_THINGS)
        place, when, link = rng.choice(_PLACES), rng.choice(_TIMES), rng.choice(_LINKS)
        forms = (
            f"{when.capitalize()}, {hero} the {role} {verb} the {quality} {thing} {place}.",
            f"{hero} {verb} the {thing} {link} {friend} {again} the {other}.",
            f'"Where is the {quality} {thing}?" asked {friend}; {hero} had {verb} it {place}.',
            f"In {year} there were {count} {other}s {place}, and the {role} {verb} {rng.randint(2, 9)}.",
            f"The {thing} cost {count}.{rng.randint(10, 99)} francs; {friend} {verb} a {other} instead.",
            f"{friend} met {hero} {place} {when}.",
            f"The {role}'s {quality} {thing} was {verb} {when}, {link} {friend} came home.",
        )
        return rng.choice(forms)

    opening = f"{hero} was a {role} in {year}."
    return " ".join([opening, *(sentence() for _ in range(sentences))])


def make(
    folder: Path, *, documents: int = 2000, vocabulary: int = 512, steps: int = 15, seed: int = 0
) -> None:
    """Make the assets in `folder`: `documents` stories, a tokenizer of `vocabulary` entries, two
    checkpoints trained for `steps` steps on the second half of the stories.

    Raises `FileExistsError` if the folder holds anything, and `ValueError` if the corpus is too small
    for the tokenizer.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty: assets are made in a fresh folder")
    texts = corpus(documents, seed)
    _write_corpus(folder / "c4_test", texts)
    tokenizer = _train_tokenizer(texts, vocabulary)
    _write_tokenizer(folder / "tokenizer", tokenizer)
    stream = _token_stream(tokenizer, texts[documents // 2 :])
    with _determinism(seed):
        for name, tied in MODELS.items():
            model = _new_model(tokenizer, tied=tied)
            _train(model, stream, steps=steps, seed=seed)
            _write_model(folder / name, model, folder / "tokenizer")


def _write_corpus(folder: Path, texts: list[str]) -> None:
    folder.mkdir(parents=True)
    rows = ({"text": text, "timestamp": "2026-01-01T00:00:00Z", "url": "made-on-the-spot"} for text in texts)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "data.json").write_text(lines, encoding="utf-8")


def _train_tokenizer(texts: list[str], vocabulary: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocabulary:
        raise ValueError(f"the corpus gives {tokenizer.get_vocab_size()} tokens, asked for {vocabulary}")
    return tokenizer


def _write_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": _MAX_POSITION,
    }
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _token_stream(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    end = tokenizer.token_to_id(END_OF_TEXT)
    return torch.tensor([token for encoded in tokenizer.encode_batch(texts) for token in [*encoded.ids, end]])


@contextmanager
def _determinism(seed: int) -> Iterator[None]:
    """Fix what the trained bytes depend on besides the code, and put it back afterwards."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(_THREADS)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _new_model(tokenizer: Tokenizer, *, tied: bool) -> Qwen3ForCausalLM:
    end = tokenizer.token_to_id(END_OF_TEXT)
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=_MAX_POSITION,
        rope_theta=1_000_000.0,
        rms_norm_eps=1e-6,
        tie_word_embeddings=tied,
        attention_bias=False,
        bos_token_id=None,
        eos_token_id=end,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end, do_sample=False)
    # With norm weights all one, q_norm before and after RoPE are the same function.
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def _train(model: Qwen3ForCausalLM, stream: torch.Tensor, *, steps: int, seed: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=_PEAK_LR, betas=(0.9, 0.95), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed + 1)
    window = torch.arange(_SEQ_LEN + 1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _PEAK_LR * min(1.0, (step + 1) / 10) * (1 - 0.9 * step / steps)
        starts = torch.randint(0, len(stream) - _SEQ_LEN, (_BATCH, 1), generator=generator)
        rows = stream[starts + window]
        logits = model(input_ids=rows[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _write_model(folder: Path, model: Qwen3ForCausalLM, tokenizer: Path) -> None:
    model.save_pretrained(folder)
    # The writer gives the weights to their owner only; a container reads them as another user.
    (folder / "model.safetensors").chmod(0o644)
    for path in sorted(tokenizer.iterdir()):
        shutil.copy(path, folder)


def main(arguments: list[str] | None = None) -> int:
    """Make the assets as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.stackside.make_assets", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    transformers_logging.disable_progress_bar()
    make(**vars(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
