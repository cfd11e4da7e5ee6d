"""Exports a policy version as a model folder in Hugging Face's format, which transformers, peft and vLLM load.

    log ──find_version──> PolicyVersion ──write_policy_folder──> config, tokenizer, generation settings, weights, model card

Whole weights are written by transformers itself, with the names and the tied head that its loaders expect. An adapter is
written as `peft` stores it, or merged into its base's weights.
"""

import asyncio
import hashlib
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

from hindcast.actors.environments.web.tasks import ENVIRONMENT
from hindcast.actors.policy_servers.command import LORA_RANKS
from hindcast.app.evaluation.evaluation_lines import by_temperature, finished_line, temperature_in_words
from hindcast.app.exports.output_folder import ExportRefused, whole_folder
from hindcast.app.runs.sources import Source
from hindcast.core.errors import BlobCorrupt
from hindcast.core.models.adapter_file import CONFIG_NAME, adapter_config, write_adapter_folder
from hindcast.core.models.folders import policy_folder, require_folder
from hindcast.core.settings.changes import flatten_settings
from hindcast.core.settings.computing import Precision
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import BlobReleased, EvaluationFinished, RunStarted, WeightsPublished
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.events.log.hash_chain import RollingDigest
from hindcast.events.log.reader import read
from hindcast.storage.blobs.store import BlobStore

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
FORM = (
    "renderer",
    "framing",
    "history",
    "answer_format",
    "dialect",
    "screenshot_observation",
    "screenshot_width",
    "max_",
)
"""Beginnings of the settings of actors that shape prompts and answers."""


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
    base_weights: Path | None
    """Published weights of the base, if `weights` holds an adapter to them; None: `weights` is whole."""
    settings: Settings
    evaluation: EvaluationFinished | None
    """The last one of this version in the run; None: it was not evaluated."""
    code_rev: str
    choice: str = ""
    """Why it is `best`, in words; empty for the others."""


async def find_version(source: Source, wanted: str) -> PolicyVersion:
    """Find a version in a run's log: its number, `last`, or `best`.

    `best` is the one with the highest success in the run's own evaluations, at the first of their temperatures, where a task
    without a verdict is no success; the earliest of several.

    Raises:
        ExportRefused: there is none of that name, or its weights were released.
        BlobMissing, BlobCorrupt: its weights are not those that were published.

    """
    published: dict[int, tuple[WeightsPublished, int, str]] = {}
    evaluations: dict[int, EvaluationFinished] = {}
    released: set[BlobRef] = set()
    started: RunStarted | None = None
    async for recorded, digest in _with_digests(source):
        match recorded.fact:
            case RunStarted() as fact:
                started = fact
            case WeightsPublished(model="policy", version=version) as fact:
                published[version] = (fact, recorded.position, digest.hex())
            case EvaluationFinished(version=version) as fact:
                evaluations[version] = fact
            case BlobReleased(blob=blob):
                released.add(blob)
    kept = [version for version, (fact, *_) in published.items() if fact.weights not in released]
    version, choice = choose_version(wanted, source.name, [*published], kept, evaluations)
    weights, position, log_digest = published[version]
    assert started is not None, "a log begins with run.started, and something was published after it"
    path = await asyncio.to_thread(_checked, source.blobs, weights.weights)
    whole = adapter_config(path) is None
    base = None if whole else await asyncio.to_thread(_checked, source.blobs, started.base_policy)
    return PolicyVersion(
        run=source.name,
        recipe=started.recipe,
        version=version,
        update=weights.update,
        position=position,
        log_digest=log_digest,
        sha256=weights.weights.sha256,
        weights=path,
        base_weights=base,
        settings=source.settings,
        evaluation=evaluations.get(version),
        code_rev=source.code_rev,
        choice=choice,
    )


def _checked(blobs: BlobStore, ref: BlobRef) -> Path:
    """Path of a blob with the content that its name promises."""
    path = blobs.path(ref)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != ref.sha256:
        raise BlobCorrupt(
            f"blob {ref.sha256[:16]}… at {path} is damaged: its content has sha256 {found[:16]}…. Restore it from a backup"
        )
    return path


async def _with_digests(source: Source) -> AsyncIterator[tuple[Recorded, bytes]]:
    digest = RollingDigest()
    async with source.connect_log() as log:
        async for recorded in read(log, after=0, strict=False):
            digest.advance(recorded.digest)
            yield recorded, digest.value


def choose_version(
    wanted: str,
    run: str,
    published: Sequence[int],
    kept: Sequence[int],
    evaluations: dict[int, EvaluationFinished],
) -> tuple[int, str]:
    """The version that is meant, and why it is the best. `published`, `kept`: all versions, and those with weights, in order.

    Raises:
        ExportRefused: see `find_version`.

    """
    listed = f"Run: hindcast policy list {run}"
    if not kept:
        raise ExportRefused(f"run {run} has no policy version whose weights are kept. {listed}")
    if wanted == LAST:
        return kept[-1], ""
    if wanted == BEST:
        evaluated = {version: _success(evaluations[version]) for version in kept if version in evaluations}
        if not evaluated:
            raise ExportRefused(
                f"run {run} evaluated no policy version whose weights are kept, so none is known to be the best: name a version, "
                f"or `{LAST}`. Runs evaluate by themselves with evaluation.every. {listed}"
            )
        best = max(evaluated, key=lambda version: evaluated[version])
        way = temperature_in_words(by_temperature(evaluations[best], first=None)[0].temperature)
        return best, f"the best of {len(evaluated)} evaluated versions whose weights are kept, {way}"
    version = next((one for one in published if str(one) == wanted), None)
    if version is None:
        raise ExportRefused(
            f"run {run} has no policy version {wanted!r}: give a number, `{LAST}` or `{BEST}`. {listed}"
        )
    if version not in kept:
        raise ExportRefused(
            f"the weights of policy version {version} of run {run} were released; kept are {', '.join(map(str, kept))}. A fork "
            "from before computes them again"
        )
    return version, ""


def _success(evaluation: EvaluationFinished) -> float:
    """Share of successes in all tasks at the evaluation's first temperature."""
    first = next(iter(by_temperature(evaluation, first=None)), None)
    return first.successes / max(1, first.judged + first.lost) if first else 0.0


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
    from hindcast.core.models.written_folder import (  # loads torch
        write_generation_settings,
        write_whole_weights,
    )

    start = base or policy_folder(found.settings.policy.base)
    require_folder(start)
    is_adapter = found.base_weights is not None
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
        temperature = found.settings.actors.temperature
        if is_adapter and not merge:
            _write_adapter(found, start, unfinished)
            write_generation_settings(start, unfinished, temperature=temperature)
        else:
            files = [path for path in (found.base_weights, found.weights) if path is not None]
            write_whole_weights(start, files, unfinished, temperature=temperature, precision=precision)
        (unfinished / "README.md").write_text(
            model_card(found, folder.name, adapter=is_adapter and not merge), encoding="utf-8"
        )


def _write_adapter(found: PolicyVersion, base: Path, folder: Path) -> None:
    write_adapter_folder(found.weights, folder)
    config = msgspec.json.decode((folder / CONFIG_NAME).read_bytes())
    config["base_model_name_or_path"] = str(base.absolute())
    (folder / CONFIG_NAME).write_bytes(
        msgspec.json.format(msgspec.json.encode(config, order="sorted"), indent=2)
    )


def model_card(found: PolicyVersion, name: str, *, adapter: bool) -> str:
    """Markdown with the metadata that the Hugging Face Hub reads. `name`: of the folder."""
    settings = found.settings
    kind = "an adapter (LoRA) for" if adapter else "trained from"
    sees = settings.actors.screenshot_observation != "off"
    facts = [
        ("run", f"`{found.run}`"),
        ("policy version", str(found.version)),
        ("updates", str(found.update)),
        ("recipe", f"`{found.recipe}`"),
        ("algorithm", f"`{settings.learner.algorithm}`"),
        ("run seed", str(settings.run.seed)),
        ("base", f"`{settings.policy.base}`"),
        ("position in the log", str(found.position)),
        ("digest of the log up to there", f"`{found.log_digest}`"),
        ("sha256 of the published weights", f"`{found.sha256}`"),
        ("revision of Hindcast", f"`{found.code_rev}`" if found.code_rev else ""),
    ]
    table = "".join(f"| {key} | {value} |\n" for key, value in facts if value)
    commands = "".join(
        f"{line}\n"
        for line in (
            _serve(found, name, adapter=adapter),
            *(() if adapter else (_evaluate(settings, name),)),
            f"hindcast verify {found.run}  # recomputes these weights from the run's log",
            f"hindcast audit {found.run} --expect {found.position}:{found.log_digest}",
        )
    )
    return (
        f"---\nlibrary_name: {'peft' if adapter else 'transformers'}\n"
        f"pipeline_tag: {'image-text-to-text' if sees else 'text-generation'}\n"
        "tags:\n- web-agent\n- hindcast\n---\n"
        f"# {name}\n\nA policy for acting on web pages, {kind} `{settings.policy.base}` by Hindcast.\n\n"
        f"| | |\n|---|---|\n{table}\n{''.join(_evaluation(found))}"
        f"## Use\n\n```sh\n{commands}```\n\n"
        "The model expects pages, and answers, in the form that it was trained with"
        + ("." if adapter else "; the settings of `hindcast eval` above are that form.")
        + "\n"
    )


def _serve(found: PolicyVersion, name: str, *, adapter: bool) -> str:
    if not adapter:
        return f"vllm serve ./{name}"
    rank = found.settings.learner.lora_rank
    served = next((one for one in LORA_RANKS if one >= rank), rank)
    return (
        f"vllm serve BASE --enable-lora --max-lora-rank {served} --lora-modules policy=./{name} "
        f"--generation-config ./{name}  # BASE: the folder of the base"
    )


def _evaluate(settings: Settings, name: str) -> str:
    """Command that plays tasks of the run's first environment with its prompts."""
    usual = flatten_settings(Settings())
    shaping = tuple(f"actors.{beginning}" for beginning in FORM)
    changed = [
        f"--set {shlex.quote(f'{key}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}')}"
        for key, value in flatten_settings(settings).items()
        if key.startswith(("scaffold.", *shaping)) and value != usual[key]
    ]
    environment = settings.curriculum.environments[0]
    suite = "TASKS.toml" if environment == ENVIRONMENT else environment
    return " ".join([f"hindcast eval --policy ./{name} --suite {suite}", *changed])


def _evaluation(found: PolicyVersion) -> Iterator[str]:
    if found.evaluation is None:
        yield "The run did not evaluate this version.\n\n"
        return
    yield f"## Success on held-out tasks\n\n{finished_line(found.evaluation, first=None)}"
    yield f"\n\n{found.choice.capitalize()}." if found.choice else ""
    yield "\n\n| tasks | sampled | successes | lost |\n|---|---|---|---|\n"
    for one in found.evaluation.results:
        way = temperature_in_words(one.temperature)
        yield f"| {one.family} | {way} | {one.successes} of {one.successes + one.failures} | {one.lost} |\n"
    yield "\n"
