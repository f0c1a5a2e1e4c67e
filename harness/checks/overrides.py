"""Override check: did every replacement that was asked for happen, on the model that was built?

torchtitan only warns when an override matches nothing, and a replacement that comes too late, or
reaches part of the model, trains just as well. So four accounts must agree: the log lines, the calls
of the override's factory, the modules of the built model, and the modules that should be replaced;
where there is a kernel record, each replaced module must also have run in the first step.

Standard library only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge

__all__ = ["CHECK", "check_overrides"]

CHECK = "overrides"


def check_overrides(
    record: Mapping[str, Any],
    *,
    requested: Sequence[str],
    kernel: Mapping[str, Any] | None = None,
) -> CheckResult:
    """Judge an override record (`harness.stackside.overrides`, its JSON).

    `requested` are the overrides that the run was asked for, in the form the record has; none means
    that nothing may have been replaced. `kernel` is the kernel record of one rank
    (`harness.stackside.nki.record`).
    """
    try:
        asked = [str(name) for name in record["requested"]]
        targets = [str(fqn) for fqn in record["targets"]]
        built = [str(module["fqn"]) for module in record["built"]]
        types = sorted({str(module["type"]) for module in record["built"]})
        logged = [(str(line["override"]), str(line["fqn"])) for line in record["log_lines"]]
        calls, form = int(record["factory_calls"]), record["form"]
    except (KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        return judge(CHECK, [Finding(f"{CHECK}.record", f"the override record cannot be read: {what}")], [])
    findings = list(_requested(asked, requested))
    if not requested:
        findings += _unasked(logged, calls, built)
        return judge(CHECK, findings, ["no override was asked for, none was made"])
    name = ", ".join(requested)
    findings += _replaced(name, targets, built)
    findings += _accounts(name, targets, logged, calls, built)
    findings += _log_names(requested, logged)
    facts = []
    if built:
        facts.append(
            f"{name}: {len(built)} modules replaced by {', '.join(types)} ({_few(built)}); decorator form {form}"
        )
    if kernel is not None:
        hits = list(_hits(name, built, kernel))
        findings += hits
        if built and not hits:
            facts.append(f"{name}: each of the {len(built)} replaced modules ran in the first step")
    return judge(CHECK, findings, facts)


def _requested(asked: Sequence[str], requested: Sequence[str]) -> Iterator[Finding]:
    if sorted(asked) != sorted(requested):
        yield Finding(
            f"{CHECK}.requested",
            f"torchtitan was given the overrides {list(asked)}, the run was asked for {list(requested)}",
        )


def _unasked(logged: Sequence[tuple[str, str]], calls: int, built: Sequence[str]) -> Iterator[Finding]:
    seen = [f"{len(logged)} log lines", f"{calls} factory calls", f"{len(built)} replaced modules"]
    if logged or calls or built:
        yield Finding(f"{CHECK}.unasked", f"no override was asked for, but there are {', '.join(seen)}")


def _replaced(name: str, targets: Sequence[str], built: Sequence[str]) -> Iterator[Finding]:
    """Yield how the built model differs from the modules that should be replaced."""
    missing, extra = sorted(set(targets) - set(built)), sorted(set(built) - set(targets))
    if not targets:
        yield Finding(f"{CHECK}.no-targets", f"override {name}: the model has no module it is meant for")
    if not built:
        yield Finding(
            f"{CHECK}.none",
            f"override {name}: expected {len(targets)} modules, replaced 0: it matches nothing (wrong target class "
            "or names), or it was applied after the model was built",
        )
        return
    if missing:
        yield Finding(
            f"{CHECK}.partial",
            f"override {name}: expected {len(targets)} modules, replaced {len(set(targets) & set(built))}; missing: "
            f"{_few(missing)}",
            {"missing": missing},
        )
    if extra:
        yield Finding(
            f"{CHECK}.extra",
            f"override {name}: replaced modules that no target names: {_few(extra)}",
            {"extra": extra},
        )


def _accounts(
    name: str, targets: Sequence[str], logged: Sequence[tuple[str, str]], calls: int, built: Sequence[str]
) -> Iterator[Finding]:
    """Yield where log lines, factory calls and built modules disagree, and which module appears twice."""
    lines = [_module(fqn, [*targets, *built]) for _, fqn in logged]
    for account, names in (("logged", lines), ("built", list(built))):
        twice = sorted(fqn for fqn, count in Counter(names).items() if count > 1)
        if twice:
            yield Finding(f"{CHECK}.twice", f"override {name}: {account} more than once: {_few(twice)}")
    if not len(lines) == calls == len(built):
        yield Finding(
            f"{CHECK}.disagree",
            f"override {name}: {len(lines)} log lines, {calls} factory calls and {len(built)} modules in the built "
            "model, expected equal numbers",
        )
    only_logged, only_built = sorted(set(lines) - set(built)), sorted(set(built) - set(lines))
    if only_logged and built:
        yield Finding(
            f"{CHECK}.disagree", f"override {name}: logged but not in the built model: {_few(only_logged)}"
        )
    if only_built and lines:
        yield Finding(
            f"{CHECK}.disagree", f"override {name}: in the built model but not logged: {_few(only_built)}"
        )


def _log_names(requested: Sequence[str], logged: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    # The older decorator logs the override's own name while the run names its module.
    known = {part for name in requested for part in (name, name.rpartition(".")[2])}
    strange = sorted(
        {name for name, _ in logged if name not in known and name.rpartition(".")[0] not in requested}
    )
    if strange and not any("." not in name for name in strange):
        yield Finding(
            f"{CHECK}.requested", f"overrides that nobody asked for were applied: {', '.join(strange)}"
        )


def _hits(name: str, built: Sequence[str], kernel: Mapping[str, Any]) -> Iterator[Finding]:
    steps = kernel.get("steps") or []
    first = steps[0].get("forward", {}) if steps else {}
    unhit = [fqn for fqn in built if not first.get(fqn)]
    # A compiled graph does not tell its layers apart: then only the number can be right.
    if set(first) == {"(compiled)"} and sum(first.values()) >= len(built):
        return
    if unhit:
        yield Finding(
            f"{CHECK}.not-hit",
            f"override {name}: {len(unhit)} of {len(built)} replaced modules did not run in the first step: "
            f"{_few(unhit)}",
            {"not_hit": unhit},
        )


def _module(fqn: str, known: Iterable[str]) -> str:
    """Return the module a logged config path means: torchtitan logs it with the path of the model before it."""
    return next((name for name in known if fqn == name or fqn.endswith(f".{name}")), fqn)


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
