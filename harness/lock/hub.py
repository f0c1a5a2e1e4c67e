"""The commit that a model repository of the Hub is at now."""

from harness.errors import InfrastructureError, UserError

__all__ = ["read_commit"]

_SECONDS = 20.0


def read_commit(repo: str) -> str:
    """Return the 40-digit commit of a model repository's main branch.

    Raises `UserError` if there is no such repository, `InfrastructureError` if the Hub cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    try:
        commit = HfApi().model_info(repo, timeout=_SECONDS).sha
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise UserError(f"{repo}: no such model repository: {str(error).splitlines()[0]}") from None
    except Exception as error:  # the HTTP library's own errors share no base with Python's
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InfrastructureError(f"the Hub cannot be asked for {repo}: {reason}") from error
    if not commit:
        raise InfrastructureError(f"the Hub names no commit for {repo}")
    return commit
