"""uv.lock files: a missing hash is called missing, never a mismatch."""

import pytest

from harness.errors import UserError
from harness.lock.uv_lock import judge_uv_lock

HASH = 'hash = "sha256:' + "1" * 64 + '"'
BASE = "https://example.invalid/torch-2.7.0%2Bcpu-cp311-cp311-manylinux_2_28"


def lock(*files: str) -> str:
    listed = "".join(f"  {{ {item} }},\n" for item in files)
    return f'[[package]]\nname = "torch"\nversion = "2.7.0+cpu"\nwheels = [\n{listed}]\n'


def test_files_that_all_have_hashes_pass() -> None:
    result = judge_uv_lock(lock(f'url = "{BASE}_x86_64.whl", {HASH}'))
    assert result.verdict == "pass"
    assert result.facts == ("1 file of 1 package have a hash",)


def test_one_platform_without_a_hash_is_named_and_not_called_tampering() -> None:
    text = lock(f'url = "{BASE}_aarch64.whl"', *(f'url = "{BASE}_{n}.whl", {HASH}' for n in ("a", "b", "c")))
    result = judge_uv_lock(text)
    (finding,) = result.findings
    assert finding.code == "lock.hash-missing"
    assert finding.message == (
        "uv.lock: torch-2.7.0+cpu-cp311-cp311-manylinux_2_28_aarch64.whl has no hash (3 other files of it have). "
        "This is not tampering. Next: lock again."
    )


def test_a_source_distribution_without_a_hash_counts_too() -> None:
    text = '[[package]]\nname = "a"\nversion = "1"\nsdist = { url = "https://example.invalid/a-1.tar.gz" }\n'
    assert [item.code for item in judge_uv_lock(text).findings] == ["lock.hash-missing"]


@pytest.mark.parametrize("text", ["", '[[package]]\nname = "self"\nsource = { editable = "." }\n'])
def test_a_lock_without_files_proves_nothing(text: str) -> None:
    assert [item.code for item in judge_uv_lock(text).findings] == ["lock.empty"]


def test_what_is_not_toml_is_refused() -> None:
    with pytest.raises(UserError, match=r"uv\.lock: not valid TOML"):
        judge_uv_lock("= =")
