"""Checks the settings of prompts: renderer, framing and screenshots."""

from hindcast.core.errors import PluginError
from hindcast.core.models.engine import find_engine
from hindcast.core.prompts.rendering import RENDERERS, find_renderer
from hindcast.core.rl.algorithm import traits_of
from hindcast.core.settings.schema import Settings
from hindcast.core.text.nearest import advice


def prompt_conflicts(settings: Settings) -> list[str]:
    """Contradictions between renderer, framing and screenshots in prompts."""
    renderer = settings.actors.renderer
    if ":" not in renderer and renderer not in list(RENDERERS):
        return [f"actors.renderer = {renderer!r} is not a renderer; {advice(renderer, RENDERERS)}"]
    try:
        found = find_renderer(renderer)
    except PluginError as error:
        return [f"actors.renderer: {error}"]
    framing = settings.actors.framing
    if framing.startswith("webrl/") and not found.keeps_role_marks_out:
        return [
            f"actors.framing = {framing!r} needs actors.renderer = 'webrl/3' or 'webrl/2', found {renderer!r}: its role marks may be "
            "plain text to a tokenizer, and only these renderers keep role marks out of the pages"
        ]
    return _picture_conflicts(settings)


def _picture_conflicts(settings: Settings) -> list[str]:
    """Contradictions with a policy that is shown screenshots."""
    if settings.actors.screenshot_observation == "off":
        return []
    learner = settings.learner
    wrong = {
        f"policy.engine = {settings.policy.engine!r}: it does not read images": not find_engine(
            settings.policy.engine
        ).traits.reads_pictures,
        f"actors.framing = {settings.actors.framing!r}: this framing has no images": settings.actors.framing
        != "chat/1",
        f"storage.keep_page_episodes = {settings.storage.keep_page_episodes}: training and verification "
        "read the screenshots again, so they must be kept": settings.storage.keep_page_episodes > 0,
        f"learner.processes = {learner.processes}: only a single learner process can train on images": learner.processes
        > 1,
        f"learner.algorithm = {learner.algorithm!r}: its critic reads only text": traits_of(
            learner.algorithm
        ).learns_in_phases,
        f"relabeler.kind = {settings.relabeler.kind!r}: prompts with images cannot be relabeled": bool(
            settings.relabeler.kind
        ),
        f"learner.orm_every = {learner.orm_every}: the outcome reward model reads only text": learner.orm_every
        > 0,
    }
    return [
        f"actors.screenshot_observation = {settings.actors.screenshot_observation!r} contradicts {what}"
        for what, holds in wrong.items()
        if holds
    ]
