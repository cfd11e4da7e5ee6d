"""One optimizer step of any model, and the event that reports it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hindcast.core.settings.schema import LearnerSettings
from hindcast.events.catalogue import BatchPlanned, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import SampleReport
from hindcast.learner.clocks import Clocks
from hindcast.learner.heap import give_back_freed
from hindcast.learner.trained_model import TrainedModel


class MinibatchReport(NamedTuple):
    """What is reported of a mini-batch apart from the step; metrics are from before the step."""

    inputs: str
    """Digest of its inputs."""
    metrics: dict[str, float]
    samples: SampleReport


def step_along(
    learned: TrainedModel,
    plan: BatchPlanned,
    index: int,
    *,
    settings: LearnerSettings,
    rate: Callable[[int], float],
    account: Callable[[], MinibatchReport],
    began: Clocks,
) -> UpdateApplied | UpdateSkipped:
    """Take the optimizer step of mini-batch `index` with the accumulated gradient; skip it if the gradient is not finite.

    `rate`: learning rate of the model's update 1, 2, 3 …. `began`: clock readings when the mini-batch began.
    """
    number, before = learned.update + 1, learned.digest
    norm = learned.clip(settings.max_gradient_norm)
    if not np.isfinite(norm):
        learned.forget_gradient()
        return UpdateSkipped(
            update=number,
            model=learned.name,
            batch=plan.batch,
            minibatch=index,
            reason=f"the gradient's norm is {norm}",
            state=before,
        )
    chosen = rate(number)
    learned.step(learning_rate=chosen, weight_decay=settings.weight_decay)
    give_back_freed()
    taken, told = Clocks.now().since(began), account()
    return UpdateApplied(
        update=number,
        model=learned.name,
        batch=plan.batch,
        minibatch=index,
        before=before,
        after=learned.digest,
        inputs=told.inputs,
        metrics=told.metrics | {"gradient_norm": norm, "learning_rate": chosen},
        samples=told.samples,
        duration_ms=taken.wall_s * 1000,
        cpu_ms=taken.cpu_s * 1000,
    )
