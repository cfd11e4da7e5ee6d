"""Computes the settings of a run on given GPUs from a model and a load.

    recipe < computed values < addresses of the launcher < --set

The values are checked together as `hindcast start` checks them. `deployment_text` writes them down.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.settings.configuration import (
    Layer,
    Resolved,
    flatten,
    merge,
    merge_partial,
    read_override,
)
from hindcast.app.settings.placement import MOST_SEQUENCES, SHARED_CONTEXTS, Placement, place
from hindcast.app.settings.sizing import (
    CHECKPOINT_BYTES,
    GIB,
    PUBLISHED_BYTES,
    Load,
    Shape,
    Size,
    find_shape,
    learner_bytes,
    size_of,
    with_settings,
)
from hindcast.core.errors import ModelFileError, SettingsError
from hindcast.core.rl.algorithm import find_algorithm
from hindcast.core.settings.changes import flatten_settings
from hindcast.core.settings.schema import Settings
from hindcast.core.text.plain_values import parse_json
from hindcast.events.jetstream.broker import STORE_LIMIT_BYTES
from hindcast.learner.recipes import DEFAULT, load_recipe

HUB_NAMES = {
    "0.5B": "Qwen/Qwen2.5-0.5B-Instruct",
    "1.5B": "Qwen/Qwen2.5-1.5B-Instruct",
    "3B": "Qwen/Qwen2.5-3B-Instruct",
    "7B": "Qwen/Qwen2.5-7B-Instruct",
    "8B": "meta-llama/Llama-3.1-8B-Instruct",
    "32B": "Qwen/Qwen2.5-32B-Instruct",
    "70B": "meta-llama/Llama-3.1-70B-Instruct",
}
"""The models of `sizing.MODELS` on the Hugging Face Hub."""
MODELS_FOLDER = "/models"
VLLM_PYTHON = "/opt/vllm/bin/python"
RATE, ADAPTER_RATE = 1e-6, 1e-5
"""Learning rates of models of billions of parameters: WebAgent-R1's for 3 and 8 B, and ten times as much for adapters."""
KL = 1e-3
"""KL coefficient of WebAgent-R1."""
STALENESS = 2
GENERATE_S, EPISODE_S, LEASE_S = 900.0, 1800.0, 2100.0
"""Time limits that outlast the restart of a server with a large model (`vllm.start_timeout_s`)."""
ABOVE = 4 / 3
"""Room of the longest prompt and answer above the average, before rounding up to a power of two."""
LOG_DAYS = 7
LEAST_LOG_BYTES = 8 * GIB
DISK_BYTES_S = 600e6
"""Bytes of a checkpoint per second: written to a disk at 1 GB/s and hashed at 1.6 (the latter was measured)."""
CHECKPOINT_SHARE = 0.1
"""Share of the learner's time for checkpoints."""
MOST_BATCHES = 50
"""Batches between two checkpoints, at most: what a crash costs."""
LARGE = 1_000_000_000
"""Parameters of a model from which each version's whole weights are many gigabytes."""
LARGE_KEPT_EVERY = 100
CONTEXTS_A_STEP = 3
"""Contexts for each step that the model could sample while a page loads."""
ENCODING_COPIES = 2
"""Copies of the tensors in main memory while a safetensors file of them is made: in addition to a model that is there."""
LEARNER_PROCESS_GIB = 4.0
"""Main memory of a learner process without weights."""
HOME_GIB = 32.0
"""Disk of a home without weights and checkpoints: cached pages, read model, messages."""
MOST_ACTORS = 64
"""Actors of one `hindcast start`."""


class DeploymentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `hindcast size --emit`."""

    load: Load
    """`actors` 0: as many as keep servers and learner busy."""
    gpus: int
    recipe: str
    base: str = ""
    """Model folder; empty: that of `load.model` in `MODELS_FOLDER`."""
    addresses: Callable[[int], Mapping[str, Any]] = lambda servers: {}
    """Values by dotted key that a launcher needs for a number of policy servers, such as their addresses and the broker's."""
    overrides: Sequence[str] = ()
    """`--set` of the command."""

    def command(self, emitted: str) -> list[str]:
        """The words of the command that asks for this, without options that have their defaults."""
        load, usual = self.load, Load()
        words = ["hindcast", "size", "--model", load.model]
        words += ["--base", self.base] if self.base else []
        words += ["--gpu", load.gpu, "--gpus", str(self.gpus)]
        words += ["--actors", str(load.actors)] if load.actors else []
        for name in ("contexts", "steps", "prompt", "answer", "page_s", "page_bytes", "lora_rank"):
            if (value := getattr(load, name)) != getattr(usual, name):
                words += [f"--{name.replace('_', '-')}", f"{value:g}"]
        words += ["--recipe", self.recipe] if self.recipe != DEFAULT else []
        for text in self.overrides:
            words += ["--set", text]
        return [*words, "--emit", emitted]


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run on given GPUs, and what they were computed from."""

    request: DeploymentRequest
    load: Load
    placement: Placement
    size: Size
    """The estimate of the load, at the rate that these servers allow."""
    values: dict[str, Any]
    """Values by dotted key that the file sets."""
    resolved: Resolved

    @property
    def settings(self) -> Settings:
        """All settings, with those of the recipe."""
        return self.resolved.settings


def plan_deployment(request: DeploymentRequest) -> Deployment:
    """Compute the settings of a run.

    Raises:
        SettingsError: the model does not fit on the GPUs, or settings contradict each other.

    """
    layers, asked = _layers(request.recipe, request.overrides)
    chosen = merge_partial([*layers, *asked], recipe=request.recipe).settings
    given = _given(asked)
    load, placement = _place(request, chosen, given)
    size = _size(load, placement)
    launched = request.addresses(placement.servers)
    values = {**_values(request, load, placement, size, chosen), **launched}
    if "vllm.servers" not in values and placement.server_gpus:
        values |= _own_servers(placement)
    computed = Layer(source="hindcast size", values=values)
    resolved = merge([*layers, computed, *asked], recipe=request.recipe)
    values |= given
    plain = flatten_settings(resolved.settings)
    load = with_settings(load, resolved.settings)
    return Deployment(
        request=request,
        load=load,
        placement=placement,
        size=_size(load, placement),
        values={key: plain[key] for key in plain if key in values},
        resolved=resolved,
    )


def shape_in(folder: Path) -> Shape:
    """Read a model's shape from its config.json.

    Raises:
        ModelFileError: there is none, or it describes no decoder with gated layers.

    """
    file = folder / "config.json"
    try:
        config = parse_json(file.read_text(encoding="utf-8"))
        return Shape(
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            heads=config["num_attention_heads"],
            kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"],
            ffn=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", False)),
            attention_bias=config.get("model_type") == "qwen2" or bool(config.get("attention_bias")),
            head_width=config.get("head_dim") or 0,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(
            f"{file} gives no shape to compute with ({type(error).__name__}: {error}). Leave --base out, compute with the nearest "
            "--model, and change policy.base in the file"
        ) from error


def load_of(load: Load, *, recipe: str, overrides: Sequence[str]) -> Load:
    """The load of a run with these settings. Raises SettingsError if one is unknown or out of range."""
    layers, asked = _layers(recipe, overrides)
    return _with_given(load, merge_partial([*layers, *asked], recipe=recipe).settings, _given(asked))


def _with_given(load: Load, settings: Settings, given: Mapping[str, Any]) -> Load:
    """The load with the settings, of which those of `--set` replace options."""
    load = msgspec.structs.replace(
        load,
        lora_rank=int(given.get("learner.lora_rank", load.lora_rank)),
        contexts=int(given.get("actors.contexts", load.contexts)),
    )
    return with_settings(load, settings)


def _given(asked: Sequence[Layer]) -> dict[str, Any]:
    """The values of `--set`, by dotted key."""
    return {key: value for layer in asked for key, value in layer.values.items()}


def _layers(recipe: str, overrides: Sequence[str]) -> tuple[list[Layer], list[Layer]]:
    """The settings of a recipe, and those of `--set`."""
    source = f"recipe {recipe}"
    return [Layer(source=source, values=flatten(load_recipe(recipe), source))], [
        read_override(text) for text in overrides
    ]


def _place(request: DeploymentRequest, chosen: Settings, given: Mapping[str, Any]) -> tuple[Load, Placement]:
    """The load with all that follows from the settings, and its placement."""
    coefficient = chosen.learner.options.get("kl_coefficient", 0)
    load = _with_given(request.load, chosen, given)
    load = msgspec.structs.replace(load, reference=bool(coefficient))
    longest = _longest(load.prompt) + _longest(load.answer)
    placement = place(
        load,
        gpus=request.gpus,
        sample=longest,
        passes=chosen.learner.epochs,
        elsewhere=bool(chosen.vllm.servers),
    )
    if load.actors:
        return load, placement
    tokens = load.prompt + load.answer
    trained_steps_s = placement.learner_tokens_s / chosen.learner.epochs / tokens
    steps_s = min(trained_steps_s, placement.servers_steps_s or trained_steps_s)
    # while some contexts wait for their page and some for the model, others are ready
    wanted = CONTEXTS_A_STEP * steps_s * load.step_page_s
    busy = min(wanted, placement.contexts) if placement.contexts else wanted
    actors = min(MOST_ACTORS, max(1, math.ceil(busy / load.contexts)))
    return msgspec.structs.replace(load, actors=actors), placement


def _size(load: Load, placement: Placement) -> Size:
    """The estimate with the rates of the servers that there are, instead of as many as would keep up."""
    return size_of(load, servers_steps_s=placement.servers_steps_s if placement.server_gpus else None)


def _values(
    request: DeploymentRequest, load: Load, placement: Placement, size: Size, chosen: Settings
) -> dict[str, Any]:
    """The computed values, by dotted key."""
    running = load.actors * load.contexts
    shape = find_shape(load)
    prompt, answer = _longest(load.prompt), _longest(load.answer)
    large = shape.parameters >= LARGE and not load.lora_rank
    values: dict[str, Any] = {
        "policy.base": request.base or base_folder(load.model),
        "policy.engine": "vllm",
        "actors.contexts": load.contexts,
        "actors.max_prompt_tokens": prompt,
        "actors.max_answer_tokens": answer,
        "actors.generate_timeout_s": GENERATE_S,
        "actors.episode_timeout_s": EPISODE_S,
        "curriculum.lease_s": LEASE_S,
        "curriculum.max_running": running,
        "learner.device": "cuda",
        "learner.precision": "bf16",
        "learner.processes": len(placement.learner_gpus),
        "learner.gradient_checkpointing": True,
        "learner.packed_sequences": True,
        "learner.tokens_per_forward": placement.tokens_per_forward,
        **({"learner.lora_rank": load.lora_rank} if load.lora_rank else {}),
        "learner.learning_rate": ADAPTER_RATE if load.lora_rank else RATE,
        "learner.max_staleness": STALENESS,
        "learner.keep_weights_every": LARGE_KEPT_EVERY if large else chosen.learner.keep_weights_every,
        "log.max_bytes": min(STORE_LIMIT_BYTES, _whole_gib(size.log_gib_day * LOG_DAYS)),
    }
    values |= _server_values(placement, longest=prompt + answer)
    options = find_algorithm(chosen.learner.algorithm).options.__struct_fields__
    members = chosen.curriculum.members
    if "group_batch" in options:
        least = int(chosen.learner.options.get("group_batch", 1))
        values["learner.options.group_batch"] = max(least, math.ceil(running / 2 / members))
    if chosen.learner.options.get("kl_coefficient"):
        values["learner.options.kl_coefficient"] = KL
    values["learner.checkpoint_every"] = _checkpoint_every(load, placement, values, chosen)
    return values


def _own_servers(placement: Placement) -> dict[str, Any]:
    """The settings of servers that Hindcast starts itself."""
    return {
        "vllm.python": VLLM_PYTHON,
        "vllm.gpus": list(placement.server_gpus),
        "vllm.gpus_per_server": placement.gpus_per_server,
    }


def _server_values(placement: Placement, *, longest: int) -> dict[str, Any]:
    """The settings of every policy server that is placed on these GPUs; none where servers run on other machines."""
    if not placement.server_gpus:
        return {}
    return {
        "vllm.dtype": "bfloat16",
        "vllm.memory_share": placement.memory_share,
        "vllm.max_num_seqs": SHARED_CONTEXTS if placement.shared else MOST_SEQUENCES,
        "vllm.arguments": [f"--max-model-len={longest}"],
    }


def base_folder(model: str) -> str:
    """The folder of a model of the table."""
    return f"{MODELS_FOLDER}/{HUB_NAMES[model].rpartition('/')[2]}"


def _longest(average: int) -> int:
    """Maximum tokens of a prompt or answer with this average."""
    return 1 << math.ceil(math.log2(average * ABOVE))


def _whole_gib(gib: float) -> int:
    return max(LEAST_LOG_BYTES, math.ceil(gib) * GIB)


def _checkpoint_every(load: Load, placement: Placement, values: Mapping[str, Any], chosen: Settings) -> int:
    """Batches between two checkpoints, so that they take a tenth of the learner's time at most."""
    trained, _ = learner_bytes(find_shape(load), load)
    episodes = values.get("learner.options.group_batch", 1) * chosen.curriculum.members
    tokens = episodes * load.sampled_steps * (load.prompt + load.answer) * chosen.learner.epochs
    batch_s = tokens / placement.learner_tokens_s
    written_s = CHECKPOINT_BYTES * trained / DISK_BYTES_S
    return min(MOST_BATCHES, max(1, math.ceil(float(written_s / CHECKPOINT_SHARE / batch_s))))


def main_memory_gib(deployment: Deployment) -> float:
    """Main memory of the learner's processes: a checkpoint is gathered and encoded there, as are the base weights of a new run."""
    processes = len(deployment.placement.learner_gpus)
    base_gib = PUBLISHED_BYTES * deployment.size.parameters / GIB
    encoded_gib = max(ENCODING_COPIES * deployment.size.checkpoint_gib, (ENCODING_COPIES + 1) * base_gib)
    return processes * LEARNER_PROCESS_GIB + encoded_gib


def home_gib(deployment: Deployment) -> float:
    """Disk of a home whose blobs are elsewhere: cached weights and checkpoints, the log of a week, and room."""
    size = deployment.size
    whole = PUBLISHED_BYTES * size.parameters / GIB
    return HOME_GIB + 3 * whole + 2 * size.checkpoint_gib


def require_gpus(gpus: int | None) -> int:
    """The number of GPUs of the command. Raises SettingsError if it is missing."""
    if gpus is None:
        raise SettingsError("--emit needs --gpus N, the number of GPUs of the machine, such as --gpus 8")
    return gpus
