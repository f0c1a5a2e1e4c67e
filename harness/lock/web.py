"""Small reads over HTTP: an answer is data whatever its status; only silence is an error."""

import base64
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import InfrastructureError, UserError

__all__ = ["Answer", "get", "without_credentials"]

_SECONDS = 20.0
_LIMIT = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    """Where it came from in the end, after redirects."""


def get(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    limit: int = _LIMIT,
    timeout: float = _SECONDS,
) -> Answer:
    """Return the answer to one request; proxies of the environment are used, redirects followed.

    Credentials in the address are sent as basic authentication. At most `limit` bytes of the body are read.
    Raises `InfrastructureError` if nothing answers, and `UserError` for an address that is not HTTP.
    """
    address = without_credentials(url)
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise UserError(f"{address}: not an http or https address.")
    request = urllib.request.Request(address, method=method)  # noqa: S310 - scheme checked above
    for name, value in (headers or {}).items():
        # A secret is for the server that was asked, not for the one it points to.
        add = request.add_unredirected_header if name == "Authorization" else request.add_header
        add(name, value)
    if secret := _credentials(url):
        request.add_unredirected_header("Authorization", f"Basic {secret}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - scheme checked above
            return _answer(answer.status, answer.headers.items(), answer.read(limit), answer.url)
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, error.headers.items(), error.read(limit), address)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise InfrastructureError(f"{address} cannot be reached: {reason}") from error


def _answer(status: int, headers: object, body: bytes, url: str) -> Answer:
    return Answer(status, {name.lower(): value for name, value in headers}, body, url)  # type: ignore[attr-defined]


def without_credentials(url: str) -> str:
    """Return an address without the user and password in it."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _credentials(url: str) -> str:
    user, found, _ = urllib.parse.urlsplit(url).netloc.rpartition("@")
    return base64.b64encode(urllib.parse.unquote(user).encode()).decode() if found else ""
