"""Questions about prices, which only the tools of an MCP server can answer (docs/protocols.md)."""

from random import Random

THINGS = ("lamp", "vase", "chair", "mug", "clock", "book")


class Prices:
    """Ask for the price of a thing."""

    def reset(self, seed):
        """Choose the thing by the seed."""
        self.instruction = f"How much is the {Random(seed).choice(THINGS)}? Answer with the price."
        return "The shop"

    def step(self, action):
        """Refuse: there is nothing to do here without the tools."""
        raise NotImplementedError("an agent plays this environment: hindcast start --agent")


def right(answer, instruction, text):
    """Whether the answer is the price that the tool returned: it is on the last page, after the thing's name."""
    thing = instruction.split("? ")[0].split()[-1]
    return answer is not None and f"{thing}: {answer}\n" in f"{text}\n"
