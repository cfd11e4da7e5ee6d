"""Checks whether a model's folder can be a policy under some settings: by its files, and by one round of use."""

from pathlib import Path

import psutil

from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.models.engine import find_engine
from hindcast.core.models.folder_check import MIB, CheckFinding, check_folder, loading_bytes
from hindcast.core.models.folders import policy_folder
from hindcast.core.models.samples import EXAMPLE, sample_pictures
from hindcast.core.prompts.chat_frame import turns_of
from hindcast.core.settings.schema import Settings


def check_model(folder: Path, settings: Settings) -> list[CheckFinding]:
    """All findings, in order. The model is only computed with if no earlier check failed."""
    found = check_folder(folder, settings)
    if all(finding.verdict != "failed" for finding in found):
        found.append(_round_trip(folder, settings))
    return found


def require_model(settings: Settings) -> None:
    """Check the base model of a new run. Raises SettingsError with every failed check."""
    failed = [
        f"policy.base = {settings.policy.base!r}, {finding.part}: {finding.result} {finding.fix}".rstrip()
        for finding in check_model(policy_folder(settings.policy.base), settings)
        if finding.verdict == "failed"
    ]
    if failed:
        raise SettingsError("\n".join(failed))


def _round_trip(folder: Path, settings: Settings) -> CheckFinding:
    from hindcast.actors.engines.round_trip import TOLERANCE, RoundTripPrompt, round_trip
    from hindcast.core.models.policy import load_policy

    if not find_engine(settings.policy.engine).traits.computes_here:
        return CheckFinding(
            part="use",
            verdict="note",
            result=f"not tried: policy.engine = {settings.policy.engine!r} samples elsewhere",
            fix="Look at the mismatch of sampler and learner once the run is under way: it is alarmed on.",
        )
    needed, available = loading_bytes(folder), psutil.virtual_memory().available
    if needed > available:
        return CheckFinding(
            part="use",
            verdict="note",
            result=f"not tried: loading takes {needed / MIB:.0f} MiB, and {available / MIB:.0f} MiB of memory are free here",
            fix="Check it again on a machine that can hold it.",
        )
    actors = settings.actors
    try:
        policy = load_policy(folder)
        turns = turns_of(policy.tokenizer, actors.framing, thinking=actors.answer_format == "thinking")
        pictures = sample_pictures(folder, settings)
        standing_in = [token for picture in pictures for token in picture.ids]
        prompts = [
            RoundTripPrompt(
                [*turns.head(EXAMPLE, answers, [None] * len(answers)), *standing_in, *turns.closing], pictures
            )
            for answers in ([], [EXAMPLE])
        ]
        tried = round_trip(policy, prompts)
    except HindcastError as error:
        return CheckFinding(part="use", verdict="failed", result=str(error))
    except Exception as error:  # the architecture's own code may fail in any way
        return CheckFinding(
            part="use",
            verdict="failed",
            result=f"{type(error).__name__} when it was computed with: {error}",
            fix="Sampling here asks a causal transformer for keys and values of each position; use one, or serve it by vLLM.",
        )
    to = " to a screenshot" if pictures else ""
    result = f"{tried.answers} answers{to}, {tried.tokens} tokens: sampling and scoring differ by {tried.difference:.1e} at most"
    if not tried.agrees:
        return CheckFinding(
            part="use",
            verdict="failed",
            result=result,
            fix=f"More than {TOLERANCE:g} is no rounding: this architecture changes its logits after the head, or keeps a state "
            "that the engine does not. It cannot be trained here; use another.",
        )
    return CheckFinding(part="use", verdict="ok", result=result)
