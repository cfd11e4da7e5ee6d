"""Train the base policy from nothing, or further from a checkpoint, on two cores.

The rate rises, then falls linearly to a tenth over the minutes given; training is then repeated with further data
from where it ended (the restart of the rate mattered). bfloat16 matrix products, float32 weights.

Consumes: batches from the encoding process. Produces: a model folder, rewritten every few minutes, and `progress.jsonl`.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
import torch
from torch import distributed, nn
from torch.nn import functional

from hindcast.core.scratch import scratch_folder
from hindcast.core.seeds import derive_seed
from tools.base_policy.batches import Batch, batches
from tools.base_policy.folder import load_model, save_model
from tools.base_policy.fused import use_fused_operations
from tools.base_policy.mix import Mix

PROMPT_SHARE = 0.12
"""Prompt tokens whose loss is computed: a random part gives the same gradient on average, a good deal sooner."""

MOST_NORM = 1.0
REPORT_S = 20.0

log = structlog.get_logger()


class Plan(NamedTuple):
    """One stretch of training."""

    minutes: float
    rate: float
    """Of the matrices by Muon, of the rest by AdamW."""
    seed: int
    batch_tokens: int = 4096
    """Padded tokens in one worker's batch."""
    prompt_weight: float = 0.3
    """Weight of the mean loss over prompt tokens beside the mean over answer tokens."""
    save_minutes: float = 3.0
    fused: bool = True
    """Compile the cheap operations first: half a minute well spent, except in a test."""
    workers: int = 2
    """Processes of one thread each. On shared cores they lose far less time to each other than two threads would:
    they meet once a step, threads at every operation."""


class Progress(msgspec.Struct):
    """One line of `progress.jsonl`."""

    minutes: float
    tokens: int
    rate: float
    answer_loss: float
    prompt_loss: float
    exact: float
    """Share of answers of which every token was the likeliest, before the update."""
    gradient_norm: float


def train(folder: Path, mix: Mix, plan: Plan) -> None:
    """Train the model in `folder` for `plan.minutes` and write it back."""
    context = get_context("spawn")
    with scratch_folder() as meeting, ProcessPoolExecutor(plan.workers, mp_context=context) as pool:
        address = f"file://{meeting}/ranks"
        work = [pool.submit(_work, rank, folder, mix, plan, address) for rank in range(plan.workers)]
        for future in work:
            future.result()


def _work(rank: int, folder: Path, mix: Mix, plan: Plan, meeting: str) -> None:
    """One worker: a model of its own, equal to the others' because gradients are averaged before every step."""
    torch.set_num_threads(1)
    if plan.fused:
        use_fused_operations()
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=plan.workers)
    model = load_model(folder).train()
    optimizers = [_muon(model, plan), _adam(model, plan)]
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    report = _Report(folder) if rank == 0 else None
    started = saved = 0.0
    for batch in batches(folder, mix, seed=derive_seed(plan.seed, "worker", rank), tokens=plan.batch_tokens):
        started = started or time.monotonic()  # until the encoding process has come up, nothing is trained
        saved = saved or started
        answer_loss, prompt_loss, exact = _losses(model, batch)
        torch.autograd.backward(answer_loss + plan.prompt_weight * prompt_loss)
        now = time.monotonic()
        numbers = torch.tensor(
            [
                now - started,
                float(answer_loss.detach()),
                float(prompt_loss.detach()),
                exact,
                int(batch.ids.numel()),
            ]
        )
        elapsed_s, *measured = _average_gradients(model, numbers).tolist()
        elapsed = elapsed_s / (plan.minutes * 60)
        if elapsed >= 1:
            break
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), MOST_NORM))
        scale = _schedule(elapsed)
        for optimizer, initial in zip(optimizers, rates, strict=True):
            for group, rate in zip(optimizer.param_groups, initial, strict=True):
                group["lr"] = rate * scale
            optimizer.step()
            optimizer.zero_grad()
        if report is not None:
            report.add(measured, norm, workers=plan.workers, minutes=elapsed_s / 60, rate=plan.rate * scale)
            if now - saved > plan.save_minutes * 60:
                save_model(model, folder)
                saved = now
    if rank == 0:
        save_model(model, folder)
    distributed.destroy_process_group()


def _average_gradients(model: Any, numbers: torch.Tensor) -> torch.Tensor:
    """Replace every gradient by the workers' mean, in one message; returns the mean of `numbers`."""
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([numbers, *(gradient.reshape(-1) for gradient in gradients)])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    start = len(numbers)
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()
    return flat[: len(numbers)]


class _Report:
    """Means over a while, to the log and to `progress.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "progress.jsonl"
        self._rows: list[list[float]] = []
        self._tokens = 0
        self._last = time.monotonic()

    def add(self, measured: list[float], norm: float, *, workers: int, minutes: float, rate: float) -> None:
        """Take the numbers of one step: losses, exactness, padded tokens per worker."""
        self._rows.append([*measured[:3], norm])
        self._tokens += round(measured[3] * workers)
        if time.monotonic() - self._last < REPORT_S:
            return
        means = [sum(column) / len(self._rows) for column in zip(*self._rows, strict=True)]
        progress = Progress(minutes, self._tokens, rate, *means)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(progress) + b"\n")
        log.info(
            "training", **{name: round(value, 4) for name, value in msgspec.structs.asdict(progress).items()}
        )
        self._rows, self._last = [], time.monotonic()


def _losses(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean cross-entropy over answer tokens and over a random part of prompt tokens; exact answers among all."""
    prompt = batch.prompt & (torch.rand(batch.prompt.shape) < PROMPT_SHARE)
    chosen = batch.answer | prompt
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(batch.ids, use_cache=False).last_hidden_state[:, :-1][chosen]  # [chosen, width]
        logits = model.lm_head(hidden)
    targets = batch.ids[:, 1:][chosen]
    loss = functional.cross_entropy(logits.float(), targets, reduction="none")
    of_answer = batch.answer[chosen]
    exact = _exact(batch, chosen, logits.detach().argmax(-1) == targets)
    return loss[of_answer].mean(), loss[~of_answer].mean(), exact


def _exact(batch: Batch, chosen: torch.Tensor, right: torch.Tensor) -> float:
    """Share of answers of which every token was right."""
    fine = torch.ones(batch.answer.shape, dtype=torch.bool)
    fine[chosen] = right
    starts = batch.answer & ~functional.pad(batch.answer, (1, 0))[:, :-1]
    number = starts.flatten().long().cumsum(0)[batch.answer.flatten()] - 1
    wrong = torch.zeros(int(number.max()) + 1, dtype=torch.long).index_add_(
        0, number, (~fine[batch.answer]).long()
    )
    return float((wrong == 0).float().mean())


def _schedule(elapsed: float) -> float:
    """Of the full rate: rises over the first 2 %, then falls linearly to a twentieth."""
    return min(elapsed / 0.02, 1.0) * (1.0 - 0.95 * elapsed) + 1e-3


def _muon(model: Any, plan: Plan) -> torch.optim.Optimizer:
    """For the square-ish matrices inside the layers: steps of equal size in every direction."""
    matrices = [value for name, value in model.named_parameters() if _is_matrix(name, value)]
    return torch.optim.Muon(
        matrices, lr=plan.rate, momentum=0.95, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"
    )


def _adam(model: Any, plan: Plan) -> torch.optim.Optimizer:
    rest = [value for name, value in model.named_parameters() if not _is_matrix(name, value)]
    return torch.optim.AdamW(rest, lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)


def _is_matrix(name: str, value: torch.Tensor) -> bool:
    return value.ndim == 2 and "embed" not in name and "lm_head" not in name
