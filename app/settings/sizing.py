"""Estimates by arithmetic what a run needs: memory of policy servers and learner, time, browsers, log and blobs.

Parameters and caches follow from a model's published shape. Tokens a second are hardware limits (bandwidth for decoding,
arithmetic for prompts and training) times a stated share. Sizes of events, pages, actors and browsers were measured; see
docs/scale.md. An estimate is no measurement: measure one machine before you buy ten.
"""

import math
from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec

from hindcast.core.errors import SettingsError
from hindcast.core.rl.algorithm import find_algorithm
from hindcast.core.settings.computing import Precision
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice
from hindcast.learner.retention import checkpoint_interval

GIB = 1024**3
DAY_S = 86_400
ScreenshotChoice = Literal["off", "ends", "all"]
Known = TypeVar("Known")

ENVELOPE_BYTES = 326
"""Bytes of an event without its payload (367 events of a MiniWoB++ run: 119 555 bytes)."""
STEP_BYTES = 716
"""Bytes of step.taken's payload without its tokens: address, action, times, references (44 steps; 620 to 1 160)."""
PROMPT_TOKEN_BYTES = 4
ANSWER_TOKEN_BYTES = 12
"""Bytes of a token's id, log-probability and policy version."""
EPISODE_BYTES = 2_700
"""Bytes of an episode's other five events: task, request, start, end, verdict, with their envelopes."""
BROKER_BYTES = 310
"""Bytes that the broker's files add to an event."""
PROCESS_GIB = 0.47
"""Memory of an actor without its browser and model weights; of the other roles only the learner needs more."""
BROWSER_GIB = 0.30
"""Memory of a browser with 8 contexts on small pages; real sites take more."""
DECODE_SHARE = 0.5
"""Share of the memory bandwidth that an engine reaches while it decodes."""
COMPUTE_SHARE = 0.35
"""Share of a GPU's dense bf16 arithmetic that is reached while it reads prompts or trains."""
SERVER_SHARE = 0.9
"""Share of a GPU's memory that a policy server may use."""
LEARNER_SHARE = 0.85
"""Share of a GPU's memory that weights, optimizer and activations may fill."""
ADAM_BYTES = 16
"""Bytes of a trained parameter: float32 weight, gradient and AdamW's two moments."""
PUBLISHED_BYTES = 4
"""Bytes of a published parameter, in float32."""
CHECKPOINT_BYTES = 12
"""Bytes of a trained parameter in a checkpoint: weight and two moments."""
SCREENSHOT_BYTES = 35_000
"""Bytes of a screenshot that is `SCREENSHOT_WIDTH` pixels wide, at quality 60; 5 000 to 40 000 were measured."""
SCREENSHOT_WIDTH = 640
ENDS = 2
"""Screenshots of an episode with `actors.screenshots = "ends"` and no failed step."""
REPEATED = 0.5
"""Share of an episode's steps that a continuation repeats: it begins at any step but the first, equally likely."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only transformer with gated feed-forward layers and grouped-query attention (Llama, Qwen2)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    tied: bool = False
    """Whether the head shares the embedding's weights."""
    attention_bias: bool = False
    """Whether queries, keys and values have a bias (Qwen2)."""
    head_width: int = 0
    """Width of a head; 0: `hidden / heads`."""

    @property
    def queries(self) -> int:
        """Width of all query heads together."""
        return self.heads * (self.head_width or self.hidden // self.heads)

    @property
    def keys(self) -> int:
        """Width of all key heads together; values have the same."""
        return self.kv_heads * (self.head_width or self.hidden // self.heads)

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        attention = 2 * self.hidden * self.queries + 2 * self.hidden * self.keys
        biases = (self.queries + 2 * self.keys) if self.attention_bias else 0
        layer = attention + biases + 3 * self.hidden * self.ffn + 2 * self.hidden
        return self.layers * layer + (1 if self.tied else 2) * self.vocabulary * self.hidden + self.hidden

    @property
    def kv_bytes(self) -> int:
        """Bytes of one token in the KV cache, in bf16."""
        return 2 * 2 * self.layers * self.keys


MODELS = {
    "0.5B": Shape(
        layers=24,
        hidden=896,
        heads=14,
        kv_heads=2,
        ffn=4864,
        vocabulary=151_936,
        tied=True,
        attention_bias=True,
    ),
    "1.5B": Shape(
        layers=28,
        hidden=1536,
        heads=12,
        kv_heads=2,
        ffn=8960,
        vocabulary=151_936,
        tied=True,
        attention_bias=True,
    ),
    "3B": Shape(
        layers=36,
        hidden=2048,
        heads=16,
        kv_heads=2,
        ffn=11008,
        vocabulary=151_936,
        tied=True,
        attention_bias=True,
    ),
    "7B": Shape(
        layers=28, hidden=3584, heads=28, kv_heads=4, ffn=18944, vocabulary=152_064, attention_bias=True
    ),
    "8B": Shape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocabulary=128_256),
    "32B": Shape(
        layers=64, hidden=5120, heads=40, kv_heads=8, ffn=27648, vocabulary=152_064, attention_bias=True
    ),
    "70B": Shape(layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, vocabulary=128_256),
}
"""Qwen2.5 0.5B to 7B and 32B, Llama 3.1 8B and 70B: values of their published config.json."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """Figures from a GPU's data sheet."""

    gib: float
    bandwidth: float
    """Memory bandwidth in bytes per second."""
    arithmetic: float
    """Dense bf16 operations per second."""
    float32: float
    """Float32 operations per second, without TF32."""

    def operations(self, precision: Precision) -> float:
        """Operations per second in a precision."""
        return self.float32 if precision == "float32" else self.arithmetic


GPUS = {
    "a100": Gpu(gib=80, bandwidth=2.04e12, arithmetic=312e12, float32=19.5e12),
    "h100": Gpu(gib=80, bandwidth=3.35e12, arithmetic=989e12, float32=67e12),
    "h200": Gpu(gib=141, bandwidth=4.8e12, arithmetic=989e12, float32=67e12),
    "l4": Gpu(gib=22.5, bandwidth=0.3e12, arithmetic=121e12, float32=30.3e12),
    "rtx4090": Gpu(gib=24, bandwidth=1.008e12, arithmetic=165e12, float32=82.6e12),
}


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of an estimate. What its options do not give follows from a run's settings (`with_settings`)."""

    model: str = "8B"
    """Name in `MODELS`, or of `shape`."""
    shape: Shape | None = None
    """Shape of another model; None: that of `model` in the table."""
    gpu: str = "h100"
    actors: int = 16
    contexts: int = 8
    """Episodes that an actor plays at once."""
    steps: float = 10.0
    """Steps of an episode, on average."""
    prompt: int = 3000
    """Tokens of a step's prompt."""
    answer: int = 100
    """Tokens of a step's answer."""
    page_s: float = 1.0
    """Seconds of a step outside the model: perform the action, wait for the page, read it."""
    page_bytes: int = 8_000
    """Bytes of a stored page snapshot."""
    lora_rank: int = 0
    reference: bool = True
    """Whether a reference policy is loaded (`learner.options.kl_coefficient` above 0, no adapter)."""
    precision: Precision = "bf16"
    """Of the learner (`learner.precision`); `auto` is bf16 on every GPU of the table."""
    group: int = 8
    """Episodes of a group that begin with its task (`curriculum.group_size`)."""
    continuations: int = 0
    """Further episodes of a group, which continue one of them (`curriculum.branches` times `branch_steps`)."""
    batch: int = 16
    """Episodes of a batch, continuations included."""
    checkpoint_every: int = 1
    """Batches between two checkpoints."""
    keep_checkpoints: int = 2
    screenshots: ScreenshotChoice = "ends"
    """`actors.screenshots`; `all` too where the policy sees them."""
    screenshot_rate: float = 0.5
    """Most screenshots per second of an actor (`actors.screenshot_rate`); infinite where the policy sees them."""
    screenshot_width: int = SCREENSHOT_WIDTH

    @property
    def repeated_share(self) -> float:
        """Share of recorded steps that continuations repeat in their browser, without the model."""
        return REPEATED * self.continuations / (self.group + self.continuations)

    @property
    def sampled_steps(self) -> float:
        """Steps of an episode that the policy samples, on average over all episodes."""
        return self.steps * (1 - self.repeated_share)

    @property
    def step_page_s(self) -> float:
        """Seconds outside the model for each sampled step, those of repeated steps included."""
        return self.page_s / (1 - self.repeated_share)

    @property
    def screenshots_episode(self) -> float:
        """Screenshots of an episode, where the rate allows them."""
        return {"off": 0.0, "ends": float(ENDS), "all": self.steps + 1}[self.screenshots]


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an estimate."""

    parameters: int
    weights_gib: float
    """One copy of the weights in bf16, as served."""
    server_gpus: int
    """GPUs over which one policy server's weights are spread."""
    server_contexts: int
    """Number of prompts with answers that one server's KV cache holds."""
    server_steps_s: float
    """Steps per second that one server samples."""
    servers: int
    """Number of policy servers that keep up with all actors."""
    steps_s: float
    """Steps per second of all actors and servers together."""
    episodes_day: float
    """Episodes a day, continuations included."""
    learner_gib: float
    """Weights, gradient, optimizer and reference policy on all GPUs together, without activations."""
    learner_gpus: int
    """Number of GPUs whose memory holds the learner."""
    learner_tokens_s: float
    """Tokens per second that those GPUs train on."""
    learner_gpus_to_keep_up: int
    """Number of GPUs needed to train once on every step played."""
    checkpoint_gib: float
    checkpoints_gib: float
    """Disk of the kept checkpoints and one that is being written."""
    checkpoints_gib_day: float
    """Size of all checkpoints written in a day, if the learner trains once on every step played."""
    actors_gib: float
    """Main memory of all actors with their browsers."""
    log_bytes_step: float
    log_gib_day: float
    blob_bytes_episode: float
    """Bytes of an episode's pages if all are different; a continuation repeats pages that are stored already."""
    blobs_gib_day: float
    """Pages alone."""
    screenshots_gib_day: float


def with_settings(load: Load, settings: Settings) -> Load:
    """The load with what a run's settings say about continuations, checkpoints, screenshots and precision."""
    curriculum, learner, actors = settings.curriculum, settings.learner, settings.actors
    seen = actors.screenshot_observation != "off"
    base_bytes = PUBLISHED_BYTES * find_shape(load).parameters
    rank = {"lora_rank": load.lora_rank}
    return msgspec.structs.replace(
        load,
        precision="float32" if learner.precision == "float32" else "bf16",
        group=curriculum.group_size,
        continuations=curriculum.members - curriculum.group_size,
        batch=find_algorithm(learner.algorithm).episodes_per_batch(settings),
        checkpoint_every=checkpoint_interval(learner.model_copy(update=rank), base_bytes=base_bytes),
        keep_checkpoints=learner.keep_checkpoints,
        screenshots="all" if seen else actors.screenshots,
        screenshot_rate=math.inf if seen else actors.screenshot_rate,
        screenshot_width=actors.screenshot_width,
    )


def size_of(load: Load, *, servers_steps_s: float | None = None) -> Size:
    """Estimate what a load needs. `servers_steps_s`: rate of the policy servers that there are; None: as many as keep up.

    Raises:
        SettingsError: the table has no such model or GPU.

    """
    shape, gpu = find_shape(load), find_gpu(load.gpu)
    parameters, tokens = shape.parameters, load.prompt + load.answer
    weights = 2 * parameters
    server_gpus = gpus_of_server(shape, gpu)
    contexts = max(1, cached_contexts(shape, load, SERVER_SHARE * server_gpus * gpu.gib * GIB - weights))
    concurrent = load.actors * load.contexts
    one_steps_s = server_steps_s(shape, gpu, server_gpus, load, batch=min(contexts, concurrent))
    wanted_steps_s = concurrent / load.step_page_s
    servers = max(1, math.ceil(wanted_steps_s / one_steps_s))
    steps_s = played_steps_s(load, servers_steps_s or servers * one_steps_s)
    trained, held = learner_bytes(shape, load)
    learner_gpus = _power_of_two(held / (LEARNER_SHARE * gpu.gib * GIB))
    per_gpu = learner_tokens_s(shape, gpu, load.precision)
    log_step = log_bytes_step(load.prompt, load.answer)
    episodes_day = steps_s * DAY_S / load.sampled_steps
    log_episode = load.steps * log_step + EPISODE_BYTES + 5 * BROKER_BYTES
    page_bytes = (load.sampled_steps + 1) * load.page_bytes
    checkpoint_gib = CHECKPOINT_BYTES * trained / GIB
    return Size(
        parameters=parameters,
        weights_gib=weights / GIB,
        server_gpus=server_gpus,
        server_contexts=contexts,
        server_steps_s=one_steps_s,
        servers=servers,
        steps_s=steps_s,
        episodes_day=episodes_day,
        learner_gib=held / GIB,
        learner_gpus=learner_gpus,
        learner_tokens_s=per_gpu * learner_gpus,
        learner_gpus_to_keep_up=max(learner_gpus, math.ceil(steps_s * tokens / per_gpu)),
        checkpoint_gib=checkpoint_gib,
        checkpoints_gib=(load.keep_checkpoints + 1) * checkpoint_gib,
        checkpoints_gib_day=episodes_day / load.batch / load.checkpoint_every * checkpoint_gib,
        actors_gib=load.actors * (PROCESS_GIB + BROWSER_GIB),
        log_bytes_step=log_step,
        log_gib_day=episodes_day * log_episode / GIB,
        blob_bytes_episode=page_bytes,
        blobs_gib_day=episodes_day * page_bytes / GIB,
        screenshots_gib_day=screenshots_day(load, episodes_day) * screenshot_bytes(load) / GIB,
    )


def screenshots_day(load: Load, episodes_day: float) -> float:
    """Screenshots of all actors in a day; an episode that begins while the rate is used up has none."""
    return min(episodes_day * load.screenshots_episode, DAY_S * load.actors * load.screenshot_rate)


def screenshot_bytes(load: Load) -> float:
    """Bytes of a screenshot, in proportion to its area; its quality is not taken into account."""
    return SCREENSHOT_BYTES * (load.screenshot_width / SCREENSHOT_WIDTH) ** 2


def log_bytes_step(prompt: int, answer: int) -> float:
    """Bytes of one step in the broker's files; `prompt` and `answer` in tokens."""
    payload = STEP_BYTES + PROMPT_TOKEN_BYTES * prompt + ANSWER_TOKEN_BYTES * answer
    return payload + ENVELOPE_BYTES + BROKER_BYTES


def adapter_parameters(shape: Shape, rank: int) -> int:
    """Parameters of a low-rank adapter of every linear layer except the head: rank times (inputs + outputs) of each."""
    attention = 2 * (shape.hidden + shape.queries) + 2 * (shape.hidden + shape.keys)
    return shape.layers * rank * (attention + 3 * (shape.hidden + shape.ffn))


def frozen_bytes(shape: Shape, precision: Precision) -> int:
    """Bytes of weights that are not trained: in float32, or in bf16 with the embedding in float32 (`core.models.arithmetic`)."""
    if precision == "float32":
        return 4 * shape.parameters
    return 2 * shape.parameters + 2 * shape.vocabulary * shape.hidden


def learner_bytes(shape: Shape, load: Load) -> tuple[int, int]:
    """Trained parameters, and bytes of weights, gradient, optimizer and reference policy over all GPUs."""
    if load.lora_rank:
        trained = adapter_parameters(shape, load.lora_rank)
        return trained, frozen_bytes(shape, load.precision) + ADAM_BYTES * trained
    trained = shape.parameters
    return trained, ADAM_BYTES * trained + frozen_bytes(shape, load.precision) * load.reference


def learner_tokens_s(shape: Shape, gpu: Gpu, precision: Precision) -> float:
    """Tokens per second that a learner GPU trains on: 2 operations a parameter forward, 4 backward, 2 to recompute activations."""
    return COMPUTE_SHARE * gpu.operations(precision) / (8 * shape.parameters)


def gpus_of_server(shape: Shape, gpu: Gpu) -> int:
    """Number of GPUs that hold one server's weights with room for a cache."""
    return _power_of_two(2 * shape.parameters * 1.2 / (SERVER_SHARE * gpu.gib * GIB))


def cached_contexts(shape: Shape, load: Load, room: float) -> int:
    """Number of prompts with answers whose KV cache takes at most `room` bytes."""
    return int(room / ((load.prompt + load.answer) * shape.kv_bytes))


def server_steps_s(shape: Shape, gpu: Gpu, gpus: int, load: Load, *, batch: int) -> float:
    """Steps per second: arithmetic limits prompts; each answer token reads all weights and the KV caches of its batch."""
    prompt_s = 2 * shape.parameters * load.prompt / (COMPUTE_SHARE * gpus * gpu.arithmetic)
    read = 2 * shape.parameters + batch * (load.prompt + load.answer / 2) * shape.kv_bytes
    token_s = read / (DECODE_SHARE * gpus * gpu.bandwidth) / batch
    return 1 / (prompt_s + load.answer * token_s)


def played_steps_s(load: Load, servers_steps_s: float) -> float:
    """Steps per second that actors play with servers of a total rate: an actor waits for the page and for the model at once."""
    concurrent = load.actors * load.contexts
    return min(concurrent / (load.step_page_s + concurrent / servers_steps_s), servers_steps_s)


def find_shape(load: Load) -> Shape:
    """The shape of a load's model. Raises SettingsError if the table has no such model."""
    return load.shape or _known(MODELS, load.model, "model")


def find_gpu(name: str) -> Gpu:
    """The data sheet of a GPU. Raises SettingsError if the table has none of this name."""
    return _known(GPUS, name, "GPU")


def _power_of_two(needed: float) -> int:
    """Number of GPUs that share weights: a power of two, so that attention heads divide evenly."""
    return 1 << max(0, math.ceil(math.log2(max(needed, 1e-9))))


def _known(table: Mapping[str, Known], name: str, what: str) -> Known:
    found = table.get(name)
    if found is None:
        raise SettingsError(f"there is no {what} {name!r} in the table; {advice(name, table)}")
    return found
