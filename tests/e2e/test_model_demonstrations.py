from pathlib import Path

import pytest

from hindcast.app.demonstrations.scripted import FIRST_SEED
from hindcast.core.grammar.answer_parser import format_answer, parse_answer
from hindcast.core.settings.schema import Settings
from tools.base_policy.recording import record, site_words
from tools.base_policy.samples import read_samples

pytestmark = [pytest.mark.torch, pytest.mark.browser]


async def test_demonstrations_are_recorded_in_a_real_browser_and_only_successes_are_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "demonstrations.jsonl"
    settings = Settings.model_validate({"actors": {"contexts": 2}})
    steps = await record({"store/find_price": 2, "miniwob/enter-text": 2}, path, settings=settings)
    samples = list(read_samples(path))
    assert len(samples) == steps
    episodes = {(sample.source, sample.seed) for sample in samples}
    assert {source for source, _ in episodes} == {"store/find_price", "miniwob/enter-text"}
    assert len(episodes) == 4
    assert all(seed >= FIRST_SEED for _, seed in episodes)
    for sample in samples:
        assert parse_answer(format_answer(sample.action, sample.page)) == sample.action
    last = {(sample.source, sample.seed): sample for sample in samples}
    assert {sample.action.name for (source, _), sample in last.items() if source == "store/find_price"} == {
        "exit"
    }


def test_the_words_of_both_sites_are_known_without_a_browser() -> None:
    words = site_words()
    assert {"Norda", "lorem", "Kenda"} <= set(words)
    assert list(words) == sorted(set(words))
