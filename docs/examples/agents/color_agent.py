"""An agent that knows nothing of Hindcast: it asks a model which button to click, and says at the end how well it did."""

import os
import re
from random import Random
from urllib.request import Request, urlopen

from openai import OpenAI

CLICK = re.compile(r'Click", element="(\d)"')
seed = int(os.environ["HINDCAST_SEED"])
colors = Random(seed).sample(["red", "green", "blue", "yellow", "black"], 3)
wanted, chosen = Random(seed).choice(colors), ""
buttons = [*colors, "Submit"]
model, messages, text = OpenAI(max_retries=0), [], "Colors"
asked = f'Task Instruction: Click on the "{wanted}" button, then on Submit.\n\n'

for turn in range(4):
    page = "\n".join(["page", f"text {text}", *(f"button {name} [{i}]" for i, name in enumerate(buttons, 1))])
    messages.append({"role": "user", "content": f"{asked}Round {turn}\n\n{page}"})
    answer = model.chat.completions.create(model="policy", messages=messages).choices[0].message.content or ""
    # the shipped policy reads the newest page alone; earlier ones are a placeholder
    messages[-1]["content"] = f"{asked}Round {turn}\n\n** Simplified html **"
    messages.append({"role": "assistant", "content": answer})
    asked = ""
    found = CLICK.search(answer)
    clicked = buttons[int(found[1]) - 1] if found and 1 <= int(found[1]) <= len(buttons) else ""
    if clicked == "Submit" or not clicked:
        break
    chosen, text = clicked, f"Chosen: {clicked}"

reward = float(clicked == "Submit" and chosen == wanted)
said = f'{{"reward": {reward}}}'.encode()
urlopen(Request(f"{os.environ['HINDCAST_EPISODE_URL']}/reward", data=said, method="POST")).close()
