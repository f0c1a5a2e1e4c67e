"""Was a load asked for, and did it happen: the load record, and the folder before the run. Pure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.wording import counted, few, shown

__all__ = ["check_fresh_folder", "check_load"]

_STEP = re.compile(r"step-(\d{1,18})")
LATEST = -1
"""torchtitan's `checkpoint.load_step` for "whichever is newest"."""


def check_load(load: Mapping[str, Any], *, source: str | None = None) -> CheckResult:
    """Judge a run's load record: what was requested must have been loaded, and nothing else.

    The record has `requested` (true, or an object with `load_step`), `loaded` and/or
    `loaded_tensors`, `source`, `format`, and `found_steps` where a step was named. `source` is where
    the weights should come from. Codes `load.step-absent`, `load.nothing`, `load.unasked`,
    `load.source`, `load.record`.
    """
    if (
        not isinstance(load, Mapping)
        or "requested" not in load
        or not load.keys() & {"loaded", "loaded_tensors"}
    ):
        message = "the load record is missing or malformed: it cannot be known whether weights were loaded."
        return judge("load", [Finding("load.record", message, {})], ())
    requested, tensors = load["requested"], load.get("loaded_tensors")
    loaded = bool(load.get("loaded", True)) and tensors != 0
    step = _requested_step(load)
    findings = []
    if step is not None and "found_steps" in load:
        findings += _judge_step(
            step, load["found_steps"], "0 tensors loaded" if not loaded else "something was loaded"
        )
    if requested and not loaded and not findings:
        wanted = shown(source or load.get("source") or "weights")
        message = f"a load of {wanted} was requested, 0 tensors loaded: training started from random weights."
        findings.append(Finding("load.nothing", message, {"requested": requested}))
    if loaded and not requested:
        message = (
            f"no load was requested, but weights came from {shown(load.get('source'))}: a checkpoint that was "
            "left in the dump folder? Use a fresh one."
        )
        findings.append(Finding("load.unasked", message, {"source": load.get("source")}))
    if loaded and requested and source is not None:
        findings += _judge_source(load.get("source"), source)
    if findings or not loaded:
        return judge("load", findings, ["no load was requested and none happened"])
    extent = "" if tensors is None else f"{counted(tensors, 'tensor')} "
    return judge("load", (), [f"loaded {extent}from {load.get('source')} (format {load.get('format')})"])


def check_fresh_folder(
    folder: str, entries: Sequence[str], *, initial_load: str | None = None, load_step: int | None = None
) -> CheckResult:
    """Judge, before a run, that its checkpoint folder does not decide what is loaded.

    `entries` are the names in `folder` (empty when it does not exist); `initial_load` says what the
    recipe starts from ("HF weights"), None for random weights. A trainer resumes from whatever it
    finds there, and one that is already at its last step trains nothing and succeeds. Only a run
    that names a `load_step` may find a folder, and must find that step. Codes `fresh-folder.stale`,
    `fresh-folder.step-absent`.
    """
    steps = sorted(int(match[1]) for name in entries if (match := _STEP.fullmatch(name)))
    if load_step is not None:
        absent = [
            Finding("fresh-folder.step-absent", finding.message, finding.data)
            for finding in _judge_step(load_step, steps, f"in {shown(folder)}")
        ]
        return judge("fresh-folder", absent, [f"{folder} holds the requested step {load_step}"])
    if not entries:
        return judge("fresh-folder", (), [f"{folder} is empty or not there"])
    newest = f"step-{steps[-1]}" if steps else few(sorted(entries))
    effect = (
        "the trainer will resume from it and ignore the initial load"
        if initial_load
        else "the trainer will resume"
    )
    message = (
        f"recipe asks for {initial_load or 'random weights'} but {shown(folder)} already holds {newest}; {effect}. "
        "Use a fresh dump folder or delete it."
    )
    return judge(
        "fresh-folder", [Finding("fresh-folder.stale", message, {"folder": folder, "steps": steps})], ()
    )


def _requested_step(load: Mapping[str, Any]) -> int | None:
    requested = load["requested"]
    step = requested.get("load_step") if isinstance(requested, Mapping) else load.get("load_step")
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def _judge_step(step: int, found: Any, outcome: str) -> list[Finding]:
    steps = list(found) if isinstance(found, Sequence) else []
    if step in steps or (step == LATEST and steps):
        return []
    there = (
        f"found {'step' if len(steps) == 1 else 'steps'} {few(steps, 5)}" if steps else "no step was found"
    )
    message = f"load_step={step} requested, but {there}; {outcome}. Name a step that is there."
    return [Finding("load.step-absent", message, {"requested": step, "found": steps})]


def _judge_source(found: Any, wanted: str) -> list[Finding]:
    if isinstance(found, str) and PurePath(found) == PurePath(wanted):
        return []
    message = f"weights were loaded from {shown(found)}, expected {shown(wanted)}. Check initial_load_path."
    return [Finding("load.source", message, {"found": found, "expected": wanted})]
