"""Names for the modules that call kernels, so that every call is counted where it happened.

A module that calls a kernel has the attribute `kernel_site` and hands it to the op with each call;
the op keeps it in its autograd context and counts the backward for the same site. The name is known
only once the model is built, hence `name_sites`.
"""

from typing import Any, Protocol, runtime_checkable

__all__ = ["UNNAMED", "KernelSite", "module_fqn", "name_sites"]

UNNAMED = "(unnamed)"
"""The site of a module that nobody named."""

# Wrappers that put their own child into the path of a module.
_WRAPPERS = ("_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module")


@runtime_checkable
class KernelSite(Protocol):
    """A module that calls a kernel."""

    kernel_site: str


def module_fqn(name: str) -> str:
    """Return a module's name as the model's config has it, without the parts that wrappers add.

    `layers.0._checkpoint_wrapped_module.attention.rope` -> `layers.0.attention.rope`.
    """
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def name_sites(model: Any) -> list[str]:
    """Set `kernel_site` on every module of `model` (a torch module) that has it; return the names in order.

    Call it after the model is built and parallelised. An empty list means that no kernel is in the
    model.
    """
    names = []
    for name, module in model.named_modules():
        if isinstance(module, KernelSite):
            module.kernel_site = module_fqn(name)
            names.append(module.kernel_site)
    return names
