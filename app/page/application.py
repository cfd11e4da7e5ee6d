"""The page as a web application: its routes, their `.json` versions, and live updates.

/                              all runs, and the chosen ones in one chart; /_runs.json
/_live                         server-sent events of all runs
/RUN/                          overview, and /RUN/episodes, /RUN/episodes/ID …
/RUN/episodes.json             the same values for programs; `as_of` is a place in the log, as everywhere
/RUN/live                      server-sent events: one whenever the read model has new events
/RUN/control                   a form that pauses, resumes or drains; /RUN/episodes/ID/dispute: one that disputes
/RUN/page-index                a form that indexes the texts of the run's pages, or deletes that index
/RUN/steps/POSITION            one step in full, for a page to show where it is opened; `before`: position of the step before it
/RUN/episodes/ID/end           the page that an episode ended on, likewise
/RUN/episodes/ID/pictures/SHA256   a screenshot
/RUN/episodes/ID/file/FORMAT   the episode to take along: html, atif, json
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from mimetypes import guess_type
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from hindcast.actors.web_server import serve_app
from hindcast.app.exports.export import EpisodeDownload, export_episode
from hindcast.app.page.charts import run_colors
from hindcast.app.page.forms import FormHandler
from hindcast.app.page.guard import Guard
from hindcast.app.page.index_builds import IDLE, IndexBuild
from hindcast.app.page.rendering import STATIC, environment
from hindcast.app.page.runs import (
    LIVE_POLL_S,
    LivePositions,
    OpenRun,
    OpenRuns,
    PageQuery,
    mark,
    parse_number,
    parse_span,
)
from hindcast.app.page.step_detail import episode_end, screenshot, step_detail
from hindcast.app.page.views.compare import compare
from hindcast.app.page.views.episode import episode
from hindcast.app.page.views.home import RunRows, home
from hindcast.app.page.views.log import log
from hindcast.app.page.views.overlay import MEASURES
from hindcast.app.page.views.overview import METRICS, overview
from hindcast.app.page.views.pair import pair
from hindcast.app.page.views.sql import sql
from hindcast.app.page.views.tables import (
    alerts,
    consumers,
    curriculum,
    episode_table,
    lineage_of,
    policies,
    settings,
)
from hindcast.app.page.views.timeline import timeline
from hindcast.app.page.views.why import why
from hindcast.app.runs.runs import NoSuchRun
from hindcast.core.errors import BlobMissing, HindcastError, NoSuchPlace
from hindcast.storage.readmodel.database import ReadModelUnavailable
from hindcast.storage.readmodel.query_parts import NotInReadModel

NEW_OBJECTS = 300_000
"""New objects after which the page's process looks for garbage: more than most answers make."""
KEEP_ALIVE_S = 15.0
"""Longest silence of a stream; some browsers and proxies close a stream that is silent for longer."""


KEPT = {"cache-control": "private, max-age=31536000, immutable"}
"""For a file whose address names its content: it never becomes another one."""


class PageView(NamedTuple):
    """A page of a run."""

    path: str
    """Path below the run."""
    name: str
    """Name of its template."""
    answer: Callable[[PageQuery], Any]
    """May raise HindcastError."""
    title: str
    """Title in the navigation; empty: the page is linked from elsewhere."""
    of_now: bool = False
    """Whether it shows the present, whatever position is asked for."""


VIEWS = (
    PageView("", "overview", overview, "Overview"),
    PageView("episodes", "episodes", episode_table, "Episodes"),
    PageView("episodes/{episode}", "episode", episode, ""),
    PageView("episodes/{episode}/pair", "pair", pair, ""),
    PageView("timeline", "timeline", timeline, "Timeline"),
    PageView("curriculum", "curriculum", curriculum, "Curriculum"),
    PageView("policies", "policies", policies, "Policies"),
    PageView("lineage/{kind}/{name:path}", "lineage", lineage_of, ""),
    PageView("why", "why", why, "Why", of_now=True),
    PageView("compare", "compare", compare, "Compare", of_now=True),
    PageView("log", "log", log, "Log"),
    PageView("alerts", "alerts", alerts, "Alerts"),
    PageView("consumers", "consumers", consumers, "Consumers", of_now=True),
    PageView("settings", "settings", settings, "Settings"),
    PageView("sql", "sql", sql, "SQL", of_now=True),
)


def page_frame(
    view: PageView,
    *,
    run: str,
    runs: Sequence[str],
    views: Sequence[PageView],
    path: str,
    query: QueryParams | Mapping[str, str],
    position: int,
    reached: int,
    as_of: int | None,
    going_on: bool,
    indexing: IndexBuild = IDLE,
) -> dict[str, Any]:
    """The values that every page shows around its answer: the template variable `page`.

    `as_of`: the position that was asked for; None: the page follows the run. `reached`: position of the read model.
    """
    return {
        "run": run,
        "runs": runs,
        "has_pair": lambda _one, _other: True,
        "views": views,
        "view": view,
        "path": path,
        "query": _joined(query),
        "query_text": urlencode(query.multi_items() if isinstance(query, QueryParams) else query),
        "color": run_colors(runs, [run]).get(run, 0),
        "position": position,
        "reached": reached,
        "as_of": as_of,
        "going_on": going_on,
        "mark": mark(reached, going_on=going_on, indexing=indexing),
        "base": f"/{run}",
        "frozen": False,
    }


def _joined(query: QueryParams | Mapping[str, str]) -> dict[str, str]:
    """Query parameters by name. The values of one that a form repeats are joined by commas, as a view reads them, too."""
    if not isinstance(query, QueryParams):
        return dict(query)
    return {name: ",".join(query.getlist(name)) for name in query}


class Pages:
    """Request handlers."""

    def __init__(self, runs: OpenRuns) -> None:
        self._runs = runs
        self._templates = environment()
        self._saying = FormHandler(runs)
        self._looks = LivePositions(runs.indexing)
        self._rows = RunRows(runs)

    def routes(self) -> list[Route]:
        """All routes."""
        routes = [
            Route("/_static/{path:path}", self.static),  # no run's name begins so
            Route("/", self.home),
            Route("/_runs.json", self.home),
            Route("/_live", self.live_home),
            Route("/{run}/live", self.live),
            Route("/{run}/episodes/{episode}/pictures/{sha256}", self.picture),
            Route("/{run}/episodes/{episode}/file/{format}", self.file),
            Route("/{run}/episodes/{episode}/end", self.end),
            Route("/{run}/steps/{position:int}", self.step),
            Route("/{run}/steps/{position:int}.json", self.step),
        ]
        # the twins first: a name may have a dot of its own
        for view in VIEWS:
            twin = f"/{{run}}/{view.path or 'overview'}.json"
            routes.append(Route(twin, self._twin(view)))
        routes += [Route(f"/{{run}}/{view.path}", self._page(view)) for view in VIEWS]
        return [*routes, *self._saying.routes()]

    async def home(self, request: Request) -> Response:
        """All runs, as a page or as values."""
        query, shown = request.query_params, await self._mark_of_all()
        spans = [parse_span(query.get(name, ""), name=name) for name in ("versions", "updates")]
        found = await asyncio.to_thread(
            home,
            self._runs,
            self._rows,
            chosen=query.getlist("run") if query else None,
            measure=query.get("measure", ""),
            over=query.get("over", ""),
            span=spans[query.get("measure") in METRICS],
        )
        if request.scope["path"].endswith(".json"):
            return _json(found)
        text = await asyncio.to_thread(
            self._templates.get_template("home.html").render,
            answer=found,
            measures=MEASURES,
            metrics=METRICS,
            query=str(query),
            mark=shown,
        )
        return HTMLResponse(text)

    async def live(self, request: Request) -> Response:
        """Send a line whenever the run's read model has new events, or its system has started or stopped."""
        run = self._runs.open(request.path_params["run"])
        return self._lines(request, lambda: self._looks.shown(run))

    async def live_home(self, request: Request) -> Response:
        """Send a line whenever any run has."""

        return self._lines(request, self._mark_of_all)

    async def _mark_of_all(self) -> str:
        """Identifies the content of the first page."""
        marks: list[str] = []
        for name in self._runs.names():
            with suppress(HindcastError):
                run = self._runs.open(name)
                going_on = run.handle.is_running()
                marks.append(f"{name} {await self._looks.shown(run) if going_on else 'at rest'}")
        return ", ".join(marks)

    def _lines(self, request: Request, mark_now: Callable[[], Awaitable[str]]) -> Response:
        async def lines() -> AsyncIterator[str]:
            last, quiet_s = "", 0.0
            while not await request.is_disconnected():
                shown = await mark_now()
                if shown != last:
                    yield f"data: {shown}\n\n"
                    last, quiet_s = shown, 0.0
                elif quiet_s >= KEEP_ALIVE_S:
                    yield ": still here\n\n"
                    quiet_s = 0.0
                await asyncio.sleep(LIVE_POLL_S)
                quiet_s += LIVE_POLL_S

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def static(self, request: Request) -> Response:
        """Serve a style sheet or script, for good if its address has its version."""
        path = request.path_params["path"]
        if path not in STATIC:
            raise HTTPException(404, f"there is no file {path[:60]!r}")
        content, version = STATIC[path]
        headers = KEPT if request.query_params.get("v") == version else None
        return Response(content, media_type=guess_type(path)[0], headers=headers)

    async def picture(self, request: Request) -> Response:
        """Serve a screenshot of an episode of the run; no other blob."""
        found = self._runs.open(request.path_params["run"])
        image = await asyncio.to_thread(
            _screenshot, found, request.path_params["episode"], request.path_params["sha256"]
        )
        return Response(image, media_type="image/jpeg", headers=KEPT)

    async def file(self, request: Request) -> Response:
        """Serve an episode as a download."""
        found = await asyncio.to_thread(self._file, request)
        headers = {"content-disposition": f'attachment; filename="{found.name}"'}
        return Response(found.content, media_type=found.media_type, headers=headers)

    def _file(self, request: Request) -> EpisodeDownload:
        parts = request.path_params
        with self._runs.asking(parts["run"], request.query_params.get("as_of")) as (run, connection, place):
            return export_episode(
                run.handle,
                connection,
                parts["episode"],
                format_name=parts["format"],
                position=place.position,
            )

    async def step(self, request: Request) -> Response:
        """Serve one step in full, as a part of a page or as values."""
        run = self._runs.open(request.path_params["run"])
        found = await step_detail(
            run.handle,
            request.path_params["position"],
            before=parse_number(request.query_params.get("before", ""), name="before"),
        )
        if request.scope["path"].endswith(".json"):
            return _json(found)
        text = self._templates.get_template("step.html").render(step=found)
        return HTMLResponse(text)

    async def end(self, request: Request) -> Response:
        """Serve the page that an episode ended on, as a part of a page."""
        run = self._runs.open(request.path_params["run"])
        last_step = parse_number(request.query_params.get("before", ""), name="before")
        found = await episode_end(run.handle, request.path_params["episode"], last_step=last_step)
        return HTMLResponse(self._templates.get_template("end.html").render(end=found))

    def _page(self, view: PageView) -> Callable[[Request], Any]:
        async def handler(request: Request) -> Response:
            return HTMLResponse(await asyncio.to_thread(written, request))

        def written(request: Request) -> str:
            answer, chrome = self._ask(view, request)
            return self._templates.get_template(f"{view.name}.html").render(answer=answer, page=chrome)

        return handler

    def _twin(self, view: PageView) -> Callable[[Request], Any]:
        async def handler(request: Request) -> Response:
            return await asyncio.to_thread(written, request)

        def written(request: Request) -> Response:
            answer, chrome = self._ask(view, request)
            return _json(
                {"run": chrome["run"], "position": chrome["position"], **msgspec.to_builtins(answer)}
            )

        return handler

    def _ask(self, view: PageView, request: Request) -> tuple[Any, dict[str, Any]]:
        """The answer, and the values that every page shows around it. Raises HindcastError."""
        name = request.path_params["run"]
        with self._runs.asking(name, request.query_params.get("as_of")) as (open_run, connection, place):
            # before the answer: what ends while the page is made must lead to a new page
            going_on, indexing = open_run.handle.is_running(), self._runs.indexing.state(name)
            ask = PageQuery(
                runs=self._runs,
                run=open_run.handle,
                connection=connection,
                position=place.position,
                parts=request.path_params,
                query=request.query_params,
            )
            answer = view.answer(ask)
        chrome = page_frame(
            view,
            run=name,
            runs=self._runs.names(),
            views=VIEWS,
            path=request.scope["path"],  # of the URL it would end at a question mark in a name
            query=request.query_params,
            position=place.position,
            reached=place.reached,
            as_of=place.position if place.chosen else None,
            going_on=going_on,
            indexing=indexing,
        )
        return answer, chrome | {"form": self._saying.word}

    async def worded(self, request: Request, error: Exception) -> Response:
        """Answer an error with a readable page and a status for programs."""
        missing = isinstance(error, NotInReadModel | NoSuchRun | NoSuchPlace | BlobMissing)
        status = 404 if missing else 503 if isinstance(error, ReadModelUnavailable) else 400
        message = str(error)
        if isinstance(error, HTTPException):
            status, message = error.status_code, error.detail
        if request.scope["path"].endswith(".json"):
            return _json({"error": type(error).__name__, "message": message}, status=status)
        title = {404: "Not there", 503: "Not there yet"}.get(status, "Not answered")
        run = request.path_params.get("run", "")
        known = run if run in self._runs.names() else ""
        # a run that has just begun has its read model in a moment
        text = self._templates.get_template("trouble.html").render(
            message=message, title=title, passing=status == 503, run=known
        )
        return HTMLResponse(text, status_code=status)


def create_app(runs: OpenRuns, *, host: str, token: str) -> Starlette:
    """The whole page as an ASGI application. `token`: see `Guard`."""
    pages = Pages(runs)
    return Starlette(
        routes=pages.routes(),
        middleware=[Middleware(Guard, host=host, token=token)],
        exception_handlers={HindcastError: pages.worded, HTTPException: pages.worded},
    )


def _screenshot(run: OpenRun, episode: str, sha256: str) -> bytes:
    with run.model.reading() as connection:
        return screenshot(run.handle, connection, episode, sha256)


def _json(value: Any, *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


async def serve_page(
    home: Path, *, host: str, port: int, token: str, ready: Callable[[str], None] | None = None
) -> None:
    """Serve until cancellation, to visitors who have shown the token. `ready` gets the base address; port 0 takes a free one.

    Raises:
        EnvironmentFailed: the port is taken.

    """
    spare_what_is_loaded()
    runs = OpenRuns(home)
    try:
        app = create_app(runs, host=host, token=token)
        await serve_app(app, server_name="the page", host=host, port=port, ready=ready)
    finally:
        runs.close()


def spare_what_is_loaded() -> None:
    """Exclude all loaded objects from garbage collection, because they live as long as the process, and collect rarely.

    A large answer creates thousands of rows and triggers collections: traversing all modules each time took 50 ms of the 190
    of an overview of a million events, and traversing the rows themselves 40 ms of the 380 of a comparison.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
