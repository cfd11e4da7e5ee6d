"""browser-use, unmodified, as an agent: it opens the shop in a Chromium of its own and asks a model through OpenAI's client."""

import asyncio
import json
import os
import shutil
import sys
from urllib.request import Request, urlopen

# browser-use reads these at its import: no telemetry, no cloud, no look for a newer version
os.environ |= dict.fromkeys(
    ("ANONYMIZED_TELEMETRY", "BROWSER_USE_CLOUD_SYNC", "BROWSER_USE_VERSION_CHECK"), "false"
)

from browser_use import Agent, Browser, ChatOpenAI


async def play():
    """Let browser-use do the task; returns its answer, None where it gave none."""
    browser = Browser(
        executable_path=shutil.which("chromium") or shutil.which("chromium-headless-shell"),
        headless=True,
        chromium_sandbox=False,
        enable_default_extensions=False,  # they would be downloaded
    )
    agent = Agent(
        task=os.environ["HINDCAST_INSTRUCTION"],
        llm=ChatOpenAI(model="policy", max_retries=0),
        browser=browser,
        initial_actions=[{"navigate": {"url": os.environ["HINDCAST_START_URL"], "new_tab": False}}],
        use_vision=False,
        use_judge=False,  # the store judges
    )
    history = await agent.run(max_steps=12)
    return history.final_result() if history.is_done() else None


answer = asyncio.run(play())
if answer is None:
    sys.exit("browser-use ended without an answer")
said = json.dumps({"answer": answer}).encode()
urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/reward", data=said, method="POST")).close()
