"""The cache: whole or not at all."""

import threading
from pathlib import Path

import pytest

from harness.cache import cache_root, make_once


def test_the_folder_is_the_users_or_the_machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "mine"))
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("HARNESS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "trn-harness"


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    made = []

    def make(partial: Path) -> None:
        made.append(partial)
        (partial / "content").write_text("x")

    assert make_once(tmp_path / "a", make)
    assert not make_once(tmp_path / "a", make)
    assert len(made) == 1
    assert (tmp_path / "a" / "content").read_text() == "x"


def test_a_failed_making_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    def fail(partial: Path) -> None:
        (partial / "half").write_text("x")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        make_once(tmp_path / "a", fail)
    assert not (tmp_path / "a").exists()
    assert make_once(tmp_path / "a", lambda partial: None)


def test_an_incomplete_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "stale").touch()
    assert make_once(tmp_path / "a", lambda partial: (partial / "fresh").touch())
    assert not (tmp_path / "a" / "stale").exists()


def test_two_at_once_make_it_once(tmp_path: Path) -> None:
    made, both = [], threading.Barrier(2)

    def work() -> None:
        both.wait()
        make_once(tmp_path / "a", lambda partial: made.append(partial))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
