"""The SDK release of observed components: exact, ambiguous, none with the nearest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import sdk
from harness.sdk import derive_sdk, documented_version, load_releases

OF_2_33_0 = {
    "neuronx-cc": "2.28.7631.0+0123abcd",
    "nki": "0.7.0",
    "torch-neuronx": "2.14.3.0.998877+0123abcd",
    "libneuronxla": "3.0.10135.0",
    "aws-neuronx-runtime-lib": "2.35.30.0-ac18d186d",
    "aws-neuronx-collectives": "2.35.43.0-ac18d186d",
    "aws-neuronx-tools": "2.33.38.0",
    "torch": "2.14.0",
}


def test_the_components_of_a_release_name_it() -> None:
    match = derive_sdk(OF_2_33_0)
    assert match.releases == ("2.33.0",)
    assert "torch" not in match.components
    assert match.components["neuronx-cc"] == "2.28.7631.0"
    assert match.sentence() == "SDK 2.33.0, by 7 component(s)"


def test_an_ambiguous_list_gives_both() -> None:
    match = derive_sdk({"neuronx-cc": "2.26.6360.0+abc", "nki": "0.5.0"})
    assert match.releases == ("2.31.1", "2.31.0")
    assert "one of SDK 2.31.1, 2.31.0" in match.sentence()


def test_one_more_component_tells_them_apart() -> None:
    assert derive_sdk({"neuronx-cc": "2.26.6360.0", "aws-neuronx-tools": "2.31.13.0"}).releases == ("2.31.0",)


def test_a_mixture_fits_nothing_and_names_the_nearest() -> None:
    match = derive_sdk(OF_2_33_0 | {"neuronx-cc": "2.27.5334.0+f702b353"})
    assert match.releases == ()
    assert list(match.nearest) == ["2.33.0"]
    assert match.nearest["2.33.0"] == ("neuronx-cc is 2.27.5334.0, the release has 2.28.7631.0",)
    assert "no SDK release fits; nearest is 2.33.0" in match.sentence()


def test_versions_nobody_knows_have_no_nearest() -> None:
    match = derive_sdk({"neuronx-cc": "99.0"})
    assert (match.releases, match.nearest) == ((), {})
    assert match.sentence() == "no known SDK release has any of these versions"


@pytest.mark.parametrize("observed", [{}, {"torch": "2.14.0", "numpy": "2.0"}])
def test_nothing_seen_is_said(observed: dict[str, str]) -> None:
    match = derive_sdk(observed)
    assert (match.releases, match.components) == ((), {})
    assert match.sentence() == "no Neuron component was seen"


@pytest.mark.parametrize(
    ("pin", "version"),
    [
        ("2.27.5334.0+f702b353", "2.27.5334.0"),
        ("2.34.10.0-ac18d186d", "2.34.10.0"),
        ("2.33.38.0", "2.33.38.0"),
        (" 0.7.0 ", "0.7.0"),
        ("1.0~rc1", "1.0"),
    ],
)
def test_a_pin_loses_its_hash(pin: str, version: str) -> None:
    assert documented_version(pin) == version


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("2.14.3.0.123+abc", True),
        ("2.14.3.0", True),
        ("2.14.3.01.1", False),
        ("2.14.3", False),
        ("2.14.30.0.1", False),
        ("2.9.0.2.15.32035+8e87", True),
    ],
)
def test_a_family_takes_more_parts_and_nothing_else(version: str, fits: bool) -> None:
    assert ("2.33.0" in derive_sdk({"torch-neuronx": version}).releases) is fits


def test_the_table_is_whole() -> None:
    releases = load_releases()
    assert len(releases) == 52
    assert (releases[0].sdk, releases[0].date) == ("2.33.0", "2026-10-19")
    assert {name for release in releases for name in release.packages} == sdk.COMPONENTS


def test_all_packages_of_a_release_leave_at_most_its_twin() -> None:
    sizes = []
    for release in load_releases():
        everything = {name: versions[0].replace(".*", ".7") for name, versions in release.packages.items()}
        match = derive_sdk(everything)
        assert release.sdk in match.releases
        sizes.append(len(match.releases))
    # 2.27.0/2.27.1 and 2.24.0/2.24.1 cannot be told apart by any package.
    assert (sizes.count(1), sizes.count(2)) == (48, 4)


@given(st.data())
def test_fewer_components_never_lose_the_release(data: st.DataObject) -> None:
    release = data.draw(st.sampled_from(load_releases()))
    names = data.draw(st.sets(st.sampled_from(sorted(release.packages)), min_size=1))
    observed = {
        name: data.draw(st.sampled_from(release.packages[name])).replace(".*", ".7")
        + data.draw(st.sampled_from(["", "+f702b353", "-ac18d186d"]))
        for name in names
    }
    assert release.sdk in derive_sdk(observed).releases


@given(st.dictionaries(st.sampled_from(sorted(sdk.COMPONENTS)), st.text(max_size=12)))
def test_the_answer_is_a_release_or_says_why_not(observed: dict[str, str]) -> None:
    match = derive_sdk(observed)
    assert not (match.releases and match.nearest)
    assert match.sentence()
