"""The compile cache: where it is, what is in it, and whose it is."""

from pathlib import Path

import pytest

from harness.doctor.compile_cache import cache_location, check_compile_cache, describe_age, read_cache
from harness.doctor.host import CacheEntry, Host

OURS = "2.28.7631.0"


@pytest.mark.parametrize(
    ("variables", "location"),
    [
        ({}, "/var/tmp/neuron-compile-cache"),
        ({"NEURON_COMPILE_CACHE_URL": "/cache"}, "/cache"),
        ({"NEURON_COMPILE_CACHE_URL": "file:///cache"}, "/cache"),
        ({"NEURON_COMPILE_CACHE_URL": "s3://bucket/x"}, "s3://bucket/x"),
        ({"NEURON_COMPILE_CACHE_URL": "/a", "NEURON_CC_FLAGS": "-O1 --cache_dir=/b"}, "/b"),
    ],
)
def test_where_the_cache_is(variables: dict[str, str], location: str) -> None:
    assert cache_location(variables) == location


def test_entries_are_read_with_their_state(tmp_path: Path) -> None:
    def entry(module: str, *names: str) -> None:
        folder = tmp_path / "neuronxcc-2.15.141.0+d3cfc8ca" / module
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()

    entry("MODULE_a", "model.neff", "model.done", "model.log")
    entry("MODULE_b", "model.log", "model.hlo_module.pb.gz")
    entry("MODULE_c", "model.hlo_module.pb.gz")
    entry("MODULE_d", "model.neff")
    (tmp_path / "other").mkdir()
    (tmp_path / "neuronxcc-2.15.141.0+d3cfc8ca" / "MODULE_file").touch()
    found = read_cache(tmp_path)
    assert [(item.module, item.state) for item in found] == [
        ("MODULE_a", "done"),
        ("MODULE_b", "failed"),
        ("MODULE_c", "unfinished"),
        ("MODULE_d", "unfinished"),
    ]
    assert {item.compiler for item in found} == {"2.15.141.0+d3cfc8ca"}
    assert found[1].changed > 0
    assert read_cache(tmp_path / "nowhere") == ()


def host(*entries: CacheEntry, location: str = "/cache", flags: str = "") -> Host:
    variables = {"NEURON_CC_FLAGS": flags} if flags else {}
    return Host(compile_cache=location, cache_entries=entries, now=100_000.0, variables=variables)


def done(compiler: str) -> CacheEntry:
    return CacheEntry(compiler, "MODULE_x", "done")


FAILED = CacheEntry(OURS, "MODULE_y", "failed", 13_600.0, "/cache/neuronxcc-2.28.7631.0/MODULE_y")


@pytest.mark.parametrize(
    ("entries", "codes"),
    [
        ([], ["compile-cache"]),
        ([done(OURS)], ["compile-cache"]),
        ([done(f"{OURS}+abc")], ["compile-cache"]),
        ([CacheEntry(OURS, "MODULE_z", "unfinished")], ["compile-cache"]),
        ([done("2.27.5334.0+f702b353")], ["compile-cache.other-compiler"]),
        ([done(OURS), done("2.27.5334.0")], ["compile-cache.mixed"]),
        ([done(OURS), FAILED], ["compile-cache.cached-failure"]),
        ([FAILED, done("2.27.5334.0")], ["compile-cache.cached-failure", "compile-cache.mixed"]),
        # Another compiler's failure is never asked for.
        ([done(OURS), CacheEntry("2.1", "MODULE_w", "failed", 1.0)], ["compile-cache.mixed"]),
    ],
)
def test_a_cache_is_judged(entries: list[CacheEntry], codes: list[str]) -> None:
    lines = check_compile_cache(host(*entries), OURS)
    assert [line.code for line in lines] == codes


def test_two_builds_of_one_compiler_are_two() -> None:
    lines = check_compile_cache(host(done(f"{OURS}+aaa")), f"{OURS}+bbb")
    assert lines[0].code == "compile-cache.other-compiler"
    assert f"{OURS}+aaa" in lines[0].found
    assert f"{OURS}+bbb" in lines[0].expected


def test_a_cached_failure_tells_age_and_path() -> None:
    (line,) = check_compile_cache(host(FAILED), OURS)
    assert line.level == "error"
    assert "the oldest from 1970-01-01 03:46 UTC (1 d 0 h ago)" in line.found
    assert FAILED.path in line.found


def test_with_retries_on_a_cached_failure_is_a_warning() -> None:
    (line,) = check_compile_cache(host(FAILED, flags="--retry_failed_compilation"), OURS)
    assert line.level == "warning"


def test_what_cannot_be_compared_is_skipped() -> None:
    assert check_compile_cache(host(done(OURS)), None)[0].level == "skipped"
    assert check_compile_cache(host(location="s3://bucket"), OURS)[0].level == "skipped"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00"), (7833, "02:10:33"), (86399, "23:59:59"), (86400, "1 d 0 h"), (-5, "00:00:00")],
)
def test_ages(seconds: float, text: str) -> None:
    assert describe_age(seconds) == text
