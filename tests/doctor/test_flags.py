"""Compiler flags are compared by what they do to the binary, not by how they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.doctor.flags import compare_flags, logical_cores_flag, normalise_flags, parse_flags


@pytest.mark.parametrize(
    "text",
    [
        "--model-type=transformer -O1 --lnc=2",
        "-O1 --lnc 2 --model-type transformer",
        "--optlevel=1 --logical-nc-config=2 --model-type=transformer",
        "-O 1 -lnc 2 --model-type=transformer",
        "-O2 -O1 --lnc=2 --model-type=transformer --cache_dir=/x --retry_failed_compilation",
        "  --lnc=2   --optlevel 1  --model-type='transformer' ",
    ],
)
def test_one_meaning_has_one_form(text: str) -> None:
    assert normalise_flags(text) == ("--lnc=2", "--model-type=transformer", "--optlevel=1")


def test_equal_flags_are_no_finding() -> None:
    assert compare_flags("-O1 --model-type=transformer", "--model-type transformer --optlevel=1") is None
    assert compare_flags("", "--log_level=INFO") is None


def test_other_flags_name_both_sides() -> None:
    finding = compare_flags(
        "--model-type=transformer -O1", "-O2 --model-type=transformer --enable-mixed-precision-accumulation"
    )
    assert finding is not None
    assert finding.code == "compiler.flags"
    assert "A has --optlevel=1, B has --enable-mixed-precision-accumulation --optlevel=2" in finding.message
    assert "cannot be put down to the packages" in finding.message
    assert finding.data["A"] == ["--model-type=transformer", "--optlevel=1"]


def test_one_side_without_flags_is_named() -> None:
    finding = compare_flags("", "-O3", ("old", "new"))
    assert finding is not None
    assert "old has none of its own, new has --optlevel=3" in finding.message


@pytest.mark.parametrize(
    ("text", "lnc"),
    [
        ("--lnc=1", 1),
        ("-lnc 2", 2),
        ("--logical-nc-config=1 -O1", 1),
        ("-O1", None),
        ("--lnc=x", None),
        ("", None),
    ],
)
def test_the_compiler_s_lnc(text: str, lnc: int | None) -> None:
    assert logical_cores_flag(text) == lnc


def test_what_no_flag_owns_is_not_lost() -> None:
    assert compare_flags("stray", "") is not None
    assert parse_flags("--threshold -1.5") == {"--threshold": "-1.5"}


def test_an_open_quote_is_read_as_it_stands() -> None:
    assert parse_flags("--name='open") == {"--name": "'open"}


FLAGS = st.sampled_from(["--a", "--b", "--c", "--d", "--model-type", "--lnc"])
VALUES = st.sampled_from(["", "1", "2", "transformer"])


@given(st.dictionaries(FLAGS, VALUES), st.randoms())
def test_order_never_counts(flags: dict[str, str], random: object) -> None:
    tokens = [f"{name}={value}" if value else name for name, value in flags.items()]
    shuffled = list(tokens)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert compare_flags(" ".join(tokens), " ".join(shuffled)) is None


@given(st.dictionaries(FLAGS, VALUES), st.dictionaries(FLAGS, VALUES))
def test_only_equal_flags_are_equal(one: dict[str, str], other: dict[str, str]) -> None:
    texts = [
        " ".join(f"{name}={value}" if value else name for name, value in f.items()) for f in (one, other)
    ]
    assert (compare_flags(texts[0], texts[1]) is None) == (one == other)


@given(st.text(max_size=60))
def test_any_text_is_read(text: str) -> None:
    assert compare_flags(text, text) is None
