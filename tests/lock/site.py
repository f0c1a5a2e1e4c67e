"""Small stand-ins of this test suite: wheels, package indexes, an image registry, git repositories."""

import base64
import hashlib
import io
import json
import subprocess
import threading
import urllib.parse
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


def wheel(
    name: str,
    version: str,
    requires: tuple[str, ...] = (),
    *,
    python: str = "",
    description: str = "",
    tag: str = "py3-none-any",
    padding: int = 0,
) -> tuple[str, bytes]:
    """Return a wheel's file name and bytes; the same arguments always give the same bytes."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {item}" for item in requires]
    lines += [f"Requires-Python: {python}"] if python else []
    files = {
        f"{module}/__init__.py": b"",
        f"{info}/METADATA": ("\n".join(lines) + f"\n\n{description}\n").encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    if padding:
        files[f"{module}/data.bin"] = hashlib.shake_256(b"padding").digest(padding)
    record = "".join(f"{path},{_record_hash(data)},{len(data)}\n" for path, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data)
    return f"{module}-{version}-{tag}.whl", packed.getvalue()


def _record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@dataclass
class Site:
    """A server on the loopback address. `pages` maps paths to answers; `asked` lists the paths that came."""

    url: str
    pages: dict[str, Answer | Callable[[Mapping[str, str]], Answer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def index(
        self, name: str, *wheels: tuple[str, bytes], as_json: bool = False, metadata: bool = False
    ) -> str:
        """Serve wheels as a package index (PEP 503, or 691) and return its address."""
        by_package: dict[str, list[tuple[str, bytes]]] = {}
        for file, data in wheels:
            by_package.setdefault(file.split("-")[0].replace("_", "-"), []).append((file, data))
        for package, files in by_package.items():
            for file, data in files:
                self.pages[f"/{name}/files/{file}"] = (200, {}, data)
                if metadata:
                    self.pages[f"/{name}/files/{file}.metadata"] = (200, {}, _metadata(data))
            page = _json_page(files) if as_json else _html_page(files, metadata)
            self.pages[f"/{name}/simple/{package}/"] = page
        return f"{self.url}/{name}/simple"


def _metadata(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("METADATA")))


def _requires_python(data: bytes) -> str:
    lines = _metadata(data).decode().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("Requires-Python")), "")


def _html_page(files: list[tuple[str, bytes]], metadata: bool) -> Answer:
    rows = []
    for file, data in files:
        python = _requires_python(data).replace("<", "&lt;").replace(">", "&gt;")
        attributes = f' data-requires-python="{python}"' if python else ""
        attributes += ' data-core-metadata="true"' if metadata else ""
        address = f"../../files/{urllib.parse.quote(file)}#sha256={hashlib.sha256(data).hexdigest()}"
        rows.append(f'<a href="{address}"{attributes}>{file}</a>')
    return (
        200,
        {"Content-Type": "text/html"},
        ("<html><body>" + "<br>".join(rows) + "</body></html>").encode(),
    )


def _json_page(files: list[tuple[str, bytes]]) -> Answer:
    listed = [
        {
            "filename": file,
            "url": f"../../files/{file}",
            "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
            "requires-python": _requires_python(data) or None,
        }
        for file, data in files
    ]
    body: dict[str, Any] = {"meta": {"api-version": "1.0"}, "name": "x", "files": listed}
    return 200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, json.dumps(body).encode()


class Server:
    """Serves a `Site` in a thread until it is closed."""

    def __init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = urllib.parse.unquote(self.path.partition("?")[0])
                outer.site.asked.append(self.path)
                page = outer.site.pages.get(path, (404, {}, b"nothing here"))
                status, headers, body = page(dict(self.headers.items())) if callable(page) else page
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815 - the name is http.server's

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.site = Site(f"http://127.0.0.1:{self.server.server_address[1]}")
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def git(folder: Path, *arguments: str) -> str:
    """Run git in a throw-away repository and return its output."""
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *settings, *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()
