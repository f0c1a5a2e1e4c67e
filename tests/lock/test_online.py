"""Whether tags still mean what is pinned: given readers, no network."""

from harness.lock.online import check_online, judge_sources
from harness.lock.sources import Ref
from harness.pins import SourcePin
from harness.stack import load_stack
from tests.lock.conftest import Maker

ONE, TWO = "1" * 40, "2" * 40
DIGEST = "sha256:" + "3" * 64


def source(commit: str = ONE) -> dict[str, SourcePin]:
    return {"thing": SourcePin(version="1", repository="r", ref="v1", commit=commit, tree=DIGEST)}


def test_a_name_that_still_means_the_commit_passes() -> None:
    result = judge_sources(source(), lambda *_: Ref("tag", ONE))
    assert (result.verdict, result.facts) == ("pass", (f"thing: tag v1 is {ONE}",))


def test_a_moved_tag_is_a_finding_with_both_commits() -> None:
    (finding,) = judge_sources(source(), lambda *_: Ref("tag", TWO)).findings
    assert finding.code == "sources.moved"
    assert f"expected {ONE}, found {TWO}" in finding.message


def test_a_branch_that_went_on_is_a_fact() -> None:
    result = judge_sources(source(), lambda *_: Ref("branch", TWO))
    assert result.verdict == "pass"
    assert "went on" in result.facts[0]


def test_a_name_that_is_gone_is_a_finding() -> None:
    assert [item.code for item in judge_sources(source(), lambda *_: None).findings] == ["sources.gone"]


def test_what_is_unresolved_is_not_judged() -> None:
    assert judge_sources(source("unresolved"), lambda *_: None).verdict == "not-judged"


def test_a_stack_is_asked_for_what_it_has(make_stack: Maker) -> None:
    plain = load_stack(make_stack("a==1\n"), "small")
    assert check_online(plain) == []
    image = {"repository": "127.0.0.1:1/x", "tag": "v1", "digest": DIGEST}
    pins = {name: pin.model_dump() for name, pin in source().items()}
    full = load_stack(make_stack("a==1\n", base_image=image, sources=pins), "small")
    results = check_online(full, registry=lambda *_: DIGEST, refs=lambda *_: Ref("tag", ONE))
    assert [(result.check, result.verdict) for result in results] == [("image", "pass"), ("sources", "pass")]
