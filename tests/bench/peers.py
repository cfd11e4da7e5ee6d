"""Peers run in environments of their own, so that their requirements never meet ours."""

import os
import subprocess
import sys
from pathlib import Path

from hindcast.core.errors import HindcastError
from hindcast.core.ids import digest_hex

INSTALL_S = 1800.0


class PeerUnavailable(HindcastError):
    """A peer that we compare with could not be installed."""


def peer_python(name: str, requirements: tuple[str, ...], *, home: Path) -> Path:
    """The interpreter of an environment that holds `requirements`, made on first use under `home/peers`.

    Raises:
        PeerUnavailable: pip could not install them; its own words are in the message.

    """
    folder = home / "peers" / f"{name}-{digest_hex(repr(requirements).encode())[:8]}"
    python = folder / "bin" / "python"
    done = folder / "complete"
    if done.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"installing {', '.join(requirements)} into {folder} (once)\n")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
    ):
        outcome = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False, env={**os.environ}
        )
        if outcome.returncode != 0:
            raise PeerUnavailable(
                f"the peer {name} could not be installed ({', '.join(requirements)}): {outcome.stderr.strip()[-800:]}\n"
                "The comparison needs a package index; everything else works without it."
            )
    done.touch()
    return python
