"""The stage `grade`: from a run's evidence and expectations to the verdict of each of its checks.

Here evidence is read and handed to the checks as values; what is missing makes a check not judged, with
the reason. Nothing is executed: stored evidence can be judged again at any time.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.checks.buffers import check_buffers
from harness.checks.configuration import check_configuration
from harness.checks.finding import CheckResult, judge, not_judged
from harness.checks.kernel import Claim, check_probe, check_training
from harness.checks.key_storage import check_adapter, check_aliases
from harness.checks.loss import FirstLoss, check_loss
from harness.checks.overrides import check_overrides
from harness.checks.parameter_dtypes import check_dtypes
from harness.checks.ranks import check_ranks
from harness.checks.reference import check_reference
from harness.checks.reload import check_reload
from harness.checks.twin import check_twin
from harness.checks.weights import check_weights
from harness.evidence import Evidence
from harness.expectation import Expectations, RunExpectations
from harness.files import load_json
from harness.key_report import check_folder
from harness.recipe import Recipe, Run
from harness.safetensors_files import read_checkpoint
from harness.stack import Stack
from harness.weight_digests import file_digests

__all__ = ["GRADERS", "Case", "grade"]


class MissingEvidenceError(Exception):
    """The run did not leave what a check needs."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a grader may look at: one run's evidence, what was asked, and what is expected."""

    evidence: Evidence
    recipe: Recipe
    name: str
    stack: Stack
    expectations: RunExpectations
    twin: Evidence | None

    @property
    def run(self) -> Run:
        """The run as the recipe declares it."""
        return self.recipe.runs[self.name]

    @property
    def request(self) -> Mapping[str, Any]:
        """What was asked."""
        found: Mapping[str, Any] = self.need("request.json")
        return found

    def need(self, name: str) -> Any:
        """Return a JSON file of the evidence. Raises `MissingEvidenceError` if it is not there."""
        value = self.evidence.read(name)
        if value is None:
            raise MissingEvidenceError(f"the run left no {name}{self.because()}")
        return value

    def ended(self) -> str:
        """Return how the run ended, in words; empty if it ended well."""
        outcome = self.evidence.read("outcome.json") or {}
        return str(outcome.get("reason", ""))

    def because(self) -> str:
        """Return the same in brackets, for the end of a message."""
        return f" ({self.ended()})" if self.ended() else ""

    def model_config(self) -> Mapping[str, Any]:
        """Return the Hugging Face configuration of the run's model."""
        config: Mapping[str, Any] = load_json(Path(self.request["model"]) / "config.json")
        return config


def grade(
    check: str,
    evidence: Evidence,
    recipe: Recipe,
    name: str,
    stack: Stack,
    expectations: Expectations,
    twin_evidence: Evidence | None,
) -> CheckResult:
    """Return the verdict of `check` on one run's evidence."""
    expected = expectations.runs.get(name, RunExpectations())
    case = Case(evidence, recipe, name, stack, expected, twin_evidence)
    try:
        return GRADERS[check](case)
    except MissingEvidenceError as missing:
        return not_judged(check, str(missing))


def _configuration(case: Case) -> CheckResult:
    return check_configuration(case.need("observed/resolved-config.json"), case.request["configuration"])


def _loss(case: Case) -> CheckResult:
    band = case.expectations.first_loss
    first = FirstLoss(band.low, band.high, band.origin()) if band is not None else None
    return check_loss(
        case.evidence.metrics(),
        steps=case.request["steps"],
        vocabulary=case.model_config()["vocab_size"],
        published=case.run.initial == "published",
        first=first,
        falls_by=case.expectations.falls_by or 0.0,
        ended=case.ended(),
    )


def _reference(case: Case) -> CheckResult:
    reference = case.need("observed/reference.json")
    batches = {rank: record["batches"] for rank, record in case.evidence.per_rank("batches").items()}
    return check_reference(
        case.evidence.metrics(),
        batches,
        reference,
        mask=case.run.mask,
        steps=case.request["steps"],
        exported=case.run.export,
        factors={"ranks": case.request["ranks"]},
    )


def _weights(case: Case) -> CheckResult:
    observed = case.need("observed/weights.json")
    start = case.need("observed/start-rank0.json")
    source = Path(case.request["model"])
    files = read_checkpoint(source)
    if len(observed["tensors"]) < observed["of"]:
        # A sample was asked for: what was not recorded is not compared, and the fact says how many were.
        held = {name: tensor for name, tensor in files.tensors.items() if name in observed["tensors"]}
        files = dataclasses.replace(files, tensors=held)
    tied = bool(case.model_config()["tie_word_embeddings"])
    loaded = check_weights(observed, file_digests(files), tied=tied, source=str(source), load=start["load"])
    adapter = _adapter(case.need("observed/adapter.json"), tied)
    return judge("weights", [*loaded.findings, *adapter.findings], [*loaded.facts, *adapter.facts])


def _adapter(record: Mapping[str, Any], tied: bool) -> CheckResult:
    before, after, facts = record["before"], record["after"], []
    if tied and set(after) - set(before) == {"lm_head.weight"}:
        # Known of torchtitan 0.3.0, and harmless where the caller hands over a dictionary of its own, as its
        # checkpoint manager does.
        facts.append("the adapter's from_hf() adds lm_head.weight to its input (known of torchtitan 0.3.0)")
        after = before
    trip = check_adapter(
        before, after, record["result"], what=f"{record.get('adapter', 'adapter')}.from_hf()"
    )
    aliases = check_aliases(record["storage"])
    return judge("weights", [*trip.findings, *aliases.findings], [*trip.facts, *facts, *aliases.facts])


def _ranks(case: Case) -> CheckResult:
    starts = _starts(case)
    shards = check_ranks(starts, world_size=case.request["ranks"])
    # Master weights: torchtitan holds them in `training.dtype`, whatever it computes in.
    dtypes = check_dtypes(starts, expected=case.request["configuration"]["training.dtype"])
    return judge("ranks", [*shards.findings, *dtypes.findings], [*shards.facts, *dtypes.facts])


def _buffers(case: Case) -> CheckResult:
    sizes = case.request["sizes"]
    own = {"rope_theta": sizes.get("rope_theta"), "head_dim": sizes.get("head_dim")}
    # A recipe whose model has sizes of its own says so there; all others are what their config.json says.
    config = own if own["rope_theta"] is not None else case.model_config()
    return check_buffers(_starts(case), config)


def _starts(case: Case) -> list[Any]:
    records = list(case.evidence.per_rank("start").values())
    if not records:
        raise MissingEvidenceError(f"no rank recorded its start{case.because()}")
    return records


def _keys(case: Case) -> CheckResult:
    export = case.evidence.export()
    if export is None:
        raise MissingEvidenceError(f"the run left no export{case.because()}")
    return check_folder(export, Path(case.request["model"]), declared_dtype="float32", require_config=False)


def _reload(case: Case) -> CheckResult:
    return check_reload(case.need("observed/reload.json"), tolerance=RELOAD_TOLERANCE)


def _overrides(case: Case) -> CheckResult:
    requested = case.run.override.imports if case.run.override else ()
    kernel = case.evidence.read("observed/kernel-rank0.json")
    return check_overrides(case.need("observed/overrides.json"), requested=requested, kernel=kernel)


def _kernel(case: Case) -> CheckResult:
    claim: Claim = "device" if case.stack.device == "neuron" else "any"
    shipped = hashlib.sha256((case.recipe.folder / "rope_kernel.py").read_bytes()).hexdigest()
    if case.run.kind == "kernel-probe":
        asked = case.need("request-probe.json")
        return check_probe(
            case.need("observed/kernel-probe.json"),
            salt=asked["salt"],
            lnc=asked["lnc"],
            claim=claim,
            kernel_sha256=shipped,
        )
    override = case.run.override
    layers = case.request["sizes"][override.layers] if override else 0
    sites = [override.sites.format(layer=layer) for layer in range(layers)] if override else []
    return check_training(
        list(case.evidence.per_rank("kernel").values()),
        sites=sites,
        steps=case.request["steps"],
        ranks=case.request["ranks"],
        claim=claim,
        salt=case.request["salt"],
        kernel_sha256=shipped,
    )


def _twin(case: Case) -> CheckResult:
    if case.twin is None:
        raise MissingEvidenceError("there is no run to compare with")
    return check_twin(case.evidence.metrics(), case.twin.metrics(), name=case.run.twin or "")


RELOAD_TOLERANCE = 1e-5
"""Largest absolute difference of logits, float32: the trainer's attention adds in another order than
Transformers' own; measured at about 2e-6 for logits with a standard deviation of 1.4."""

GRADERS: dict[str, Callable[[Case], CheckResult]] = {
    "configuration": _configuration,
    "loss": _loss,
    "reference": _reference,
    "weights": _weights,
    "ranks": _ranks,
    "buffers": _buffers,
    "keys": _keys,
    "reload": _reload,
    "overrides": _overrides,
    "kernel": _kernel,
    "twin": _twin,
}
"""Check name -> what judges it. Every name of `recipe.CHECKS` has one; a test holds that."""
