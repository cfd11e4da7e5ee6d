"""`hindcast export --format html`: one self-contained file for each episode with the content of its page.

The page's own templates write it (`app.page`): everything is escaped, pages are text, images are embedded. The content
security policy allows only its own style sheet and images and no script, so that nothing in the file can run.
"""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from hindcast.app.exports.episodes import AssembledEpisode
from hindcast.app.exports.output_folder import file_name
from hindcast.app.exports.writer import Sources
from hindcast.app.page.rendering import FOLDER, environment
from hindcast.app.page.step_detail import step_in_full
from hindcast.app.page.views.episode import EpisodePage, with_frames
from hindcast.app.runs.sources import Source
from hindcast.events.envelope import BlobRef, Recorded
from hindcast.storage.readmodel.queries import show_episode

LAYOUT = "file.html"


class EpisodeFile:
    """Writes episodes as files."""

    def __init__(self, source: Source) -> None:
        self._source = source
        templates = environment()
        self._template = templates.get_template("episode.html")
        style = (FOLDER / "static" / "page.css").read_text()
        digest = b64encode(sha256(style.encode()).digest()).decode()
        self._frame: dict[str, Any] = {
            "layout": templates.get_template(LAYOUT),
            "style": style,
            "policy": (
                f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
            ),
        }

    def text(self, played: AssembledEpisode, sources: Sources) -> str:
        """The whole file. Raises ModelFolderMissing, HindcastError."""
        origin = sources.origin
        detail = show_episode(sources.connection, played.ended.episode, as_of=origin.position)
        told = with_frames(detail, self._source)
        page = {
            "run": origin.run,
            "position": origin.position,
            "as_of": None,
            "base": None,
            "pictures": _pictures(told, sources),
            "pieces": {
                step.position: step_in_full(self._source, step.position, step.fact) for step in played.steps
            },
        }
        return self._template.render(told=told, page=page, **self._frame)


def _pictures(told: EpisodePage, sources: Sources) -> dict[str, str]:
    """The film strip's images as data URLs."""
    sizes = {row.sha256: row.size_bytes or 0 for row in told.detail.screenshots if row.sha256}
    found = {}
    for frame in told.frames:
        if frame.sha256 is not None:
            content = sources.content(BlobRef(frame.sha256, sizes[frame.sha256])) or b""
            found[frame.sha256] = f"data:image/jpeg;base64,{b64encode(content).decode()}"
    return found


class HtmlWriter:
    """Writes episode files; see `app.exports.writer.Writer`."""

    def __init__(self, folder: Path, sources: Sources, source: Source) -> None:
        self._folder = folder
        self._sources = sources
        self._file = EpisodeFile(source)
        self._episodes = 0

    def fact(self, recorded: Recorded) -> None:
        """Ignore single events: a file is a whole episode."""

    def episode(self, played: AssembledEpisode) -> None:
        """Write a file."""
        text = self._file.text(played, self._sources)
        (self._folder / file_name(played.ended.episode, "html")).write_text(text, encoding="utf-8")
        self._episodes += 1

    def close(self, log_digest: str) -> Mapping[str, int]:
        """Nothing left to write."""
        return {"episodes": self._episodes}
