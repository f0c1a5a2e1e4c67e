"""Readers of direct pins and of locks: strict, with the line in every message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.lock.requirements import logical_lines, marker_environment, parse_lock, parse_requirements
from harness.lock.versions import label, number, other_build
from harness.pins import Target

MARKERS = marker_environment(Target(python="3.11", platform="x86_64-unknown-linux-gnu"))
HASH = "a" * 64
names = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
versions = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}(\+[a-z0-9]{1,5})?", fullmatch=True)


def test_direct_pins_are_read_with_their_lines() -> None:
    text = "# first\nTorch==2.14.0  # why\n\nml_dtypes\nx>=1 ; sys_platform == 'win32'\n"
    wanted = parse_requirements(text, "in", MARKERS)
    assert [(item.line, item.name, item.exact) for item in wanted] == [
        (2, "torch", "2.14.0"),
        (4, "ml-dtypes", None),
    ]
    assert wanted[0].text == "Torch==2.14.0"


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("a==1.0", "1.0"),
        ("a===1.0", "1.0"),
        ("a==1.0+cpu", "1.0+cpu"),
        ("a==1.*", None),
        ("a>=1", None),
        ("a~=1.0", None),
        ("a==1.0,!=1.1", None),
        ("a", None),
    ],
)
def test_only_one_version_is_exact(text: str, exact: str | None) -> None:
    assert parse_requirements(text, "in", MARKERS)[0].exact == exact


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-r other.in", r"in:1: found the option '-r'"),
        ("--extra-index-url https://example.invalid\na", "in:1: found the option"),
        ("a\nb @ https://example.invalid/b.whl", "in:2: b is given by an address"),
        ("a ==", "in:1: 'a ==' is not a requirement"),
        ("A_b==1\na-b==2", r"in:2: a-b stands twice \(first at line 1\)"),
    ],
)
def test_anything_else_among_the_pins_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_requirements(text, "in", MARKERS)


@pytest.mark.parametrize(
    ("platform", "applies"), [("x86_64-unknown-linux-gnu", False), ("aarch64-unknown-linux-gnu", True)]
)
def test_markers_are_judged_for_the_target_and_not_for_this_machine(platform: str, applies: bool) -> None:
    markers = marker_environment(Target(python="3.99", platform=platform))  # type: ignore[arg-type]
    text = "a==1 ; platform_machine == 'aarch64' and python_version >= '3.98'"
    assert bool(parse_requirements(text, "in", markers)) is applies


def test_a_lock_is_read_whole() -> None:
    first = f"# note\na==1.0+cpu \\\n    --hash=sha256:{HASH} \\\n    --hash=sha256:{'b' * 64}\n"
    text = first + f"C_d==2 ; python_version > '3' --hash=sha256:{HASH}\n"
    entries, problems = parse_lock(text, "lock")
    assert problems == ()
    assert [(e.line, e.name, e.version, e.marker, len(e.hashes)) for e in entries] == [
        (2, "a", "1.0+cpu", "", 2),
        (5, "c-d", "2", "python_version > '3'", 1),
    ]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("a==1", "lock.hash-missing", "lock:1: a 1 has no hash. This is not tampering. Next: lock again."),
        ("a==1 --hash=sha256:abc", "lock.hash-form", "expected sha256 and 64 hex digits"),
        (f"a==1 --hash=md5:{HASH}", "lock.hash-form", "md5"),
        (f"a>=1 --hash=sha256:{HASH}", "lock.form", "expected `name==version"),
        (f"a==1.* --hash=sha256:{HASH}", "lock.form", "a==1.*"),
        ("--index-url https://example.invalid/simple", "lock.address", "no index, host or file"),
        (f"a @ https://example.invalid/a.whl --hash=sha256:{HASH}", "lock.address", "no index, host or file"),
        ("-r other.lock", "lock.address", "-r other.lock"),
    ],
)
def test_a_line_that_is_no_hashed_pin_is_a_finding(line: str, code: str, words: str) -> None:
    _, problems = parse_lock(line, "lock")
    assert [problem.code for problem in problems] == [code]
    assert words in problems[0].message


@given(st.dictionaries(names, versions, max_size=6), st.booleans())
def test_what_is_written_as_a_lock_is_read_back(packages: dict[str, str], continued: bool) -> None:
    gap = " \\\n    " if continued else " "
    text = "".join(f"{name}=={version}{gap}--hash=sha256:{HASH}\n" for name, version in packages.items())
    entries, problems = parse_lock(text, "lock")
    assert problems == ()
    assert {entry.name: entry.version for entry in entries} == packages


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    entries, problems = parse_lock(text, "lock")
    assert len(entries) + len(problems) >= len(logical_lines(text))


def test_labels_are_told_from_numbers() -> None:
    assert (number("2.9.0+cpu"), label("2.9.0+cpu"), label("2.9.0")) == ("2.9.0", "cpu", "")
    assert other_build("2.9.0+cpu", "2.9.0+cu130")
    assert other_build("2.9.0", "2.9.0+cpu")
    assert not other_build("2.9.0+cpu", "2.9.0+cpu")
    assert not other_build("2.9.0", "2.9.1")
