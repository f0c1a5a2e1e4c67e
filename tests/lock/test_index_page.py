"""Package pages of an index: what is offered, for whom, and what it says of itself."""

import pytest
from packaging.specifiers import SpecifierSet

from harness.errors import InfrastructureError
from harness.lock.index_page import IndexFile, excluded_because, newest_left_out, read_metadata, read_page
from harness.pins import Target
from tests.lock.site import Site, wheel

TARGET = Target(python="3.11", platform="x86_64-unknown-linux-gnu")


@pytest.mark.parametrize("as_json", [False, True])
def test_both_forms_of_a_page_say_the_same(site: Site, as_json: bool) -> None:
    url = site.index("i", wheel("a-b", "1.0+x", python=">=3.9,<4"), wheel("a-b", "2.0"), as_json=as_json)
    files = read_page(url, "a-b")
    assert files is not None
    assert [(str(f.version), f.requires_python) for f in files] == [("1.0+x", ">=3.9,<4"), ("2.0", "")]
    assert "Version: 1.0+x" in (read_metadata(files[0]) or "")


def test_metadata_beside_the_wheel_is_read_instead_of_the_wheel(site: Site) -> None:
    url = site.index("i", wheel("a", "1"), metadata=True)
    (file,) = read_page(url, "a") or ()
    assert "Name: a" in (read_metadata(file) or "")
    assert not any(path.endswith(".whl") for path in site.asked)


def test_a_large_wheel_is_no_placeholder_and_is_not_read_whole(site: Site) -> None:
    url = site.index("i", wheel("a", "1", padding=(1 << 20) + 1))
    (file,) = read_page(url, "a") or ()
    assert read_metadata(file) is None


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_package_that_is_not_there_is_none(site: Site, status: int) -> None:
    site.pages["/i/simple/a/"] = (status, {}, b"")
    assert read_page(f"{site.url}/i/simple", "a") is None


def test_an_index_in_trouble_is_no_answer(site: Site) -> None:
    site.pages["/i/simple/a/"] = (500, {}, b"")
    with pytest.raises(InfrastructureError, match="answered 500"):
        read_page(f"{site.url}/i/simple", "a")
    site.pages["/i/simple/a/"] = (200, {"Content-Type": "application/json"}, b"[1]")
    with pytest.raises(InfrastructureError, match="not a package page"):
        read_page(f"{site.url}/i/simple", "a")


def test_a_wheel_that_cannot_be_read_is_no_answer(site: Site) -> None:
    url = site.index("i", ("a-1-py3-none-any.whl", wheel("a", "1")[1]))
    (file,) = read_page(url, "a") or ()
    site.pages["/i/files/a-1-py3-none-any.whl"] = (200, {}, b"not a zip")
    with pytest.raises(InfrastructureError, match=r"a-1-py3-none-any\.whl is not a wheel"):
        read_metadata(file)
    site.pages["/i/files/a-1-py3-none-any.whl"] = (503, {}, b"")
    with pytest.raises(InfrastructureError, match="answered 503"):
        read_metadata(file)


def offered(tag: str, python: str = "", version: str = "1") -> IndexFile:
    return IndexFile(f"a-{version}-{tag}.whl", "http://127.0.0.1/a", python, False)


@pytest.mark.parametrize(
    ("tag", "python", "why"),
    [
        ("py3-none-any", "", ""),
        ("cp311-cp311-manylinux_2_28_x86_64", ">=3.10", ""),
        ("cp38-abi3-linux_x86_64", "", ""),
        ("py2.py3-none-any", "", ""),
        ("cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64", "", ""),
        ("py3-none-any", "<3.0", "requires Python <3.0 (this is 3.11)"),
        ("cp312-abi3-linux_x86_64", "", "has no wheel for Python 3.11"),
        ("cp310-cp310-linux_x86_64", "", "has no wheel for Python 3.11"),
        ("cp311-cp311-manylinux_2_28_aarch64", "", "has no wheel for Linux on x86_64"),
        ("cp311-cp311-macosx_11_0_arm64", "", "has no wheel for Linux on x86_64"),
        ("cp311-cp311-win_amd64", "", "has no wheel for Linux on x86_64"),
    ],
)
def test_why_a_wheel_does_not_fit(tag: str, python: str, why: str) -> None:
    assert excluded_because(offered(tag, python), TARGET) == why


def test_why_a_newer_version_was_left_out() -> None:
    files = (offered("py3-none-any", version="2.3.0"), offered("py3-none-any", "<3.0", version="2.22.0"))
    said = newest_left_out(files, SpecifierSet("==2.*"), "2.3.0", TARGET)
    assert said == "2.22.0 exists but requires Python <3.0 (this is 3.11)"
    assert newest_left_out(files, SpecifierSet("==2.3.*"), "2.3.0", TARGET) == ""
    assert newest_left_out(files, SpecifierSet(), "2.22.0", TARGET) == ""
    fitting = (offered("py3-none-any", version="2.22.0"),)
    assert newest_left_out(fitting, SpecifierSet(), "2.3.0", TARGET) == (
        "2.22.0 exists but conflicts with another requirement"
    )
    early = (offered("py3-none-any", version="3.0rc1"),)
    assert newest_left_out(early, SpecifierSet(), "2.3.0", TARGET) == ""
