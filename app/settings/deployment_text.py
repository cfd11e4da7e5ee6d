"""Writes a deployment as a settings file, with its placement, memory and disk, and the reasons, as comments."""

import math
import shlex
from collections.abc import Sequence

from hindcast.app.settings.configuration import RECIPE_KEY
from hindcast.app.settings.deployment import HUB_NAMES, LOG_DAYS, Deployment, base_folder, main_memory_gib
from hindcast.app.settings.placement import OVERHEAD_GIB, Placement
from hindcast.app.settings.sizing import (
    COMPUTE_SHARE,
    GIB,
    PUBLISHED_BYTES,
    REPEATED,
    Load,
    find_gpu,
    find_shape,
    learner_bytes,
    screenshot_bytes,
)
from hindcast.core.text.toml import as_toml

MEASURED_SHARE = 0.03
"""Share of its estimated tokens a second that the one learner reached that was measured on a GPU (docs/scale.md)."""
LINE = 105
"""Characters of a line of the command in the file's head."""
SETTINGS_FILE = "settings.toml"


def settings_text(deployment: Deployment) -> str:
    """The settings file, with what it is for and the reasons as comments."""
    lines = [
        *head_lines(deployment, SETTINGS_FILE),
        "",
        f"Start the run with: {start_command(deployment)}",
    ]
    return "\n".join(f"# {line}".rstrip() for line in lines) + "\n\n" + settings_tables(deployment)


def settings_tables(deployment: Deployment) -> str:
    """The recipe and the tables of the settings file, with the reasons as comments."""
    lines = [f"{RECIPE_KEY} = {as_toml(deployment.request.recipe)}"]
    reasons = _reasons(deployment)
    given = {one.partition("=")[0].strip() for one in deployment.request.overrides}
    sections: dict[str, list[str]] = {}
    for key, value in deployment.values.items():
        section, _, name = key.rpartition(".")
        reason = "--set" if key in given else reasons.get(key, "")
        line = f"{name} = {as_toml(value)}{f'  # {reason}' if reason else ''}"
        sections.setdefault(section, []).append(line)
    for section, entries in sections.items():
        lines += ["", f"[{section}]", *entries]
    return "\n".join(lines) + "\n"


def head_lines(deployment: Deployment, emitted: str) -> list[str]:
    """What a file is for, the command that writes it, the placement, memory and disk, and what is assumed."""
    load, placement, settings = deployment.load, deployment.placement, deployment.settings
    gpu, size = find_gpu(load.gpu), deployment.size
    how = f"an adapter of rank {load.lora_rank}" if load.lora_rank else "all weights with AdamW"
    return [
        f"A run that trains {how} of {settings.policy.base} ({size.parameters / 1e9:.2f} billion parameters)",
        f"on {deployment.request.gpus} {load.gpu}. Written by:",
        *_wrapped(deployment.request.command(emitted)),
        "Everything follows from the formulas of docs/scale.md; nothing was measured on such a machine.",
        "",
        *placement_lines(placement, gpu.gib),
        f"Actors: {load.actors} with a browser and {load.contexts} contexts each play {size.steps_s:.1f} steps/s and take "
        f"{size.actors_gib:.0f} GiB of main memory{'' if placement.server_gpus else ', if the servers keep up'}",
        f"Main memory: {main_memory_gib(deployment):.0f} GiB for the learner's processes, while they encode weights or a checkpoint",
        *disk_lines(deployment),
        "",
        "Assumed:",
        f"- {load.prompt} prompt and {load.answer} answer tokens a step on average, {load.steps:g} steps an episode, "
        f"{load.page_s:g} s a page",
        f"- {COMPUTE_SHARE:.0%} of the GPUs' {load.precision} arithmetic is reached. The one learner that was measured on a GPU reached "
        f"{MEASURED_SHARE:.0%} of that",
        f"  (.42 billion parameters, one H200): then it trains on {placement.learner_tokens_s * MEASURED_SHARE:,.0f} tokens/s",
        *(f"- {line}" for line in assumption_lines(load)),
        f"- {OVERHEAD_GIB:g} GiB of a GPU for each process beyond its tensors",
        *([] if settings.vllm.servers else [f"- vLLM 0.32 or newer in {settings.vllm.python}"]),
    ]


def assumption_lines(load: Load) -> list[str]:
    """Say what an estimate assumes of continuations and screenshots."""
    lines = []
    if load.continuations:
        lines.append(
            f"{load.continuations} of {load.group + load.continuations} episodes of a group are continuations (curriculum.branches): "
            f"each repeats {REPEATED:.0%} of its steps in the browser, without the model"
        )
    if load.screenshots != "off":
        count = "2 an episode, without failed steps" if load.screenshots == "ends" else "one a page"
        rate = (
            ""
            if load.screenshot_rate == math.inf
            else f", at most {load.screenshot_rate:g} a second and actor"
        )
        lines.append(
            f"screenshots: {count}{rate}; {screenshot_bytes(load):,.0f} bytes each at {load.screenshot_width} pixels and quality 60"
        )
    return lines


def start_command(deployment: Deployment, file: str = SETTINGS_FILE) -> str:
    """The command that opens the run: with all of its roles, or with those of the first machine only."""
    if not deployment.settings.log.url:
        return f"hindcast start --config {file} --actors {deployment.load.actors}"
    return f"hindcast start --config {file} --actors 0 --without learner"


def placement_lines(placement: Placement, gib: float) -> list[str]:
    """Say which GPU does what, and what it is expected to reach."""
    learners = _numbers(placement.learner_gpus)
    lines = [
        f"Learner: GPU {learners}, {placement.learner_gib:.0f} of {gib:g} GiB each, at most {placement.learner_tokens_s:,.0f} tokens/s"
    ]
    if not placement.server_gpus:
        return [*lines, "Policy servers: on other machines (vllm.servers)"]
    if placement.shared:
        lines.append(
            f"Policy server: on the same GPU with {placement.memory_share:.0%} of its memory. One bf16 copy of the weights answers all"
        )
        lines.append(
            "actors; the in-process engine would need a float32 copy for each actor and answers its actor alone"
        )
    else:
        lines.append(
            f"Policy servers: {placement.servers} of {placement.gpus_per_server} GPU each, on GPU {_numbers(placement.server_gpus)}, "
            f"{placement.memory_share:.0%} of their memory"
        )
    lines.append(
        f"Their caches hold {placement.contexts} contexts of average length; at most {placement.servers_steps_s:.1f} steps/s"
    )
    return lines


def disk_lines(deployment: Deployment) -> list[str]:
    """Say how much room the run takes, and where."""
    load, settings, size = deployment.load, deployment.settings, deployment.size
    trained, _ = learner_bytes(find_shape(load), load)
    learner = settings.learner
    version = PUBLISHED_BYTES * trained / GIB
    kept = learner.keep_weights * version
    served = 3 * version
    return [
        f"Disk: {size.checkpoints_gib:.1f} GiB for {learner.keep_checkpoints} checkpoints and a new one, {kept:.1f} for "
        f"{learner.keep_weights} versions of the weights,",
        f"{version:.1f} for every {learner.keep_weights_every}th version for good, {served:.1f} for the servers' copies, "
        f"{PUBLISHED_BYTES * size.parameters / GIB:.1f} for the base;",
        f"{size.log_gib_day:.1f} a day for the log, at most {size.blobs_gib_day:.1f} for pages, {size.screenshots_gib_day:.1f} for "
        "screenshots",
    ]


def _reasons(deployment: Deployment) -> dict[str, str]:
    """Why a setting has its value, by dotted key."""
    load, placement, model = deployment.load, deployment.placement, deployment.load.model
    hub = "" if deployment.request.base else HUB_NAMES[model]
    return {
        "policy.base": f"hf download {hub} --local-dir {base_folder(model)}" if hub else "",
        "curriculum.max_running": "every context of every actor",
        "curriculum.lease_s": "longer than an episode",
        "actors.max_prompt_tokens": "a third above the average, rounded up to a power of two",
        "actors.generate_timeout_s": "outlasts the restart of a server",
        "vllm.memory_share": "the learner has the rest" if placement.shared else "",
        "learner.processes": "one a GPU, from GPU 0 on",
        "learner.tokens_per_forward": "the longest pass whose activations fit",
        "learner.learning_rate": "assumed, ten times that of whole weights"
        if load.lora_rank
        else "WebAgent-R1, 3 and 8 B",
        "learner.options.kl_coefficient": "WebAgent-R1",
        "learner.options.group_batch": "half of the running episodes, so that few become stale",
        "learner.checkpoint_every": f"batches; a checkpoint has {deployment.size.checkpoint_gib:.1f} GiB",
        "learner.keep_weights_every": "versions",
        "log.max_bytes": f"{LOG_DAYS} days, 8 GiB at least",
    }


def _numbers(gpus: Sequence[int]) -> str:
    """GPU numbers that follow each other."""
    return str(gpus[0]) if len(gpus) == 1 else f"{gpus[0]} to {gpus[-1]}"


def _wrapped(words: Sequence[str]) -> list[str]:
    """A command on lines that a shell reads as one."""
    parts: list[str] = []
    for word in words:  # an option with its value is one part
        if parts and parts[-1].startswith("--") and " " not in parts[-1]:
            parts[-1] += f" {shlex.quote(word)}"
        else:
            parts.append(shlex.quote(word))
    lines, line = [], "   "
    for part in parts:
        if len(line) + len(part) > LINE:
            lines.append(f"{line} \\")
            line = "       "
        line += f" {part}"
    return [*lines, line]
