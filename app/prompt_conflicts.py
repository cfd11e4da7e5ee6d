"""Settings of prompts that are each allowed but do not go together, in words."""

from core.rendering import RENDERERS
from core.settings import Settings


def prompt_conflicts(settings: Settings) -> list[str]:
    """What is wrong with how pages come into prompts."""
    renderer = settings.actors.renderer
    if renderer not in RENDERERS:
        return [f"actors.renderer = {renderer!r} is no renderer; known are {', '.join(RENDERERS)}"]
    if settings.actors.framing == "webrl/1" and not renderer.startswith("webrl/"):
        return [
            f"actors.framing = 'webrl/1' needs actors.renderer = 'webrl/2', found {renderer!r}: its role marks may be plain text to "
            "a tokenizer, and that renderer alone writes pages in which they cannot stand"
        ]
    return []
