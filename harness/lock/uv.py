"""How the harness calls uv for locks: which program, which index, and nothing else of the machine's settings."""

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from harness import process

__all__ = [
    "index_environment",
    "installer_environment",
    "resolver_environment",
    "scrub",
    "uv_program",
    "uv_version",
]

_KEPT = (
    "UV_CACHE_DIR",
    "UV_DEFAULT_INDEX",
    "UV_HTTP_RETRIES",
    "UV_HTTP_TIMEOUT",
    "UV_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_KEYRING_PROVIDER",
    "UV_NATIVE_TLS",
    "UV_NO_CACHE",
    "UV_OFFLINE",
    "UV_SYSTEM_CERTS",
)
"""Where the default index is and how to reach it. Whatever else uv reads from variables (further indexes,
constraints, overrides, strategies) would make the lock depend on who resolves it."""
_CREDENTIALS = re.compile(r"^UV_INDEX_\w+_(USERNAME|PASSWORD)$")
_ADDRESS = re.compile(r"(?:https?|file)://[^\s`'\")]+")


def uv_program() -> str:
    """Return the path of the controller's own uv, whose version its lock pins."""
    return str(Path(sys.prefix) / "bin" / "uv")


@cache
def uv_version() -> str:
    """Return uv's version number."""
    return process.run([uv_program(), "--version"]).output.split()[1]


@cache
def _default_index_of_pip() -> str:
    done = process.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"])
    index = done.output.strip() if done.returncode == 0 else ""
    return index if index.startswith(("http", "file:")) else ""


def index_environment() -> dict[str, str]:
    """Return the variables that hand pip's default index on to uv, which does not read pip's configuration.

    Empty where uv has an index of its own already, or pip has none.
    """
    if "UV_DEFAULT_INDEX" in os.environ or "UV_INDEX_URL" in os.environ:
        return {}
    index = _default_index_of_pip()
    return {"UV_DEFAULT_INDEX": index} if index else {}


def resolver_environment() -> dict[str, str]:
    """Return the environment to resolve in: the machine's default index, and no other of its uv settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_") or name in _KEPT or _CREDENTIALS.match(name)
    }
    return {**kept, **index_environment(), "UV_PYTHON_DOWNLOADS": "never"}


def installer_environment() -> dict[str, str]:
    """Return the environment to install hashed locks in: the machine's uv settings as they are, and pip's index."""
    return {**os.environ, **index_environment(), "UV_PYTHON_DOWNLOADS": "never"}


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """Return a program's output with every address replaced, except those below one of `known`.

    What index a machine uses is its own affair; it stays out of messages and files.
    """
    kept = tuple(known)
    return _ADDRESS.sub(lambda match: match[0] if match[0].startswith(kept) else "<the default index>", text)
