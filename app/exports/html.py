"""`hindcast export --format html`: one self-contained file for each episode with the content of its page.

The page's own templates write it (`app.page`): everything is escaped, pages are text, images are embedded. The content
security policy allows only its own style sheet and images and no script, so that nothing in the file can run.
"""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import Any

from hindcast.app.exports.exporter import EpisodeFile, Exporter, ExportSources
from hindcast.app.page.rendering import FOLDER, environment
from hindcast.app.page.step_detail import end_in_full, steps_in_full
from hindcast.app.page.views.episode import EpisodePage, with_frames
from hindcast.events.catalogue import EpisodeEnded
from hindcast.events.envelope import BlobRef
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.storage.readmodel.episode_queries import show_episode

LAYOUT = "file.html"


def page_of(played: AssembledEpisode, sources: ExportSources) -> bytes:
    """Render an episode as a complete HTML file. Raises ModelFolderMissing, HindcastError."""
    origin = sources.origin
    facts = {step.position: step.fact for step in played.steps}
    assert isinstance(played.end, EpisodeEnded), "only ended episodes are exported"
    end = end_in_full(sources.source, played.end, last_step=next(reversed(facts.values()), None))
    detail = show_episode(sources.connection, played.name, as_of=origin.position)
    answer = with_frames(detail, sources.source)
    page = {
        "run": origin.run,
        "position": origin.position,
        "as_of": None,
        "base": None,
        "frozen": True,
        "pictures": _pictures(answer, sources),
        "pieces": steps_in_full(sources.source, facts),
        "end": end,
    }
    template, frame = _template()
    text: str = template.render(answer=answer, page=page, **frame)
    return text.encode()


@cache
def _template() -> tuple[Any, dict[str, Any]]:
    """Load the template of an episode and the variables that all files share."""
    templates = environment()
    style = (FOLDER / "static" / "page.css").read_text()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    frame = {"layout": templates.get_template(LAYOUT), "style": style, "policy": policy}
    return templates.get_template("episode.html"), frame


def _pictures(answer: EpisodePage, sources: ExportSources) -> dict[str, str]:
    """Data URLs of the film strip's images, by digest."""
    sizes = {row.sha256: row.size_bytes or 0 for row in answer.detail.screenshots if row.sha256}
    found = {}
    for frame in answer.frames:
        if frame.sha256 is not None:
            content = sources.content(BlobRef(frame.sha256, sizes[frame.sha256])) or b""
            found[frame.sha256] = f"data:image/jpeg;base64,{b64encode(content).decode()}"
    return found


EXPORTER = Exporter(
    writes="a self-contained file for each episode that shows what its page shows",
    episode_file=EpisodeFile(suffix="html", media_type="text/html; charset=utf-8", content=page_of),
)
