"""Settings drawn at random, on stories drawn at random: whatever is valid trains, goes on after a kill, verifies to the bit and
passes the audit. A combination that nobody has thought of must not end the learner."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from factories import relabelled

from hindcast.core.rl.algorithm import traits_of
from hindcast.core.settings.changes import decode_settings
from hindcast.core.settings.schema import Settings
from hindcast.events.catalogue import UpdateApplied, WaitExceeded
from hindcast.events.registry import BY_CLASS
from hindcast.events.subjects import family_wildcard, matches
from hindcast.learner.verify.verify import verify
from stories.forged_log import audited
from stories.learner_story import Killed, Watched, die
from stories.training_story import LEARNER, Bench, Member, Told, bench, events_of, learn, tell

pytestmark = pytest.mark.torch

FEW, SEEDS = 2, 6
"""Runs of an algorithm in `make test`, and in all."""
SEEDS_PHASED = 2
"""With a critic, each phase takes twice as long."""
ALGORITHMS = (
    *("grpo", "dr_grpo", "gspo", "cispo", "dapo"),
    *("webrl", "reinforce", "awr", "digirl"),
    *("sft", "filtered_bc", "self_imitation", "dpo", "hsl"),
)


class UntilIdle(Watched):
    """A log whose learner is killed once it says that it waits in vain."""

    async def append(self, batch: Any, **expected: Any) -> list[int]:
        positions = await super().append(batch, **expected)
        waits = family_wildcard(self.run, BY_CLASS[WaitExceeded].family)
        if any(matches(waits, record.subject) for record in batch):
            raise Killed
        return positions


def drawn_settings(random: Random, algorithm: str) -> Settings:
    """A small run's, everything that shapes a plan or an update drawn anew."""

    def of(*values: Any) -> Any:
        return random.choice(values)

    replay = of("off", "successes", "all")
    learner = {
        **LEARNER,
        "algorithm": algorithm,
        "batch_wait_s": 0.2,
        "learning_rate": 1e-3,
        "epochs": of(1, 2),
        "minibatches": of(1, 2, 3),
        "max_staleness": of(0, 1, 50),
        "keep_checkpoints": of(1, 2),
        "keep_weights": of(1, 2),
        "keep_weights_every": of(1, 10),
        "checkpoint_every": of(1, 2),
        "tokens_per_forward": of(64, 512),
        "group_batch": of(1, 2),
        "loss_mean": of("nested", "token", "episode"),
        "group_deviation": of("population", "sample", "none"),
        "group_epsilon": of(1e-4, 1e-6),
        "correction": of("none", "truncated", "decoupled", "masked", "icepop"),
        "dual_clip": of(0.0, 3.0),
        "kl_coefficient": of(0.0, 0.05),
        "cloning_coefficient": of(0.0, 0.3),
        "discount": of(1.0, 0.9),
        "loss_on": of("all", "answer"),
        "gradient_checkpointing": of(False, False, True),
        "precision": of("float32", "float32", "bf16"),
        "lora_rank": of(0, 0, 0, 2),
        "cloning_updates": of(0, 2) if algorithm != "sft" else 0,
        "cloning_batch": of(1, 3, 6),
        "cloning_epochs": of(1, 2),
        "orm_every": of(0, 0, 3),
        "orm_batch": 2,
        "orm_epochs": of(1, 2),
        "orm_held_out": of(0.0, 0.25),
    }
    if traits_of(algorithm).learns_in_phases:
        learner |= {
            "phase_episodes": of(2, 4),
            "phase_replay": replay,
            "phase_demonstrations": replay != "off" and random.random() < 0.5,
            "phase_window": of((1e-6, 1.0), (0.001, 0.02)),
            "phase_memory": of(1, 512),
            "phase_replay_ratio": of(0.25, 2.0),
            "critic_heads": of("scalar", "double"),
            "critic_replay": of(True, False),
            "episode_share": of(0.1, 1.0),
            "loss": of("paper", "released"),
            "advantage": of("paper", "released"),
        }
    if traits_of(algorithm).compares == "groups":
        options = {"group_filter": of(True, True, False)}
        if algorithm == "gspo":
            options |= {"sequence": of("step", "episode")}
        if algorithm == "dapo":
            options |= {"overlong_buffer": of(0.9, 1.0), "overlong_filter": of(False, True)}
        learner |= {
            "success_replay": of("off", "random", "first"),
            "replay_correction": of("behaviour", "recomputed"),
            "format_penalty": of(0.0, 1.0),
            "rehearsal_episodes": of(0, 2),
            "options": options,
        }
    if algorithm == "hsl":
        learner |= {
            "kl_coefficient": 0.0,
            "hsl_episodes": of(1, 3),
            "hsl_batch": of(1, 3),
            "hsl_memory": of(1, 4),
            "hsl_weighting": of("sampling", "factor", "uniform"),
            "hsl_failures_only": of(False, True),
            "hsl_mixture": of(0.3, 1.0),
            "hsl_tokens": of("mean", "sum"),
        }
    return decode_settings(
        {
            "run": {"seed": random.randrange(100)},
            "curriculum": {"group_size": 4, "max_attempts": of(1, 2), "demonstrations": of(0, 3)},
            "learner": {**learner, "filter_episodes": of(2, 4), "pair_batch": of(1, 2)},
            "storage": {"snapshot_events": of(16, 10_000)},
        }
    )


def drawn_groups(made: Bench, random: Random, settings: Settings) -> list[Told]:
    """Some groups, whole: demonstrations, failures, what nobody could judge, and what came to nothing among them."""
    told: list[Told] = []
    for _ in range(6):
        shown = random.random() < 0.35
        members = []
        for _ in range(1 if shown else random.choice((1, 2, 4))):
            undecided = random.random() < 0.1
            members.append(
                Member(
                    0.0 if undecided else float(random.random() < 0.5),
                    9
                    if settings.learner.algorithm == "dapo" and random.random() < 0.3
                    else 1 + random.randrange(3),
                    outcome="undecided" if undecided else None,
                    abandoned=random.random() < 0.1,
                    version=-1 if shown else 0,
                    origin="demonstration" if shown else "online",
                    unparsable=random.random() < 0.1,
                )
            )
        group = made.story.group(*members, seed=random.randrange(4))
        told += relabelled(group) if settings.learner.algorithm == "hsl" else group
    return told


async def play(seed: int, algorithm: str, folder: Path) -> int:
    """Updates of one run; its learner is killed in the midst of things, and whenever it waits."""
    random = Random(f"{algorithm} {seed}")
    settings = drawn_settings(random, algorithm)
    made = await bench(folder, batches=0, settings=settings)
    for _ in range(3):
        await tell(made.log, drawn_groups(made, random, settings))
        dying = Watched(made.log, random.randrange(2, 9), after=die)
        for log in (dying, UntilIdle(made.log, 0)):
            with pytest.raises(Killed):
                await learn(made, log=log)
    report = await verify(made.log, made.blobs, policy=made.policy)
    assert report.identical, report.first_divergence
    assert not (await audited(made)).defects
    return sum(isinstance(one.fact, UpdateApplied) for one in await events_of(made.log))


def cases() -> Iterator[Any]:
    """An algorithm's first seeds, then its further ones."""
    for algorithm in ALGORITHMS:
        if traits_of(algorithm).learns_in_phases:
            yield pytest.param(algorithm, range(SEEDS_PHASED), id=algorithm)
        else:
            yield pytest.param(algorithm, range(FEW), id=algorithm)
            yield pytest.param(
                algorithm, range(FEW, SEEDS), id=f"{algorithm}-further", marks=pytest.mark.slow
            )


@pytest.mark.parametrize(("algorithm", "seeds"), [*cases()])
async def test_whatever_is_set_it_trains_goes_on_and_verifies(
    tmp_path: Path, algorithm: str, seeds: range
) -> None:
    updates = 0
    for seed in seeds:
        try:
            updates += await play(seed, algorithm, tmp_path / str(seed))
        except Exception as error:
            error.add_note(f"seed {seed} of {algorithm}")
            raise
    assert updates > 0
