"""Takes a Hugging Face folder into a home, as the base of new runs: checked, copied whole, private and unchanging."""

import shutil
from pathlib import Path

from hindcast.app.exports.output_folder import whole_folder
from hindcast.app.exports.policy_folder import BESIDE_WEIGHTS
from hindcast.app.system.model_check import check_model
from hindcast.core.models.folder_check import CheckFinding
from hindcast.core.models.model_files import CONFIG, GENERATION, INDEX, weight_files
from hindcast.core.settings.schema import Settings

MODELS = "models"
"""Folder of a home that holds imported models."""


def import_model(folder: Path, to: Path, settings: Settings) -> list[CheckFinding]:
    """Check a model under these settings, and copy what a policy is read from to the new folder `to` if no check failed.

    Code, pickled weights and everything else in the folder are left behind.

    Raises:
        ExportRefused: `to` is there and not empty.
        ExportFailed: the disk is full or not writable.
    """
    findings = check_model(folder, settings)
    if any(finding.verdict == "failed" for finding in findings):
        return findings
    companions = [
        path for pattern in (CONFIG, GENERATION, INDEX, *BESIDE_WEIGHTS) for path in folder.glob(pattern)
    ]
    with whole_folder(to) as unfinished:
        for path in sorted({*companions, *weight_files(folder)}):
            if path.is_file():
                shutil.copyfile(path, unfinished / path.name)
    return findings
