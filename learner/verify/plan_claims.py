"""Claims: what the plans of a log assert about the events before them."""

from dataclasses import dataclass, field

from hindcast.core.domain.arrays import unpack_positions
from hindcast.core.rl.combined_state import POLICY
from hindcast.events.catalogue import BatchPlanned


@dataclass(slots=True)
class Claims:
    """Recorded when a batch was planned; must hold for the log as it is now."""

    points: set[int] = field(default_factory=set)
    """Positions that plans were made at."""
    swept_at: set[int] = field(default_factory=set)
    """Positions that sweeps were decided at."""
    steps: dict[int, bytes] = field(default_factory=dict)
    """By position of a trained step (or of a verdict or relabel with a reading): first 8 bytes of the sha256 of its stored bytes."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Rewards of the episodes that the policy was trained on."""

    def take(self, plan: BatchPlanned) -> None:
        """Add the claims of one plan; the first claim about an event counts."""
        self.points.add(plan.as_of)
        for index, position in enumerate(unpack_positions(plan.positions).tolist()):
            self.steps.setdefault(position, plan.sample_digests[8 * index : 8 * index + 8])
        for planned in plan.episodes if plan.model == POLICY else ():
            self.rewards.setdefault(planned.episode, planned.reward)
