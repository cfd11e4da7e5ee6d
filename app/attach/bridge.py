"""Bridges: consumers with a name, as plugins: `hindcast attach wandb`."""

import re
from importlib.util import find_spec

import msgspec

from hindcast.core.errors import SettingsError
from hindcast.core.plugins import find_plugin

BRIDGES = "bridges"
"""The kind of plugin."""
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class Bridge(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that shows a run in another tool."""

    sends: str
    """What it sends and where to, in a few words."""
    target: str
    """The consumer, as `MODULE:NAME`. It is imported only when it is attached, because it imports the tool's package."""
    package: str
    """Name by which the tool's package is imported, and installed."""
    state_version: int = 1
    """Raise it when what it stores in its consumer store is no longer read by an older version."""


def bridge_target(name: str) -> str:
    """The consumer of a bridge, as `MODULE:NAME`.

    Raises:
        PluginError: there is no bridge of this name.
        SettingsError: its tool's package is not installed.

    """
    bridge = find_plugin(BRIDGES, name, Bridge)
    if find_spec(bridge.package) is None:
        raise SettingsError(
            f"the bridge {name!r} needs the package {bridge.package}, which is not installed here. Run: pip install {bridge.package}"
        )
    return bridge.target


def check_bridge(found: Bridge) -> list[str]:
    """Describe the mistakes of a bridge, one sentence each. Its target is not imported."""
    problems = []
    if not found.sends:
        problems.append("its `sends` does not say what it sends")
    if not _TARGET.fullmatch(found.target):
        problems.append(f"its target is {found.target!r}; expected MODULE:NAME, such as my_module:consumer")
    elif find_spec(found.target.partition(":")[0].partition(".")[0]) is None:
        problems.append(f"its target is {found.target!r}, and there is no such module")
    if not found.package.isidentifier():
        problems.append(f"its package is {found.package!r}; expected the name that is imported")
    return problems


WANDB = Bridge(
    sends="curves, episodes and alerts to Weights & Biases",
    target="hindcast.app.examples.wandb_bridge:consumer",
    package="wandb",
)
TRACKIO = Bridge(
    sends="curves, episodes and alerts to Trackio",
    target="hindcast.app.examples.trackio_bridge:consumer",
    package="trackio",
)
TENSORBOARD = Bridge(
    sends="curves, episodes and alerts to files of TensorBoard",
    target="hindcast.app.examples.tensorboard_bridge:consumer",
    package="tensorboardX",
)
