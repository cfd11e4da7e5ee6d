"""Where model folders lie. Apart from `policy`, for those who need no torch."""

from pathlib import Path

SHIPPED = "base"
"""Value of `policy.base` that means the small policy that ships with Hindcast."""


def base_policy_folder() -> Path:
    """Where the policy that ships with Hindcast lies."""
    return Path(__file__).parent / "base"


def policy_folder(name: str) -> Path:
    """The folder that `policy.base` names: `base`, or a path."""
    return base_policy_folder() if name == SHIPPED else Path(name)
