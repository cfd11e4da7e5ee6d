"""Places a run's learner processes and policy servers on GPUs, and refuses what does not fit.

The learner has the first GPUs, one process each; every further group of GPUs has a policy server. On a single GPU both share
it: the server gets a bounded share of the memory, and the learner the rest. Several placements fit as a rule; the one that
trains on the most played tokens is chosen. All of it follows from the formulas of `sizing` and the constants here. Only the
bytes of a layer's activations were compared with a measurement (docs/scale.md).
"""

import math
from collections.abc import Iterator, Sequence

import msgspec

from hindcast.app.settings.sizing import (
    GIB,
    GPUS,
    LEARNER_SHARE,
    MODELS,
    SERVER_SHARE,
    Gpu,
    Load,
    Shape,
    cached_contexts,
    find_gpu,
    find_shape,
    gpus_of_server,
    learner_bytes,
    learner_tokens_s,
    server_steps_s,
)
from hindcast.core.errors import SettingsError

PASS_TOKENS = (16_384, 8192, 4096, 2048, 1024)
"""Tokens of a forward pass to choose from."""
COPY_BYTES = 2
"""Bytes of a parameter's bf16 copy. Autocast keeps those of trained weights during a pass, not sharded over processes."""
LOGIT_COPIES = 5
"""Float32 tensors [answer tokens, vocabulary] that a pass holds at once."""
OVERHEAD_GIB = 2.0
"""Memory of a process on a GPU beyond its tensors: CUDA, kernels, graphs, fragments."""
SHARED = 0.9
"""Share of a GPU's memory that a server and a learner on it may use together."""
SHARE_STEP = 0.05
LEAST_CONTEXTS, SHARED_CONTEXTS = 4, 32
"""Fewest contexts in the cache of any server, and those that a server on the learner's GPU gets if there is room."""
MOST_SEQUENCES = 256
"""Answers that a server with GPUs of its own computes at once."""
MOST_GPUS = 64
"""GPUs of one model that a refusal proposes at most."""
PROPOSED_RANK = 16
"""Rank of the adapter that a refusal proposes."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where learner and policy servers of one machine run, and what they then reach."""

    learner_gpus: tuple[int, ...]
    server_gpus: tuple[int, ...]
    """GPUs of all servers; empty: the servers run on other machines."""
    gpus_per_server: int = 1
    memory_share: float = 0.0
    """Share of a GPU's memory that a server takes; 0: no server is placed here."""
    tokens_per_forward: int
    learner_gib: float
    """Memory of one learner GPU: its part of the weights, gradient and optimizer, and activations."""
    server_gib: float = 0.0
    """Memory of one server's GPUs together."""
    contexts: int = 0
    """Prompts with answers that the caches of all servers hold."""
    servers_steps_s: float = 0.0
    """Steps per second that all servers sample."""
    learner_tokens_s: float
    """Tokens per second that the learner computes gradients for."""

    @property
    def shared(self) -> bool:
        """Whether learner and server share a GPU."""
        return bool(set(self.learner_gpus) & set(self.server_gpus))

    @property
    def servers(self) -> int:
        """Number of servers."""
        return len(self.server_gpus) // self.gpus_per_server


def place(load: Load, *, gpus: int, sample: int, passes: int = 1, elsewhere: bool = False) -> Placement:
    """Choose the placement that trains on the most played tokens.

    `sample`: tokens of the longest prompt with its answer. `passes`: how often the learner trains on a token (`learner.epochs`).
    `elsewhere`: the policy servers run on other machines, and the learner has all GPUs.

    Raises:
        SettingsError: nothing fits; the message has the numbers and the nearest loads and GPUs that do.

    """
    tokens = load.prompt + load.answer
    found = list(_placements(load, gpus, sample, elsewhere=elsewhere))
    if not found:
        raise SettingsError(_refusal(load, gpus, sample, elsewhere=elsewhere))

    def rate(one: Placement) -> tuple[float, int, int]:
        played = math.inf if elsewhere else one.servers_steps_s * tokens
        return min(played, one.learner_tokens_s / passes), -len(one.learner_gpus), one.contexts

    return max(found, key=rate)


def _placements(load: Load, gpus: int, sample: int, *, elsewhere: bool) -> Iterator[Placement]:
    """Every placement that fits."""
    shape, gpu = find_shape(load), find_gpu(load.gpu)
    most = LEARNER_SHARE * gpu.gib
    if elsewhere:
        if tokens := _pass_tokens(shape, load, gpus, sample, most):
            yield _learner(shape, gpu, load, gpus, tokens)
    elif gpus == 1:
        yield from _shared(shape, gpu, load, sample)
    else:
        each = gpus_of_server(shape, gpu)
        for learners in range(1, gpus - each + 1):
            servers = (gpus - learners) // each
            room = SERVER_SHARE * each * gpu.gib * GIB - server_bytes(shape, load, each)
            contexts = cached_contexts(shape, load, room)
            tokens = _pass_tokens(shape, load, learners, sample, most)
            if tokens and contexts >= LEAST_CONTEXTS and not shape.heads % each:
                placed = tuple(range(learners, learners + servers * each))
                yield _with_servers(
                    _learner(shape, gpu, load, learners, tokens),
                    shape,
                    gpu,
                    load,
                    gpus=placed,
                    each=each,
                    share=SERVER_SHARE,
                    contexts=contexts,
                )


def _shared(shape: Shape, gpu: Gpu, load: Load, sample: int) -> Iterator[Placement]:
    """Placements on one GPU: the server's share grows in steps from the least to what its cache is worth."""
    for step in range(1, math.ceil(SHARED / SHARE_STEP)):
        share = round(step * SHARE_STEP, 2)
        contexts = cached_contexts(shape, load, share * gpu.gib * GIB - server_bytes(shape, load, 1))
        tokens = _pass_tokens(shape, load, 1, sample, (SHARED - share) * gpu.gib)
        if not tokens or contexts < LEAST_CONTEXTS:
            continue
        learner = _learner(shape, gpu, load, 1, tokens)
        yield _with_servers(
            learner, shape, gpu, load, gpus=(0,), each=1, share=share, contexts=min(contexts, SHARED_CONTEXTS)
        )


def _learner(shape: Shape, gpu: Gpu, load: Load, gpus: int, tokens: int) -> Placement:
    return Placement(
        learner_gpus=tuple(range(gpus)),
        server_gpus=(),
        tokens_per_forward=tokens,
        learner_gib=learner_gib(shape, load, gpus=gpus, tokens=tokens),
        learner_tokens_s=gpus * learner_tokens_s(shape, gpu, load.precision),
    )


def _with_servers(
    learner: Placement,
    shape: Shape,
    gpu: Gpu,
    load: Load,
    *,
    gpus: tuple[int, ...],
    each: int,
    share: float,
    contexts: int,
) -> Placement:
    """A learner's placement with servers of `each` GPUs. `contexts`: in one server's cache."""
    servers, batch = len(gpus) // each, min(contexts, MOST_SEQUENCES)
    return msgspec.structs.replace(
        learner,
        server_gpus=gpus,
        gpus_per_server=each,
        memory_share=share,
        server_gib=share * each * gpu.gib,
        contexts=servers * contexts,
        servers_steps_s=servers * server_steps_s(shape, gpu, each, load, batch=batch),
    )


def learner_gib(shape: Shape, load: Load, *, gpus: int, tokens: int) -> float:
    """Memory in GiB that one of a learner's GPUs needs for passes of `tokens` tokens, with gradient checkpointing."""
    _, held = learner_bytes(shape, load)
    training = held / gpus + copy_bytes(shape, load) + activation_bytes(shape, load, tokens)
    return training / GIB + OVERHEAD_GIB


def copy_bytes(shape: Shape, load: Load) -> float:
    """Bytes of bf16 copies on each GPU: of all trained weights; of frozen ones only that of a head tied to the embedding."""
    if load.precision == "float32":
        return 0
    if load.lora_rank:
        return COPY_BYTES * shape.vocabulary * shape.hidden * shape.tied
    return COPY_BYTES * shape.parameters


def activation_bytes(shape: Shape, load: Load, tokens: int) -> float:
    """Bytes of a pass with gradient checkpointing: each layer's input, one layer's inside, logits of answers, and a mask."""
    answers = tokens * load.answer / (load.prompt + load.answer)
    logits = LOGIT_COPIES * 4 * answers * shape.vocabulary
    mask = 4 * tokens**2  # packed sequences have one row, and torch's attention takes a mask of its square
    return 4 * shape.layers * tokens * shape.hidden + layer_bytes(shape) * tokens + logits + mask


def layer_bytes(shape: Shape) -> int:
    """Bytes of a token's activations inside one layer, in bf16 and float32 mixed."""
    return 24 * shape.hidden + 10 * shape.ffn


def server_bytes(shape: Shape, load: Load, gpus: int) -> float:
    """Bytes that a policy server on `gpus` GPUs needs before its cache: bf16 weights, adapters, and its processes' own."""
    trained = learner_bytes(shape, load)[0] if load.lora_rank else 0
    return 2 * shape.parameters + 4 * 2 * trained + gpus * OVERHEAD_GIB * GIB


def _pass_tokens(shape: Shape, load: Load, gpus: int, sample: int, most_gib: float) -> int:
    """The longest forward pass that fits; 0: not even that of the longest sample does."""
    for tokens in sorted({*PASS_TOKENS, sample}, reverse=True):
        if tokens >= sample and learner_gib(shape, load, gpus=gpus, tokens=tokens) <= most_gib:
            return tokens
    return 0


def _refusal(load: Load, gpus: int, sample: int, *, elsewhere: bool) -> str:
    """Say why nothing fits, and what does."""
    shape, gpu = find_shape(load), find_gpu(load.gpu)
    held = learner_bytes(shape, load)[1] / GIB
    how = f"an adapter of rank {load.lora_rank}" if load.lora_rank else "full AdamW"
    with_reference = " and a KL reference" if load.reference and not load.lora_rank else ""
    lines = [
        f"{'The model of --base' if load.shape else load.model} with {how}{with_reference} does not fit on {gpus} {load.gpu}: the learner needs {held:.0f} GiB for weights, "
        f"gradient and optimizer, and on each GPU {copy_bytes(shape, load) / GIB:.1f} GiB for bf16 copies of weights, "
        f"{activation_bytes(shape, load, sample) / GIB:.1f} for a pass of {sample} tokens and {OVERHEAD_GIB:g} of overhead"
    ]
    if not elsewhere:
        lines[0] += f"; a policy server needs {server_bytes(shape, load, 1) / GIB:.1f} GiB and its cache"
    lines[0] += f". A {load.gpu} has {gpu.gib:g} GiB. What fits:"
    fitting = list(dict.fromkeys(_alternatives(load, gpus, sample, elsewhere=elsewhere)))
    return "\n".join(
        [*lines, *(f"    {one}" for one in fitting or ["nothing in the tables (docs/scale.md)"])]
    )


def _alternatives(load: Load, gpus: int, sample: int, *, elsewhere: bool) -> Iterator[str]:
    """Options of the command that fit, the nearest of each kind."""

    def fewest(wanted: Load, numbers: Sequence[int]) -> int:
        return next((n for n in numbers if any(_placements(wanted, n, sample, elsewhere=elsewhere))), 0)

    model = "--base FOLDER" if load.shape else f"--model {load.model}"
    adapter = msgspec.structs.replace(load, lora_rank=load.lora_rank or PROPOSED_RANK)
    rank = f" --lora-rank {adapter.lora_rank}"
    more = range(gpus + 1, MOST_GPUS + 1)
    if count := fewest(load, more):
        yield f"{model}{rank if load.lora_rank else ''} --gpu {load.gpu} --gpus {count}"
    if count := fewest(adapter, range(1, MOST_GPUS + 1)):
        yield f"{model}{rank} --gpu {load.gpu} --gpus {count}"
    for name in (name for name in GPUS if GPUS[name].gib > GPUS[load.gpu].gib):
        for wanted, said in ((load, rank if load.lora_rank else ""), (adapter, rank)):
            other = msgspec.structs.replace(wanted, gpu=name)
            if count := fewest(other, range(1, gpus + 1)):
                yield f"{model}{said} --gpu {name} --gpus {count}"
    smaller = [name for name, one in MODELS.items() if one.parameters < find_shape(load).parameters]
    for name in reversed(smaller):
        other = msgspec.structs.replace(load, model=name, shape=None)
        if fewest(other, [gpus]):
            yield f"--model {name}{rank if load.lora_rank else ''} --gpu {load.gpu} --gpus {gpus}"
            return
