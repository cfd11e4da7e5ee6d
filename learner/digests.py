"""Digest of the settings that training depends on."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hindcast.core.ids import digest_hex


def config_digest(recorded: Mapping[str, Any]) -> str:
    """Digest of the settings that shape a batch and its updates, as the log records them.

    It covers the recorded values, not our model of them: a setting added later must not change the digest of an older run.
    """
    relevant = {
        "learner": recorded.get("learner"),
        "judge": recorded.get("judge"),
        "max_attempts": recorded.get("curriculum", {}).get("max_attempts"),
    }
    return digest_hex(msgspec.json.encode(relevant, order="sorted"))
