"""Image digests from a registry on the loopback address: resolved, drifted, gone."""

import hashlib
import json
from collections.abc import Mapping

import pytest

from harness.errors import InfrastructureError, UserError
from harness.lock.registry import judge_image, read_digest
from harness.pins import BaseImage
from tests.lock.site import Answer, Site

OLD, NEW = b'{"manifests": [1]}', b'{"manifests": [2]}'


def digest(manifest: bytes) -> str:
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def publish(site: Site, tag: str | None, manifest: bytes, *, keep: bool = True) -> None:
    headers = {"Docker-Content-Digest": digest(manifest)}
    if tag:
        site.pages[f"/v2/neuron/train/manifests/{tag}"] = (200, headers, manifest)
    if keep:
        site.pages[f"/v2/neuron/train/manifests/{digest(manifest)}"] = (200, headers, manifest)


def image(site: Site, pinned: str) -> BaseImage:
    return BaseImage(repository=f"{site.host}/neuron/train", tag="v1", digest=pinned)


def test_a_tag_means_the_digest_of_its_manifest(site: Site) -> None:
    publish(site, "v1", OLD)
    assert read_digest(f"{site.host}/neuron/train", "v1") == digest(OLD)
    assert read_digest(f"{site.host}/neuron/train", digest(OLD)) == digest(OLD)
    assert read_digest(f"{site.host}/neuron/train", "v2") is None


def test_every_manifest_type_is_accepted(site: Site) -> None:
    seen: dict[str, str] = {}

    def answer(headers: Mapping[str, str]) -> Answer:
        seen.update(headers)
        return 200, {}, OLD

    site.pages["/v2/neuron/train/manifests/v1"] = answer
    assert read_digest(f"{site.host}/neuron/train", "v1") == digest(OLD)
    assert "image.index.v1+json" in seen["Accept"]
    assert "manifest.list.v2+json" in seen["Accept"]


def test_an_anonymous_token_is_fetched_where_the_registry_says(site: Site) -> None:
    def guarded(headers: Mapping[str, str]) -> Answer:
        if headers.get("Authorization") == "Bearer abc":
            return 200, {}, OLD
        challenge = f'Bearer realm="{site.url}/token",service="registry",scope="repository:neuron/train:pull"'
        return 401, {"WWW-Authenticate": challenge}, b""

    site.pages["/v2/neuron/train/manifests/v1"] = guarded
    site.pages["/token"] = (200, {}, json.dumps({"token": "abc"}).encode())
    assert read_digest(f"{site.host}/neuron/train", "v1") == digest(OLD)
    (asked,) = [path for path in site.asked if path.startswith("/token")]
    assert "service=registry" in asked
    assert "scope=repository%3Aneuron%2Ftrain%3Apull" in asked


@pytest.mark.parametrize(
    ("challenge", "token", "words"),
    [
        ("Basic realm=x", b"", "wants a login"),
        ("", b"", "wants a login"),
        ('Bearer realm="{url}/token"', b"no json", "gave no token"),
        ('Bearer realm="{url}/token"', b"{}", "gave no token"),
    ],
)
def test_a_registry_without_anonymous_access_is_said(
    site: Site, challenge: str, token: bytes, words: str
) -> None:
    page = (401, {"WWW-Authenticate": challenge.format(url=site.url)}, b"")
    site.pages |= {"/v2/neuron/train/manifests/v1": page, "/token": (200, {}, token)}
    with pytest.raises(InfrastructureError, match=words):
        read_digest(f"{site.host}/neuron/train", "v1")


def test_a_manifest_that_is_not_its_digest_is_refused(site: Site) -> None:
    site.pages["/v2/neuron/train/manifests/v1"] = (200, {"Docker-Content-Digest": digest(NEW)}, OLD)
    with pytest.raises(InfrastructureError, match="whose digest is"):
        read_digest(f"{site.host}/neuron/train", "v1")
    site.pages[f"/v2/neuron/train/manifests/{digest(NEW)}"] = (200, {}, OLD)
    with pytest.raises(InfrastructureError, match="whose digest is"):
        read_digest(f"{site.host}/neuron/train", digest(NEW))


def test_a_registry_in_trouble_is_no_answer(site: Site) -> None:
    site.pages["/v2/neuron/train/manifests/v1"] = (500, {}, b"")
    with pytest.raises(InfrastructureError, match="answered 500 for v1"):
        read_digest(f"{site.host}/neuron/train", "v1")


def test_a_repository_must_name_its_registry() -> None:
    with pytest.raises(UserError, match="does not name a registry"):
        read_digest("python", "3.11")


def test_a_pin_that_holds_passes(site: Site) -> None:
    publish(site, "v1", OLD)
    result = judge_image(image(site, digest(OLD)))
    assert result.verdict == "pass"
    assert digest(OLD) in result.facts[0]


def test_drift_names_both_digests_and_says_that_the_pin_still_holds(site: Site) -> None:
    publish(site, "v1", OLD)
    publish(site, "v1", NEW)
    (finding,) = judge_image(image(site, digest(OLD))).findings
    assert finding.code == "image.drift"
    assert f"now points to {digest(NEW)}, the pin is {digest(OLD)} (still available)" in finding.message


def test_a_digest_that_was_removed_is_an_alarm_of_its_own(site: Site) -> None:
    publish(site, "v1", NEW)
    gone, drift = judge_image(image(site, digest(OLD))).findings
    assert gone.code == "image.gone"
    assert f"the pinned digest {digest(OLD)} no longer exists" in gone.message
    assert "use a mirror" in gone.message
    assert (drift.code, "(gone)" in drift.message) == ("image.drift", True)


def test_a_tag_that_was_removed_is_said(site: Site) -> None:
    publish(site, None, OLD)
    assert [item.code for item in judge_image(image(site, digest(OLD))).findings] == ["image.tag-gone"]


def test_an_unresolved_digest_is_not_judged(site: Site) -> None:
    result = judge_image(image(site, "unresolved"))
    assert result.verdict == "not-judged"
    assert site.asked == []
