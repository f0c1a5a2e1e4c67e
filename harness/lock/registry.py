"""The digest of an image from its registry, and whether a pinned one is still what its tag means."""

import hashlib
import ipaddress
import json
import re
import urllib.parse
from collections.abc import Callable, Mapping

from harness.checks.finding import CheckResult, Finding, judge, not_judged
from harness.errors import InfrastructureError, UserError
from harness.lock import web
from harness.pins import OPEN, BaseImage

__all__ = ["Reader", "judge_image", "read_digest"]

Reader = Callable[[str, str], str | None]
"""(repository, tag or digest) -> digest, None if the registry has no such manifest."""

_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_REPOSITORY = re.compile(r"^(?P<host>[a-z0-9.-]+(:\d+)?)/(?P<path>[a-z0-9._/-]+)$")


def read_digest(repository: str, reference: str) -> str | None:
    """Return `sha256:...` of the manifest that a tag (or digest) names, None if the registry has none.

    For an image of several platforms it is the digest of their index, which is what `FROM` should pin. The
    digest is computed from the manifest itself. Anonymous access only. Raises `UserError` for a repository
    without a registry, `InfrastructureError` if the registry cannot be reached, refuses, or contradicts
    its own manifest.
    """
    match = _REPOSITORY.match(repository)
    if match is None:
        raise UserError(f"{repository!r} does not name a registry. Next: write registry/path.")
    address = f"{_scheme(match['host'])}://{match['host']}/v2/{match['path']}/manifests/{reference}"
    answer = web.get(address, headers={"Accept": _MANIFESTS})
    if answer.status == 401:
        token = _token(answer.headers.get("www-authenticate", ""), repository)
        answer = web.get(address, headers={"Accept": _MANIFESTS, "Authorization": f"Bearer {token}"})
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise InfrastructureError(f"the registry of {repository} answered {answer.status} for {reference}")
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    said = answer.headers.get("docker-content-digest", digest)
    asked = reference if reference.startswith("sha256:") else digest
    if not digest == said == asked:
        raise InfrastructureError(
            f"the registry of {repository} sent a manifest for {reference} whose digest is {digest}, not {said}"
        )
    return digest


def _scheme(host: str) -> str:
    """Registries speak https, except on this machine: that is how container engines treat them too."""
    name = host.partition(":")[0]
    try:
        local = ipaddress.ip_address(name).is_loopback
    except ValueError:
        local = name == "localhost"
    return "http" if local else "https"


def _token(challenge: str, repository: str) -> str:
    """Return an anonymous token, from where the registry's challenge says."""
    fields: Mapping[str, str] = dict(_CHALLENGE.findall(challenge))
    if not challenge.lower().startswith("bearer") or "realm" not in fields:
        raise InfrastructureError(
            f"the registry of {repository} wants a login. Next: use one with anonymous access."
        )
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    answer = web.get(f"{fields['realm']}?{query}")
    try:
        found = json.loads(answer.body)
        return str(found.get("token") or found["access_token"])
    except (ValueError, KeyError, AttributeError) as error:
        raise InfrastructureError(
            f"the registry of {repository} gave no token (status {answer.status})"
        ) from error


def judge_image(image: BaseImage, read: Reader = read_digest) -> CheckResult:
    """Return whether a pinned base image is still what its tag means, and can still be fetched.

    Codes: `image.gone` (the pinned digest cannot be pulled any more), `image.drift` (the tag means another
    image now; the pin still holds), `image.tag-gone`. Not judged while the digest is unresolved.
    """
    if image.digest == OPEN:
        return not_judged("image", f"the digest of {image.reference} is unresolved")
    tagged = f"{image.repository}:{image.tag}"
    there = read(image.repository, image.digest) is not None
    now = read(image.repository, image.tag)
    findings = []
    if not there:
        findings.append(
            Finding(
                "image.gone",
                f"{image.repository}: the pinned digest {image.digest} no longer exists in the registry. "
                "Next: use a mirror that holds it, or lock again with --upgrade.",
                {"pinned": image.digest},
            )
        )
    state = "still available" if there else "gone"
    if now is None:
        findings.append(
            Finding(
                "image.tag-gone",
                f"{tagged} no longer exists in the registry; the pin {image.digest} is {state}. "
                "Next: keep a copy of the image, and choose another tag.",
                {"pinned": image.digest},
            )
        )
    elif now != image.digest:
        findings.append(
            Finding(
                "image.drift",
                f"{tagged} now points to {now}, the pin is {image.digest} ({state}). "
                "Next: look at what changed, then lock again with --upgrade.",
                {"pinned": image.digest, "now": now},
            )
        )
    return judge("image", findings, [f"{tagged} is {image.digest} in the registry"] if not findings else [])
