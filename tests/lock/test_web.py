"""HTTP reads: an answer is data, silence is an error, secrets stay where they belong."""

import base64

import pytest

from harness.errors import InfrastructureError, UserError
from harness.lock import web
from tests.lock.site import Site


def test_any_status_is_an_answer(site: Site) -> None:
    site.pages["/a"] = (200, {"X-Thing": "1"}, b"body")
    found = web.get(f"{site.url}/a")
    assert (found.status, found.headers["x-thing"], found.body) == (200, "1", b"body")
    assert web.get(f"{site.url}/b").status == 404


def test_no_more_than_the_limit_is_read(site: Site) -> None:
    site.pages["/a"] = (200, {}, b"x" * 1000)
    assert len(web.get(f"{site.url}/a", limit=10).body) == 10


def test_silence_is_an_infrastructure_error() -> None:
    with pytest.raises(InfrastructureError, match=r"http://127\.0\.0\.1:1/a cannot be reached"):
        web.get("http://user:secret@127.0.0.1:1/a")


def test_only_http_is_read() -> None:
    with pytest.raises(UserError, match="not an http or https address"):
        web.get("file:///etc/passwd")


def test_credentials_go_to_the_server_that_was_asked_and_not_further(site: Site) -> None:
    seen: dict[str, str | None] = {}

    def first(headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        seen["first"] = headers.get("Authorization")
        return 302, {"Location": f"{site.url}/second"}, b""

    def second(headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        seen["second"] = headers.get("Authorization")
        return 200, {}, b"here"

    site.pages |= {"/first": first, "/second": second}  # type: ignore[dict-item]
    address = f"http://me:p%40ss@{site.host}/first"
    assert web.get(address).body == b"here"
    assert seen == {"first": "Basic " + base64.b64encode(b"me:p@ss").decode(), "second": None}
    assert web.get(f"{site.url}/first", headers={"Authorization": "Bearer t"}).body == b"here"
    assert seen == {"first": "Bearer t", "second": None}
    assert web.without_credentials(address) == f"{site.url}/first"
