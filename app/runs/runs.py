"""The runs of a home: their files, settings, read models and logs.

HINDCAST_HOME (default .hindcast)
  current.json               the run that the system works on
  runs/<run>/settings.toml   blobs/   readmodel.sqlite   fork.json (of a fork: its parent and the position)
  broker/  secrets/  broker.json
"""

import re
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hindcast.app.revision import code_revision
from hindcast.app.runs.archive_source import ArchiveSource
from hindcast.app.settings.checks.sites import (
    require_continuable,
    require_sound_shared_groups,
    require_webshop_data,
)
from hindcast.app.settings.checks.storage_places import require_places
from hindcast.app.settings.configuration import (
    Layer,
    Resolved,
    merge_recorded,
    merge_unchecked,
    read_file,
    to_toml,
)
from hindcast.app.settings.web_tasks import require_sound_groups
from hindcast.app.system.broker import ensure_broker
from hindcast.app.system.home import home_folder
from hindcast.app.system.launch import read_launch
from hindcast.app.system.processes import WORKING, list_processes, read_json, write_json
from hindcast.core.errors import ForeignLog, HindcastError, PluginError, SettingsError
from hindcast.core.settings.schema import Settings
from hindcast.core.structs import convert
from hindcast.core.text.nearest import advice
from hindcast.events.archive.continued_log import ContinuedLog
from hindcast.events.archive.manifest import is_archive
from hindcast.events.jetstream.broker_store import StreamNotLoaded, describe_stream_damage, stored_stream
from hindcast.events.jetstream.connection import Connection, connect
from hindcast.events.jetstream.stream_log import JetStreamLog
from hindcast.events.log.joined_log import JoinedStream, OwnLog, RunLog
from hindcast.events.log.port import EventLog
from hindcast.events.log.publisher import Publisher
from hindcast.learner.recipes import DEFAULT
from hindcast.storage.archive.archiver import archive_blobs
from hindcast.storage.blobs.remote import RemoteBlobStore, open_blobs
from hindcast.storage.blobs.store import BlobStore
from hindcast.storage.readmodel.sqlite_address import sqlite_address

if TYPE_CHECKING:
    from hindcast.storage.readmodel.database import ReadModel

SETTINGS_FILE = "settings.toml"
FORK_FILE = "fork.json"
IMPORTING = "importing.json"
"""File in a run's folder while its stream is filled from an archive or repaired; it names the command that does so."""
RUN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
"""Pattern of a run's name, which is part of subjects, folders and schema names."""


class NoSuchRun(HindcastError):
    """There is no run of this name, or no run at all."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A fork's parent and position."""

    parent: str
    at: int
    """Position of the last event of the parent that belongs to the fork."""
    archive: str = ""
    """Folder of the archive that holds the parent; empty: the parent is a run of this home."""
    without: str = ""
    """What a derived run leaves out; empty: it was not derived."""


class RunHandle:
    """One run of a home. Creating the handle opens no file."""

    def __init__(self, home: Path, name: str, resolved: Resolved, *, fork: Fork | None = None) -> None:
        self.home = home
        self.name = name
        self.resolved = resolved
        self.fork = fork

    @property
    def settings(self) -> Settings:
        """The settings in the run's settings file."""
        return self.resolved.settings

    @property
    def recipe(self) -> str:
        """The recipe under the settings."""
        return self.resolved.recipe

    @property
    def folder(self) -> Path:
        """Folder of the run's own files."""
        return run_folder(self.home, self.name)

    @property
    def database_url(self) -> str:
        """SQLAlchemy address of the read model."""
        return self.settings.storage.database or sqlite_address(self.folder / "readmodel.sqlite")

    @cached_property
    def blobs(self) -> BlobStore:
        """The run's blobs; read-only: those of its archive, and those of its parent that a fork's prefix names."""
        archived = () if self.archive is None else archive_blobs(self.archive).folders
        older = None if self.parent is None else self.parent.blobs
        parents = () if older is None else older.folders
        return open_blobs(
            self.settings.storage,
            run=self.name,
            folder=self.folder / "blobs",
            home=self.home,
            also=(*archived, *parents),
            ancestors=older.buckets if isinstance(older, RemoteBlobStore) else (),
        )

    @cached_property
    def parent(self) -> "RunHandle | ArchiveSource | None":
        """The run that this one is a fork of; None if it is no fork.

        Raises:
            NoSuchRun: it no longer exists.

        """
        if self.fork is None:
            return None
        if self.fork.archive:
            if not is_archive(Path(self.fork.archive)):
                raise NoSuchRun(
                    f"run {self.name} is a fork of {self.fork.parent}, read from the archive in {self.fork.archive}, which no longer "
                    f"exists. Restore it, or write its new place into {self.folder / FORK_FILE}"
                )
            return ArchiveSource(Path(self.fork.archive))
        if self.fork.parent not in list_runs(self.home):
            raise NoSuchRun(
                f"run {self.name} is a fork of {self.fork.parent}, whose log and blobs it reads, but {self.home} no longer has that "
                f"run. Restore its folder, or import its archive: hindcast import DIR"
            )
        return open_run(self.fork.parent, home=self.home)

    @property
    def code_rev(self) -> str:
        """Revision of the running code, as events record it."""
        return code_revision()

    def read_model(self) -> "ReadModel":
        """The run's read model. The caller closes it."""
        from hindcast.storage.readmodel.database import (
            ReadModel,  # SQLAlchemy, which most processes never need
        )

        return ReadModel(self.database_url, run=self.name)

    @asynccontextmanager
    async def connect_log(self, role: str = "reader") -> AsyncIterator[RunLog]:
        """Open the run's log with a role's permissions; `admin` creates it if necessary. A fork's log begins with its parent's.

        Starts the home's broker for the block if it is not running.

        Raises:
            BrokerUnreachable, BrokerDenied: the broker does not answer, or refuses the role.
            LogMissing, ForeignLog: the broker has no log of this run, or another one under its name.
            StreamNotLoaded: the broker's folder has the run's events, but the broker does not load them.

        """
        async with self.connect_stream(role) as stream:
            own = self._whole(stream)
            if self.parent is None or self.fork is None:
                yield own
                return
            async with self.parent.connect_log() as older:
                yield JoinedStream(older, own, at=self.fork.at)

    def publisher(self, log: EventLog, producer: str) -> Publisher:
        """The writer of a process, under its name `producer`, to the run's log."""
        return Publisher(log, producer=producer, code_rev=self.code_rev, settings=self.settings.log)

    @property
    def first(self) -> int:
        """Position of the run's first own event."""
        return 1 if self.fork is None else self.fork.at + 1

    @property
    def archive(self) -> Path | None:
        """Folder that the beginning of the log is moved to while the run is running; None: all of it stays in the broker."""
        chosen = self.settings.storage.archive
        return self.home / Path(chosen).expanduser() / self.name if chosen else None

    @property
    def wants_archiver(self) -> bool:
        """Whether the role `archiver` has work."""
        return bool(self.settings.storage.archive or self.settings.storage.keep_page_episodes)

    @property
    def idle_roles(self) -> list[str]:
        """Roles of the Procfile without work in this run."""
        wanted = {"archiver": self.wants_archiver, "relabeler": bool(self.settings.relabeler.kind)}
        return [role for role, wants in wanted.items() if not wants]

    def is_running(self, role: str = "bus") -> bool:
        """Whether a process of this role is alive and at work on this run, by the processes' state files."""
        launch = read_launch(self.home)
        return (
            launch is not None
            and launch.run == self.name
            and any(
                one.alive and one.state in WORKING and one.name.startswith(role)
                for one in list_processes(self.home / "processes")
            )
        )

    def _whole(self, stream: JetStreamLog) -> OwnLog:
        """All events that the run recorded, from archive and broker.

        Raises:
            ForeignLog: the broker lacks the beginning, and no archive is named.

        """
        if self.archive is not None:
            return ContinuedLog(self.archive, stream, first=self.first)
        if stream.began > self.first:
            raise ForeignLog(
                f"the log of run {self.name} begins at position {stream.began} in the broker: earlier events were moved to "
                f"an archive. Set storage.archive in {self.folder / SETTINGS_FILE} to the folder where it is."
            )
        return stream

    @asynccontextmanager
    async def connect_stream(self, role: str) -> AsyncIterator[JetStreamLog]:
        """Open what the broker holds of the run's own log; see `connect_log` for the whole log."""
        filling = unfinished(self.folder)
        if filling is not None:
            doing = f"filled from the archive in {filling.archive}" if filling.archive else "repaired"
            raise ForeignLog(
                f"the log of run {self.name} is being {doing}, or that was interrupted. Go on with: {filling.command}"
            )
        settings = self.settings.log
        async with self.connect(role) as connection:
            await self._require_loaded(connection)
            if role == "admin":
                yield await JetStreamLog.create_or_open(connection, self.name, settings, first=self.first)
            else:
                yield await JetStreamLog.open(connection, self.name, settings)

    @property
    def stored_stream(self) -> Path | None:
        """Folder of the run's stream, if the home's own broker has stored events of it; else None."""
        return None if self.settings.log.url else stored_stream(self.home, self.name)

    async def _require_loaded(self, connection: Connection) -> None:
        """Check that the broker loads the run's stream, so that no role takes it for missing and creates a new one.

        Raises:
            StreamNotLoaded: the message names the damaged file.

        """
        stored = self.stored_stream
        if stored is None:
            return
        why = await JetStreamLog(connection, self.name, self.settings.log).why_not_loaded()
        if why:
            raise StreamNotLoaded(
                f"the broker does not load the log of run {self.name} ({why}): {describe_stream_damage(stored, why)}. Its events "
                f"are in {stored / 'msgs'}. Run: hindcast repair {self.name}"
            )

    @asynccontextmanager
    async def connect(self, role: str) -> AsyncIterator[Connection]:
        """Connect to the run's broker, whatever it holds; starts the home's broker for the block if necessary."""
        settings = self.settings.log
        async with AsyncExitStack() as stack:
            url = settings.url or await stack.enter_async_context(
                ensure_broker(self.home, port=settings.port)
            )
            connection = await connect(url, role=role, home=self.home, timeout_s=settings.connect_timeout_s)
            stack.push_async_callback(connection.close)
            yield connection


def run_folder(home: Path, name: str) -> Path:
    """Folder of a run's files, whether or not it exists."""
    return home / "runs" / name


class UnfinishedImport(msgspec.Struct, frozen=True, kw_only=True):
    """A running or interrupted import or repair of a stream."""

    archive: str
    """Folder of the archive; empty: the run is repaired from the broker's own files."""
    command: str
    """Command that resumes it."""
    repair: bool = False
    """Whether it repairs an existing run; else it imports one."""
    displaced: int = 0
    """Events that a repair moved to `displaced_file`."""
    displaced_file: str | None = None
    """File with those events."""


def unfinished(folder: Path) -> UnfinishedImport | None:
    """The unfinished import or repair in a run's folder. An import is finished once the run has settings, written last."""
    note = read_json(folder / IMPORTING)
    filling = None if note is None else convert(note, UnfinishedImport)
    done = filling is not None and not filling.repair and (folder / SETTINGS_FILE).exists()
    return None if done else filling


def list_runs(home: Path) -> list[str]:
    """Names of the runs of a home, oldest first."""
    found = (home / "runs").glob(f"*/{SETTINGS_FILE}")
    dated = [(path.stat().st_mtime_ns, path.parent.name) for path in found]
    return [name for _, name in sorted(dated)]


def open_run(name: str | None = None, *, home: Path | None = None) -> RunHandle:
    """Open an existing run; None: the run started last, else the newest.

    Raises:
        NoSuchRun: lists the existing names.
        SettingsError: its settings file is invalid.

    """
    home = home or home_folder()
    names = list_runs(home)
    if not names:
        raise NoSuchRun(
            f"there is no run in {home} yet. Run: hindcast start    (HINDCAST_HOME names another folder)"
        )
    launch = read_launch(home)
    chosen = name or (launch.run if launch is not None and launch.run in names else names[-1])
    if chosen not in names:
        raise NoSuchRun(f"there is no run {chosen!r} in {home}; {advice(chosen, names)}")
    folder = run_folder(home, chosen)
    try:
        layer, recipe = read_file(folder / SETTINGS_FILE, recorded=True)
        forked = read_json(folder / FORK_FILE)
        fork = None if forked is None else convert(forked, Fork)
        try:
            resolved = merge_recorded([layer], recipe=recipe or DEFAULT)
        except PluginError:  # what plays, trains or verifies refuses to; all else can still be read
            resolved = merge_unchecked([layer], recipe=recipe or DEFAULT)
    except (SettingsError, msgspec.ValidationError) as error:
        raise SettingsError(
            f"run {chosen} cannot be opened: {error}\nIts log is unchanged. Correct the file in {folder}, or move that folder "
            "away; other runs of the home can be started by name."
        ) from error
    return RunHandle(home, chosen, resolved, fork=fork)


def create_run(resolved: Resolved, *, name: str | None = None, home: Path | None = None) -> RunHandle:
    """Create a run with these settings; name None: the next free name of the form `run-1`.

    Raises:
        SettingsError: the name is taken or invalid.

    """
    handle = plan_run(resolved, name=name, home=home)
    filling = unfinished(handle.folder)
    if filling is not None:
        raise SettingsError(
            f"a run {handle.name!r} is being imported into {handle.home}, or that was interrupted. Go on with: "
            f"{filling.command}    Or choose another name."
        )
    write_down(handle)
    return handle


def plan_run(
    resolved: Resolved,
    *,
    name: str | None = None,
    home: Path | None = None,
    fork: Fork | None = None,
    ancestors: Collection[str] = (),
) -> RunHandle:
    """Like `create_run`, but write nothing. `ancestors`: the runs that it is a fork of, wherever they are.

    Raises:
        SettingsError: the name is taken or invalid, groups would share a back end, or WebShop's files cannot be read.

    """
    require_sound_groups(resolved.settings)
    require_sound_shared_groups(resolved.settings)
    require_continuable(resolved.settings)
    require_webshop_data(resolved.settings)
    home = home or home_folder()
    require_places(resolved.settings, home)
    taken = set(list_runs(home))
    if name is None:
        used = taken | set(ancestors)
        number = 1 + max((int(t[4:]) for t in used if re.fullmatch(r"run-\d{1,9}", t)), default=0)
        name = f"run-{number}"
    if not RUN_NAME.fullmatch(name):
        raise SettingsError(
            f"{name!r} cannot be a run's name: small letters, digits, `-` and `_`, 48 at most, a letter or digit first"
        )
    if name in ancestors:
        raise SettingsError(
            f"a fork cannot be named {name!r}: events of a run of that name stand in its log. Choose another name with --name."
        )
    if name in taken:
        raise SettingsError(
            f"there is a run {name!r} in {home} already; it can be resumed, or choose another name"
        )
    return RunHandle(home, name, resolved, fork=fork)


def write_down(handle: RunHandle) -> None:
    """Make a planned run part of its home. Its settings are written last, because they mark an existing run."""
    folder = handle.folder
    folder.mkdir(parents=True, exist_ok=True)
    if handle.fork is not None:
        write_json(folder / FORK_FILE, msgspec.to_builtins(handle.fork))
    write_settings(folder, handle.resolved)


def write_settings(folder: Path, resolved: Resolved) -> None:
    """Write the settings file of a run's folder: to a temporary file, which is read back and then renamed.

    Raises:
        SettingsError: the file does not read back to the same settings; the old file is unchanged.

    """
    temporary = folder / f".{SETTINGS_FILE}"
    temporary.write_text(to_toml(resolved), encoding="utf-8")
    try:
        layer, recipe = read_file(temporary)
        back = merge_recorded([Layer(source=layer.source, values=layer.values)], recipe=recipe or DEFAULT)
        same = back.settings == resolved.settings and not layer.mistakes
    except SettingsError as error:
        temporary.unlink()
        raise SettingsError(f"the settings cannot be written to {folder / SETTINGS_FILE}: {error}") from error
    if not same:
        temporary.unlink()
        raise SettingsError(
            f"the settings cannot be written to {folder / SETTINGS_FILE}: they do not read back as the same settings. Nothing was changed."
        )
    temporary.replace(folder / SETTINGS_FILE)
