"""Which folders a stack's assets are: the roles that recipes ask for, resolved."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness import assets, process
from harness.cache import cache_root
from harness.environment import Environment
from harness.errors import UserError
from harness.stack import HubAssets, Stack, SyntheticAssets

__all__ = ["resolve_assets"]


def resolve_assets(
    stack: Stack, built: Environment, *, say: Callable[[str], None] = lambda _: None
) -> dict[str, Path]:
    """Return role -> folder for the stack's models, and `corpus`; made or fetched once, verified every time."""
    if isinstance(stack.assets, SyntheticAssets):
        return _synthetic(stack, stack.assets, built, say)
    return _hub(stack, stack.assets)


def _synthetic(
    stack: Stack, declared: SyntheticAssets, built: Environment, say: Callable[[str], None]
) -> dict[str, Path]:
    def run_process(argv: Sequence[str], *, env: Mapping[str, str], timeout: float) -> process.Completed:
        say("making corpus, tokenizer and checkpoints")
        return process.run(argv, env=env, timeout=timeout)

    made = assets.synthetic(built.python, stack.lock_digest(), cache_root(), run_process)
    models = {role: made.path(folder) for role, folder in declared.models.items()}
    return {**models, "corpus": made.path("c4_test")}


def _hub(stack: Stack, declared: HubAssets) -> dict[str, Path]:
    """Unverified on hardware: the Hub's artefacts have only been stood for by local folders."""
    offline = stack.environment.get("HF_HUB_OFFLINE") == "1"
    where = str(stack.folder / "stack.yaml")
    models = {
        role: assets.hub(
            model.repo,
            model.revision,
            cache_root(),
            offline=offline,
            where=f"{where}: assets.models.{role}.revision",
        ).folder
        for role, model in declared.models.items()
    }
    corpus = stack.folder.parent.parent / declared.corpus
    if not (corpus / "data.json").is_file():
        raise UserError(
            f"{corpus / 'data.json'}: no such file. Next: put torchtitan's c4_test data file there."
        )
    return {**models, "corpus": corpus}
