"""Digests of what training depends on: settings, and the states of all models that are trained."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hindcast.core.ids import digest_hex


def config_digest(recorded: Mapping[str, Any]) -> str:
    """Digest of the settings that shape a batch and its updates, as the log records them.

    Not of our own model of them: a setting that a later Hindcast adds must not change the digest of an earlier run.
    """
    relevant = {
        "learner": recorded.get("learner"),
        "judge": recorded.get("judge"),
        "max_attempts": recorded.get("curriculum", {}).get("max_attempts"),
    }
    return digest_hex(msgspec.json.encode(relevant, order="sorted"))
