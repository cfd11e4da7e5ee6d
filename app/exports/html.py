"""`hindcast export --format html`: the run's page as a folder of files (`page.frozen`); an episode's download is one file.

The page's own templates write both (`app.page`), and everything is escaped. A download has the images inside. Its content
security policy allows only its own style sheet and images and no script, so that nothing in the file can run.
"""

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from hindcast.app.exports.exporter import EpisodeFile, Exporter, ExportSources, Writer
from hindcast.app.page.frozen import FrozenPage
from hindcast.app.page.rendering import FOLDER, environment
from hindcast.app.page.runs import OpenRuns
from hindcast.app.page.step_detail import EpisodeEnd, StepDetail, end_in_full, steps_in_full
from hindcast.app.page.views.episode import EpisodePage, with_frames
from hindcast.app.runs.runs import RunHandle
from hindcast.core.plugins import NoOptions
from hindcast.events.envelope import BlobRef
from hindcast.events.log.episode_assembler import AssembledEpisode
from hindcast.storage.readmodel.episode_queries import matching_episodes, show_episode

LAYOUT = "file.html"


def page_of(played: AssembledEpisode, sources: ExportSources) -> bytes:
    """Render an episode as a complete HTML file. Raises ModelFolderMissing, HindcastError."""
    origin = sources.origin
    pieces, end = _in_full(played, sources)
    detail = show_episode(sources.connection, played.name, as_of=origin.position)
    answer = with_frames(detail, sources.source)
    page = {
        "run": origin.run,
        "position": origin.position,
        "as_of": None,
        "base": None,
        "pictures": _pictures(answer, sources),
        "frozen": True,
        "has_pair": lambda _one, _other: False,
        "pieces": pieces,
        "end": end,
    }
    template, frame = _template()
    text: str = template.render(answer=answer, page=page, **frame)
    return text.encode()


def _in_full(played: AssembledEpisode, sources: ExportSources) -> tuple[dict[int, StepDetail], EpisodeEnd]:
    """The episode's steps by position, and the page that it ended on. Raises ModelFolderMissing."""
    facts = {step.position: step.fact for step in played.steps}
    end = end_in_full(sources.source, played.ended, last_step=next(reversed(facts.values()), None))
    return steps_in_full(sources.source, facts), end


class FrozenPageWriter(Writer):
    """Writes the run's page: each episode when it ends, the rest from the read model at the end."""

    def __init__(self, folder: Path, sources: ExportSources, _: NoOptions) -> None:
        self._sources = sources
        self._runs = OpenRuns(sources.source.home) if isinstance(sources.source, RunHandle) else None
        ended = matching_episodes(
            sources.connection,
            msgspec.structs.replace(sources.origin.filter, state="ended"),
            as_of=sources.origin.position,
        )
        self._page = FrozenPage(
            folder,
            sources.source,
            sources.connection,
            position=sources.origin.position,
            episodes={row.episode: row.outcome for row in ended if row.episode in sources.chosen},
            runs=self._runs,
        )
        self._episodes = 0

    def episode(self, played: AssembledEpisode) -> None:
        """Write an episode's page."""
        self._page.write_episode(played.name, *_in_full(played, self._sources))
        self._episodes += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Write the pages of the run; returns the numbers of pages."""
        try:
            pages = self._page.write_views()
        finally:
            if self._runs is not None:
                self._runs.close()
        return {"episodes": self._episodes, "other pages": pages}


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
    writes="the run's page, to be opened without a server",
    writer=FrozenPageWriter,
    episode_file=EpisodeFile(suffix="html", media_type="text/html; charset=utf-8", content=page_of),
)
