"""A run's page as a folder of files that a browser opens without a server (`hindcast export --format html`).

    index.html           the overview; also overview-family-….html
    episodes.html …      lists of episodes, also by one filter; curriculum, policies, timeline, alerts, settings
    why.html …           also for each family; compare.html …: with each other run of the home, as they are now
    lineage-….html       what an update, a policy version or an episode came from, and what came of it
    episodes/ID.html     an episode with its player; its steps are inside, where the live page fetches them
    pair-A~B.html        a failure and a success of one group side by side
    log.html …           the newest events
    consumers.html       who read the log at the moment of the export
    sql.html …           the tables and their columns, and the rows of each saved query
    pictures/SHA256.jpg  screenshots
    _static/             style sheet and scripts

The live page's own views and templates write it. Afterwards each address in a page becomes the name of its file, and the file
is written, too; what has no file is no link. Forms need a server and are left out. Text of sites and models cannot be mistaken
for an address: templates escape its quotation marks.
"""

import re
import shutil
from collections.abc import Collection, Mapping
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from sqlalchemy import Connection, func, select
from starlette.datastructures import ImmutableMultiDict

from hindcast.app.exports.output_folder import PLAIN, file_name
from hindcast.app.page.application import VIEWS, PageView, page_frame
from hindcast.app.page.rendering import FOLDER, environment
from hindcast.app.page.runs import OpenRuns, PageQuery
from hindcast.app.page.step_detail import EpisodeEnd, StepDetail, screenshot
from hindcast.app.page.views.log import PAGE as LOG_PAGE
from hindcast.app.page.views.timeline import TimelinePage
from hindcast.app.runs.sources import Source
from hindcast.core.errors import HindcastError
from hindcast.core.ids import digest_hex
from hindcast.storage.readmodel.episode_counts import FACETS
from hindcast.storage.readmodel.lineage.lineage import lineage
from hindcast.storage.readmodel.query_parts import NotInReadModel
from hindcast.storage.readmodel.sql import SAVED
from hindcast.storage.readmodel.tables import episodes

PARAMETERS: Mapping[str, Collection[str]] = {
    "overview": ("family",),
    "episodes": ("before", *FACETS, "policy"),
    "timeline": ("until",),
    "curriculum": ("phase",),
    "policies": ("before",),
    "why": ("of", "family", "since", "until"),
    "compare": ("with",),
    "log": ("to",),
    "alerts": (),
    "consumers": (),
    "settings": (),
    "sql": ("query",),
    "lineage": (),
    "pair": ("with",),
}
"""Views that are frozen, and parameters of their addresses that have a file for each value."""
MOST_FILTERS = 1
"""Filters that a list of episodes in a file may have at once: each combination would be a file."""
LINEAGES = ("update", "policy", "episode")
"""Kinds of things whose lineage is frozen. Of steps, batches and tasks there are too many."""
WINDOW_S = 600
"""Seconds of a timeline's file."""
LOGGED = 20 * LOG_PAGE
"""Newest events that the files of the log hold. A whole log is its archive (`hindcast archive`)."""
TITLES = {saved.sql: saved.title for saved in SAVED}
"""Titles of the queries whose rows have a file."""
OTHER_OUTCOME = {"failure": "success", "success": "failure"}
SECOND_NS = 1_000_000_000
_ADDRESS = re.compile(r' (href|src|data-chart)="([^"]*)"')
_FORM = re.compile(r"<form\b.*?</form>", re.DOTALL)


class Due(NamedTuple):
    """A file to write."""

    view: PageView
    parts: Mapping[str, str]
    query: dict[str, str]


class FrozenPage:
    """Writes the files. Episodes first, then `write_views`."""

    def __init__(
        self,
        folder: Path,
        source: Source,
        connection: Connection,
        *,
        position: int,
        episodes: Mapping[str, str | None],
        runs: OpenRuns | None,
    ) -> None:
        """`episodes`: those that are written, with their outcomes. `runs`: the run's home; None: the run is an archive."""
        self._folder = folder
        self._source = source
        self._connection = connection
        self._position = position
        self._episodes = episodes
        self._runs = runs
        self._templates = environment()
        self._base = f"/{source.name}"
        self._views = {view.name: view for view in VIEWS if view.name in PARAMETERS}
        if runs is None:  # an archive has no other run, no findings of a watcher and no consumers
            del self._views["compare"], self._views["alerts"], self._views["consumers"]
        self._due: dict[str, Due] = {}
        self._lineages: dict[str, Due] = {}
        """Lineages to write, after all other files. Those that only other lineages lead to have no file."""
        self._written: set[str] = set()
        self._untils: set[str] = set()
        """Ends of the timeline's stretches before the newest, in nanoseconds since 1970."""
        shutil.copytree(FOLDER / "static", folder / "_static")
        (folder / "episodes").mkdir()
        (folder / "pictures").mkdir()

    def write_episode(self, name: str, pieces: Mapping[int, StepDetail], end: EpisodeEnd) -> None:
        """Write an episode with its steps. Raises HindcastError."""
        view = next(view for view in VIEWS if view.name == "episode")
        path = f"{self._base}/episodes/{name}"
        text = self._text(view, path, {}, parts={"episode": name}, pieces=pieces, end=end)
        (self._folder / "episodes" / file_name(name, "html")).write_bytes(self._relinked(text, up="../"))

    def write_views(self) -> int:
        """Write the overview and everything that it leads to; returns the number of files. Raises HindcastError."""
        self._file_of(f"{self._base}/")
        while left := self._due or self._lineages:
            file, due = left.popitem()
            self._written.add(file)
            path = f"{self._base}/{due.view.path.replace(':path', '').format(**due.parts)}"
            query = due.query | ({"seconds": str(WINDOW_S)} if due.view.name == "timeline" else {})
            text = self._text(due.view, path, query, parts=due.parts)
            (self._folder / file).write_bytes(self._relinked(text, up="", more_lineages=not due.parts))
        return len(self._written)

    def _text(
        self,
        view: PageView,
        path: str,
        query: dict[str, str],
        *,
        parts: Mapping[str, str] = {},
        **more: Any,
    ) -> str:
        answer = view.answer(
            PageQuery(
                runs=self._runs,
                run=self._source,
                connection=self._connection,
                position=self._position,
                parts=parts,
                query=ImmutableMultiDict(query),
            )
        )
        if isinstance(answer, TimelinePage) and "until" not in query:
            self._untils = self._stretches(answer.until_ns)
        frame = page_frame(
            view,
            run=self._source.name,
            runs=[self._source.name],
            views=list(self._views.values()),
            path=path,
            query=query,
            position=self._position,
            reached=self._position,
            as_of=self._position,
            going_on=False,
        )
        page = frame | {"frozen": True, "has_pair": self._has_pair, "logged": LOGGED} | more
        text: str = self._templates.get_template(f"{view.name}.html").render(answer=answer, page=page)
        return text

    def _stretches(self, newest_ns: int) -> set[str]:
        began = self._connection.scalar(select(func.min(episodes.c.started_ns)))
        earliest = newest_ns if began is None else int(began)
        return {
            str(until) for until in range(newest_ns - WINDOW_S * SECOND_NS, earliest, -WINDOW_S * SECOND_NS)
        }

    def _relinked(self, text: str, *, up: str, more_lineages: bool = True) -> bytes:
        """A page's file, with addresses of files. `up`: from its folder to the whole one. `more_lineages`: write new ones."""

        def relinked(found: re.Match[str]) -> str:
            name, given = found[1], unescape(found[2])
            if name == "data-chart":
                return f' {name}="{escape(_unlinked(given))}"'
            if given.startswith("#"):
                return found[0]
            file = self._file_of(given, more_lineages=more_lineages)
            return "" if file is None else f' {name}="{escape(up + file)}"'

        return _ADDRESS.sub(relinked, _FORM.sub("", text)).encode()

    def _file_of(self, given: str, *, more_lineages: bool = True) -> str | None:
        """The file of an address, which is written now or later; None: it has none."""
        parts = urlsplit(given)
        path, query = unquote(parts.path), dict(parse_qsl(parts.query))
        if query.pop("as_of", str(self._position)) != str(self._position):
            return None
        if query.get("seconds") == str(WINDOW_S):
            del query["seconds"]
        if path.startswith("/_static/"):
            return path.removeprefix("/")
        below = path.removeprefix(f"{self._base}/")
        if below == path:
            return None
        fragment = f"#{parts.fragment}" if parts.fragment else ""
        match below.split("/"):
            case ["log"]:
                return self._log_file(query)
            case ["episodes", name, "pair"] if query.keys() == {"with"} and self._has_pair(
                name, query["with"]
            ):
                one, other = sorted((name, query["with"]))
                file = f"pair-{one}~{other}.html"
                if file not in self._written:
                    self._due[file] = Due(self._views["pair"], {"episode": one}, {"with": other})
                return file + fragment
            case ["episodes", name] if not query and name in self._episodes and PLAIN.fullmatch(name):
                return f"episodes/{name}.html{fragment}"
            case ["episodes", name, "pictures", sha256]:
                return self._picture(name, sha256)
            case ["lineage", kind, name] if not query and PLAIN.fullmatch(name):
                file = f"lineage-{kind}-{file_name(name, 'html')}"
                if more_lineages and file not in self._written and self._has_lineage(kind, name):
                    self._lineages[file] = Due(self._views["lineage"], {"kind": kind, "name": name}, {})
                return file if file in self._lineages or file in self._written else None
        view = next((view for view in self._views.values() if view.path == below), None)
        if view is None or not self._has_file(view, query):
            return None
        file = _name_of(view, query)
        if file not in self._written:
            self._due[file] = Due(view, {}, query)
        return file + fragment

    def _has_file(self, view: PageView, query: Mapping[str, str]) -> bool:
        known = query.keys() <= set(PARAMETERS[view.name])
        if view.name == "episodes" and len(query.keys() - {"before"}) > MOST_FILTERS:
            return False
        if view.name == "sql" and query.get("query", SAVED[0].sql) not in TITLES:
            return False
        return known and ("until" not in query or query["until"] in self._untils)

    def _has_pair(self, one: str, other: str) -> bool:
        """Whether two episodes have a file side by side: both are written, and one of them failed where the other succeeded."""
        known = self._episodes.get(one), self._episodes.get(other)
        return known[0] in OTHER_OUTCOME and known[1] == OTHER_OUTCOME[known[0]] and _are_plain(one, other)

    def _log_file(self, query: Mapping[str, str]) -> str | None:
        """The file with the newest events up to `to`, or with the event of that position; None: it is older than those written."""
        if query.keys() - {"from", "to"} or query.get("from") not in (None, query.get("to")):
            return None
        to = int(query.get("to", self._position))
        back = self._position - to
        if not 0 <= back < min(LOGGED, self._position):
            return None
        first = self._position - back // LOG_PAGE * LOG_PAGE
        named = {} if first == self._position else {"to": str(first)}
        file = _name_of(self._views["log"], named)
        if file not in self._written:
            self._due[file] = Due(self._views["log"], {}, named)
        return file if to == first and "from" not in query else f"{file}#at-{to}"

    def _has_lineage(self, kind: str, name: str) -> bool:
        """Whether a thing has a frozen lineage: pages may name things that this part of the log does not hold."""
        if kind not in LINEAGES:
            return False
        try:
            lineage(self._connection, kind, name, as_of=self._position, backward=False, forward=False)
        except NotInReadModel:
            return False
        return True

    def _picture(self, episode: str, sha256: str) -> str | None:
        """Write a screenshot; None if it is not there."""
        file = f"pictures/{sha256}.jpg"
        if not (self._folder / file).exists():
            try:
                image = screenshot(self._source, self._connection, episode, sha256)
            except HindcastError:  # the page says so in its place
                return None
            (self._folder / file).write_bytes(image)
        return file


def _name_of(view: PageView, query: Mapping[str, str]) -> str:
    name = view.name if query or view.path else "index"
    for parameter, value in sorted(query.items()):
        if value in TITLES:
            name += "" if value == SAVED[0].sql else f"-{TITLES[value].replace(' ', '-')}"
            continue
        word = re.sub(r"[^A-Za-z0-9_.-]+", "-", value)[:80]
        name += f"-{parameter}-{word}" + ("" if word == value else f"-{digest_hex(value.encode())[:8]}")
    return f"{name}.html"


def _are_plain(*names: str) -> bool:
    return all(PLAIN.fullmatch(name) for name in names)


def _unlinked(chart: str) -> str:
    """A chart's values without the addresses that its points lead to."""
    values = msgspec.json.decode(chart)
    for curve in values["curves"]:
        curve["link"] = ""
    return msgspec.json.encode(values).decode()
