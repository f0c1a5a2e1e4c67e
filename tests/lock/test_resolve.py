"""Resolution with real uv against loopback indexes: every Neuron package from its own index, or not at all."""

import re
from pathlib import Path

import pytest

from harness.errors import InfrastructureError, UserError
from harness.lock.requirements import read_requirements
from harness.lock.resolve import Resolution, resolve
from harness.stack import load_stack
from tests.lock.conftest import Maker
from tests.lock.site import Site, wheel

pytestmark = pytest.mark.usefixtures("plain_uv")

NEURON = ["torch-neuronx", "libneuronxla", "nki", "neuronx-cc"]
WRONG = "WRONG PACKAGE. Please install from elsewhere."


def public(site: Site, monkeypatch: pytest.MonkeyPatch, *more: tuple[str, bytes]) -> str:
    """The machine's default index: ordinary packages, and placeholders of the Neuron ones."""
    url = site.index(
        "public",
        wheel("numpy", "2.0"),
        wheel("torch", "2.14.0"),
        wheel("torch-neuronx", "1.0", description=WRONG),
        wheel("libneuronxla", "1.0", description=WRONG),
        wheel("nki", "0.0.1", description=WRONG),
        wheel("nkipy", "0.0.2", description=WRONG),
        *more,
    )
    monkeypatch.setenv("UV_DEFAULT_INDEX", url)
    return url


def neuron(site: Site, **options: bool) -> str:
    return site.index(
        "neuron",
        wheel("torch-neuronx", "2.14.3.0.7+abc", ("torch==2.14.0", "libneuronxla", "numpy")),
        wheel("torch-neuronx", "2.14.3.0.9+def", ("torch==2.14.0",), python=">=3.12"),
        wheel("libneuronxla", "3.0.5+f00"),
        wheel("nki", "0.7.0"),
        **options,
    )


def rule(url: str, *, packages: list[str] | None = None, **families: str) -> dict[str, object]:
    return {
        "neuron": {
            "url": url,
            "packages": NEURON if packages is None else packages,
            "families": {name.replace("_", "-"): family for name, family in families.items()},
        }
    }


def resolved(root: Path, **options: object) -> Resolution:
    stack = load_stack(root, "small")
    wanted = read_requirements(stack.requirements, stack.locked_for)
    return resolve(stack, wanted, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_neuron_package_requires_comes_from_the_neuron_index_too(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    public(site, monkeypatch)
    url = neuron(site, as_json=as_json)
    root = make_stack(
        "torch==2.14.0\ntorch-neuronx==2.14.3.0.*\nnki==0.7.0\n",
        indexes=rule(url, torch_neuronx="2.14.3.0.*"),
    )
    found = resolved(root)
    assert found.packages == {
        "libneuronxla": "3.0.5+f00",
        "nki": "0.7.0",
        "numpy": "2.0",
        "torch": "2.14.0",
        "torch-neuronx": "2.14.3.0.7+abc",
    }
    assert {name for name, index in found.origins.items() if index == "neuron"} == {
        "libneuronxla",
        "nki",
        "torch-neuronx",
    }
    assert "http" not in found.text
    assert re.fullmatch(r"(\S+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}\n){5}", found.text)
    assert found.held_back["torch-neuronx"] == (
        "2.14.3.0.9+def exists but requires Python >=3.12 (this is 3.11)"
    )


def test_the_same_inputs_give_the_same_bytes_and_kept_versions_stay(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch, wheel("numpy", "2.1"))
    root = make_stack("numpy\ntorch==2.14.0\n")
    first, second = resolved(root), resolved(root)
    assert first.text == second.text
    assert first.packages["numpy"] == "2.1"
    assert resolved(root, keep={"numpy": "2.0"}).packages["numpy"] == "2.0"


def test_a_neuron_package_without_a_rule_is_refused(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch)
    root = make_stack("nkipy\nnumpy\n")
    with pytest.raises(UserError, match=r"nkipy 0\.0\.2 from the default index would have been installed"):
        resolved(root)


def test_a_rule_that_misses_what_a_neuron_package_requires_is_refused(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch)
    root = make_stack(
        "torch-neuronx==2.14.3.0.7+abc\n", indexes=rule(neuron(site), packages=["torch-neuronx"])
    )
    with pytest.raises(UserError, match=r"libneuronxla 1\.0 from the default index"):
        resolved(root)


def test_a_neuron_index_without_the_package_is_refused_and_says_what_would_have_come(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch)
    url = site.index("empty", wheel("nki", "0.7.0"))
    root = make_stack("torch-neuronx==2.14.3.0.7\n", indexes=rule(url))
    with pytest.raises(UserError) as raised:
        resolved(root)
    assert f"torch-neuronx (asked for by requirements.in) is not on the index `neuron` ({url})" in str(
        raised.value
    )
    assert "default index would have given torch-neuronx 1.0" in str(raised.value)


def test_the_same_holds_for_what_another_package_asks_for(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch)
    url = site.index("half", wheel("torch-neuronx", "2.14.3.0.7", ("libneuronxla",)))
    root = make_stack("torch-neuronx==2.14.3.0.7\n", indexes=rule(url))
    with pytest.raises(
        UserError, match=r"libneuronxla \(asked for by another package\).*given libneuronxla 1\.0"
    ):
        resolved(root)


@pytest.mark.parametrize("metadata", [False, True])
def test_a_neuron_index_that_hands_out_placeholders_is_refused(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch, metadata: bool
) -> None:
    public(site, monkeypatch)
    url = site.index("mirror", wheel("libneuronxla", "9.9", description=WRONG), metadata=metadata)
    root = make_stack("libneuronxla==9.9\n", indexes=rule(url))
    with pytest.raises(UserError) as raised:
        resolved(root)
    assert f"libneuronxla 9.9 from the index `neuron` ({url})" in str(raised.value)
    assert "WRONG PACKAGE" in str(raised.value)


def test_the_neuron_index_as_default_index_is_refused(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = neuron(site)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{url}/")
    root = make_stack("nki==0.7.0\n", indexes=rule(url))
    with pytest.raises(UserError, match=r"ordinary packages \(numpy\) cannot be resolved"):
        resolved(root)


def test_further_indexes_and_constraints_of_the_machine_do_not_count(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    public(site, monkeypatch)
    other = site.index("other", wheel("numpy", "9.0"))
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("numpy<1\n")
    monkeypatch.setenv("UV_INDEX", other)
    monkeypatch.setenv("UV_INDEX_STRATEGY", "unsafe-best-match")
    monkeypatch.setenv("UV_CONSTRAINT", str(constraints))
    assert resolved(make_stack("numpy\n")).packages == {"numpy": "2.0"}


def test_pins_that_nothing_satisfies_are_the_users_and_name_the_package(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = public(site, monkeypatch)
    with pytest.raises(UserError, match=r"torch==9\.9") as raised:
        resolved(make_stack("torch==9.9\n"))
    assert url not in str(raised.value)


def test_an_index_that_does_not_answer_is_the_machines_and_stays_unnamed(
    make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:1/simple")
    with pytest.raises(InfrastructureError, match="cannot be resolved") as raised:
        resolved(make_stack("numpy\n"))
    assert "127.0.0.1:1/" not in str(raised.value)
    assert "<the default index>" in str(raised.value)


def test_a_neuron_index_that_does_not_answer_is_named(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch)
    root = make_stack("nki==0.7.0\n", indexes=rule("http://127.0.0.1:1/simple"))
    with pytest.raises(InfrastructureError, match=r"http://127\.0\.0\.1:1/simple/nki/ cannot be reached"):
        resolved(root)


def test_a_neuron_package_for_an_older_python_is_refused_though_uv_takes_it(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch)
    url = site.index("old", wheel("neuronx-cc", "2.3.0"), wheel("neuronx-cc", "2.22.0", python="<3.0"))
    root = make_stack("neuronx-cc==2.22.0\n", indexes=rule(url))
    with pytest.raises(UserError, match=r"neuronx-cc 2\.22\.0 requires Python <3\.0 \(this is 3\.11\)"):
        resolved(root)


def test_a_page_that_is_there_with_files_that_are_not_is_no_fault_of_the_pins(
    site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    public(site, monkeypatch)
    del site.pages["/public/files/numpy-2.0-py3-none-any.whl"]
    with pytest.raises(InfrastructureError, match="404"):
        resolved(make_stack("numpy\n"))
