"""An export as traces, read by the real `verifiers` 0.4."""

from pathlib import Path

import pytest
from verifiers.v1 import WireEpisode

from stories.export_story import export_archive

pytestmark = pytest.mark.peers


def test_verifiers_reads_every_episode_with_its_branches_and_reward(tmp_path: Path) -> None:
    lines = (export_archive(tmp_path, "verifiers") / "traces.jsonl").read_text().splitlines()
    episodes = [WireEpisode.model_validate_json(line) for line in lines]
    assert len(episodes) > 10
    assert {trace.reward for one in episodes for trace in one.traces} >= {0.0, 1.0}
    for episode in episodes:
        (trace,) = episode.traces
        sampled = [node for node in trace.nodes if node.sampled]
        assert trace.num_turns == len(sampled)
        assert all(len(node.logprobs) == sum(node.mask) == len(node.token_ids) for node in sampled)
        assert sum(len(branch.nodes) // 2 for branch in trace.branches) >= len(sampled)
        if trace.agent.trainable:
            assert episode.run.work.policy.end >= episode.run.work.policy.start >= 0
