"""Exports a policy version as a model folder in Hugging Face's format, which transformers, peft and vLLM load.

    log ──find_version──> PolicyVersion ──write_policy_folder──> config, tokenizer, generation settings, weights, model card

Whole weights are written by transformers itself, with the names and the tied head that its loaders expect. An adapter is
written as `peft` stores it, or merged into its base's weights.
"""

import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from hindcast.app.exports.output_folder import ExportRefused, whole_folder
from hindcast.app.runs.sources import Source
from hindcast.core.models.adapter_file import CONFIG_NAME, adapter_config, write_adapter_folder
from hindcast.core.models.folders import policy_folder
from hindcast.core.settings.computing import Precision
from hindcast.core.settings.schema import Settings
from hindcast.core.text.plain_values import read_count
from hindcast.events.catalogue import BlobReleased, EvaluationFinished, RunStarted, WeightsPublished
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.reader import read

LAST, BEST = "last", "best"
BESIDE_WEIGHTS = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab.*",
    "merges.txt",
    "*processor_config.json",
    "LICENSE*",
)
"""Files of the base's folder that an export has unchanged."""


class PolicyVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a run's policy, and where it comes from."""

    run: str
    recipe: str
    version: int
    update: int
    """Updates of the policy before it."""
    position: int
    """Of its `weights.published` in the log."""
    log_digest: str
    """Rolling sha256 of the log up to that position, as `hindcast audit --expect` takes it."""
    sha256: str
    """Of the published file."""
    weights: Path
    settings: Settings
    evaluation: EvaluationFinished | None
    """The last one of this version in the run; None: it was not evaluated."""
    code_rev: str


async def find_version(source: Source, wanted: str) -> PolicyVersion:
    """Find a version in a run's log: its number, `last`, or `best`.

    `best` is the one with the highest success in the run's own evaluations, at the first of their temperatures; the earliest
    of several.

    Raises:
        ExportRefused: there is none of that name, or its weights were released.

    """
    published: dict[int, tuple[WeightsPublished, int, str]] = {}
    evaluations: dict[int, EvaluationFinished] = {}
    released: set[BlobRef] = set()
    recipe = ""
    async for recorded, digest in _with_digests(source):
        match recorded.fact:
            case RunStarted() as fact:
                recipe = fact.recipe
            case WeightsPublished(model="policy", version=version) as fact:
                published[version] = (fact, recorded.position, digest.hex())
            case EvaluationFinished(version=version) as fact:
                evaluations[version] = fact
            case BlobReleased(blob=blob):
                released.add(blob)
    kept = [version for version, (fact, *_) in published.items() if fact.weights not in released]
    version = _choose(wanted, source.name, [*published], kept, evaluations)
    weights, position, log_digest = published[version]
    return PolicyVersion(
        run=source.name,
        recipe=recipe,
        version=version,
        update=weights.update,
        position=position,
        log_digest=log_digest,
        sha256=weights.weights.sha256,
        weights=source.blobs.path(weights.weights),
        settings=source.settings,
        evaluation=evaluations.get(version),
        code_rev=source.code_rev,
    )


async def _with_digests(source: Source) -> AsyncIterator[tuple[Recorded, bytes]]:
    digest = RollingDigest()
    async with source.connect_log() as log:
        async for recorded in read(log, after=0, strict=False):
            digest.advance(recorded.digest)
            yield recorded, digest.value


def _choose(
    wanted: str,
    run: str,
    published: Sequence[int],
    kept: Sequence[int],
    evaluations: dict[int, EvaluationFinished],
) -> int:
    listed = f"Run: hindcast policy list {run}"
    if not kept:
        raise ExportRefused(f"run {run} has no policy version whose weights are kept. {listed}")
    if wanted == LAST:
        return kept[-1]
    if wanted == BEST:
        evaluated = {version: _success(evaluations[version]) for version in kept if version in evaluations}
        if not evaluated:
            raise ExportRefused(
                f"run {run} evaluated no policy version whose weights are kept, so none is known to be the best: name a version, "
                f"or `{LAST}`. Runs evaluate by themselves with evaluation.every. {listed}"
            )
        return max(evaluated, key=lambda version: evaluated[version])
    version = read_count(wanted) if wanted != "0" else 0
    if version is None or version not in published:
        raise ExportRefused(
            f"run {run} has no policy version {wanted!r}: give a number, `{LAST}` or `{BEST}`. {listed}"
        )
    if version not in kept:
        raise ExportRefused(
            f"the weights of policy version {version} of run {run} were released; kept are {', '.join(map(str, kept))}. A fork "
            "from before computes them again"
        )
    return version


def _success(evaluation: EvaluationFinished) -> float:
    """Share of successes at the evaluation's first temperature."""
    first = evaluation.results[0].temperature if evaluation.results else 0.0
    own = [one for one in evaluation.results if one.temperature == first]
    tried = sum(one.successes + one.failures for one in own)
    return sum(one.successes for one in own) / tried if tried else 0.0


def write_policy_folder(
    found: PolicyVersion,
    folder: Path,
    *,
    base: Path | None = None,
    merge: bool = False,
    precision: Precision = "float32",
) -> None:
    """Write the version as a new folder.

    `base`: folder of the base model, if it is not where the run's settings say; `merge`: whether an adapter is folded into
    the base's weights. Whole weights need 4 bytes of memory for each parameter.

    Raises:
        ExportRefused: the folder is not empty, or `merge` or `precision` does not apply.
        ExportFailed: the disk is full or not writable.
        ModelFileError: base and weights cannot be read or do not belong together.

    """
    start = base or policy_folder(found.settings.policy.base)
    is_adapter = adapter_config(found.weights) is not None
    if merge and not is_adapter:
        raise ExportRefused(
            f"run {found.run} trained whole weights and no adapter: there is nothing to merge; leave out --merge"
        )
    if is_adapter and not merge and precision != "float32":
        raise ExportRefused(
            "an adapter is written as it was trained, in float32: --dtype needs --merge, which writes whole weights"
        )
    with whole_folder(folder) as unfinished:
        for path in sorted({path for pattern in BESIDE_WEIGHTS for path in start.glob(pattern)}):
            if path.is_file():
                shutil.copyfile(path, unfinished / path.name)
        if is_adapter and not merge:
            _write_adapter(found, unfinished)
        else:
            from hindcast.core.models.written_folder import write_whole_weights  # loads torch

            write_whole_weights(
                start,
                found.weights,
                unfinished,
                temperature=found.settings.actors.temperature,
                precision=precision,
            )
        (unfinished / "README.md").write_text(
            model_card(found, folder.name, adapter=is_adapter and not merge), encoding="utf-8"
        )


def _write_adapter(found: PolicyVersion, folder: Path) -> None:
    write_adapter_folder(found.weights, folder)
    config = msgspec.json.decode((folder / CONFIG_NAME).read_bytes())
    config["base_model_name_or_path"] = str(policy_folder(found.settings.policy.base))
    (folder / CONFIG_NAME).write_bytes(
        msgspec.json.format(msgspec.json.encode(config, order="sorted"), indent=2)
    )


def model_card(found: PolicyVersion, name: str, *, adapter: bool) -> str:
    """Markdown with the metadata that the Hugging Face Hub reads. `name`: of the folder."""
    settings = found.settings
    kind = "an adapter (LoRA) for" if adapter else "trained from"
    facts = [
        ("run", f"`{found.run}`"),
        ("policy version", str(found.version)),
        ("updates", str(found.update)),
        ("recipe", f"`{found.recipe}`"),
        ("algorithm", f"`{settings.learner.algorithm}`"),
        ("run seed", str(settings.run.seed)),
        ("base", f"`{settings.policy.base}`"),
        ("prompts", f"pages as `{settings.actors.renderer}`, history as `{settings.actors.history}`"),
        ("position in the log", str(found.position)),
        ("digest of the log up to there", f"`{found.log_digest}`"),
        ("sha256 of the published weights", f"`{found.sha256}`"),
        ("revision of Hindcast", f"`{found.code_rev}`" if found.code_rev else ""),
    ]
    table = "".join(f"| {key} | {value} |\n" for key, value in facts if value)
    serve = (
        f"vllm serve BASE --enable-lora --lora-modules policy=./{name} --generation-config vllm"
        if adapter
        else f"vllm serve ./{name}"
    )
    return (
        f"---\nlibrary_name: {'peft' if adapter else 'transformers'}\npipeline_tag: text-generation\n"
        "tags:\n- web-agent\n- hindcast\n---\n"
        f"# {name}\n\nA policy for acting on web pages, {kind} `{settings.policy.base}` by Hindcast.\n\n"
        f"| | |\n|---|---|\n{table}\n{_evaluation(found.evaluation)}"
        "## Use\n\n```sh\n"
        f"{serve}\n"
        + ("" if adapter else f"hindcast eval --policy ./{name} --suite store\n")
        + f"hindcast verify {found.run}  # recomputes these weights from the run's log\n"
        f"hindcast audit {found.run} --expect {found.position}:{found.log_digest}\n```\n\n"
        "The model reads pages and answers in the form that it was trained with: `hindcast eval` shows it pages in that form.\n"
    )


def _evaluation(found: EvaluationFinished | None) -> str:
    if found is None:
        return "The run did not evaluate this version.\n\n"
    lines = [
        f"| {one.family} | {one.temperature:g} | {one.successes} of {one.successes + one.failures} |\n"
        for one in found.results
    ]
    return f"## Success on held-out tasks\n\n| tasks | temperature | successes |\n|---|---|---|\n{''.join(lines)}\n"
