"""The prompting baseline in a real browser: a model behind a real server acts in the store, and is judged as any policy is."""

import pytest

from hindcast.actors.engines.in_process import InProcessEngine
from hindcast.actors.environments.store.tasks import StoreTasks
from hindcast.app.evaluation.evaluation import plan_requests, play
from hindcast.core.models.folders import base_policy_folder
from hindcast.core.settings.schema import Settings
from servers.chat_server import chatting, policy_rule

pytestmark = [pytest.mark.torch, pytest.mark.browser]


async def test_a_model_behind_an_endpoint_is_evaluated_and_what_it_took_is_told() -> None:
    async with InProcessEngine(base_policy_folder(), Settings().policy) as engine:
        with chatting(policy_rule(engine)) as server:
            settings = Settings.model_validate(
                {
                    "sites": {"products": 60},
                    "actors": {
                        "contexts": 1,
                        "generate_timeout_s": 140,
                        "page_timeout_s": 60,
                        "action_timeout_s": 60,
                    },
                    "endpoint": {
                        "base_url": server.base_url,
                        "model": "base",
                        "timeout_s": 120,
                        "price_answer": 1.0,
                    },
                }
            )
            requests = plan_requests(
                StoreTasks(settings.sites),
                episodes=1,
                families=["find_price"],
                temperature=0.0,
                lease_s=settings.episode_lease_s,
            )
            tally = await play(requests, folder=None, weights=None, settings=settings)
    report = tally.report(suite="store", policy="endpoint:base")
    assert (report.episodes, report.lost) == (1, 0)
    (played,) = tally.decided
    assert played.steps
    assert len(server.asked) >= len(played.steps), "more where the browser broke once"
    assert report.asked is not None
    assert report.asked.prompt_tokens > 100 * len(played.steps)
    assert 0 < report.asked.cost_usd < 1
