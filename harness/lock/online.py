"""Whether what a stack pins outside the package index is still what its names mean. Asks the network."""

from collections.abc import Callable, Mapping

from harness.checks.finding import CheckResult, Finding, judge, not_judged
from harness.lock.registry import Reader, judge_image, read_digest
from harness.lock.sources import Ref, read_ref
from harness.pins import OPEN, SourcePin
from harness.stack import Stack

__all__ = ["check_online", "judge_sources"]

RefReader = Callable[[str, str], Ref | None]


def check_online(
    stack: Stack, *, registry: Reader = read_digest, refs: RefReader = read_ref
) -> list[CheckResult]:
    """Return the results `image` and `sources` of what the stack pins. Raises `InfrastructureError`."""
    results = []
    if stack.base_image is not None:
        results.append(judge_image(stack.base_image, registry))
    if stack.sources:
        results.append(judge_sources(stack.sources, refs))
    return results


def judge_sources(sources: Mapping[str, SourcePin], read: RefReader = read_ref) -> CheckResult:
    """Return whether the tags and branches of source pins still mean the pinned commits.

    Codes: `sources.moved` (a tag means another commit), `sources.gone` (no such name any more). A branch that
    went on is a fact, no finding. Not judged while every commit is unresolved.
    """
    known = {name: pin for name, pin in sources.items() if pin.commit != OPEN}
    if not known:
        return not_judged("sources", f"the commit of {', '.join(sources)} is unresolved")
    findings: list[Finding] = []
    facts: list[str] = []
    for name, pin in known.items():
        now = read(pin.repository, pin.ref)
        if now is None:
            message = f"{name}: {pin.repository} has no {pin.ref} any more; the pin is {pin.commit}. Next: keep a copy."
            findings.append(Finding("sources.gone", message))
        elif now.commit == pin.commit:
            facts.append(f"{name}: {now.kind} {pin.ref} is {pin.commit}")
        elif now.kind == "branch":
            facts.append(f"{name}: branch {pin.ref} went on to {now.commit}; the pin stays at {pin.commit}")
        else:
            message = (
                f"{name}: the tag {pin.ref} of {pin.repository} moved: expected {pin.commit}, found {now.commit}. "
                "Next: look at what changed, then lock again with --upgrade."
            )
            findings.append(Finding("sources.moved", message, {"expected": pin.commit, "found": now.commit}))
    return judge("sources", findings, facts)
