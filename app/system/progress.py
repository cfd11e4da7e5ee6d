"""Progress of a run: a pure fold of the log, the lines that `hindcast start` shows, and a snapshot of the fold.

The snapshot (`ProgressNote`) is in the run's folder, so that the next start reads less of the log. It is never the truth:
one of other code or of another log, or an unreadable one, is ignored, and the log is folded from its beginning.
"""

from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from hindcast.actors.environments.web.starts import Starts
from hindcast.app.evaluation.evaluation_lines import finished_line, started_line
from hindcast.app.system.processes import read_json, write_json
from hindcast.core.errors import ForeignLog
from hindcast.core.rl.combined_state import POLICY
from hindcast.core.rl.statistics import wilson
from hindcast.core.structs import convert
from hindcast.core.text.counts import count_of
from hindcast.core.text.printable import one_line
from hindcast.events.catalogue import (
    NEVER_TRAINED,
    ControlRequested,
    EpisodeAbandoned,
    EpisodeCancelled,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EvaluationFinished,
    EvaluationStarted,
    MismatchExceeded,
    RunResumed,
    RunStarted,
    UpdateApplied,
    UpdateSkipped,
    WaitExceeded,
    WeightsPublished,
)
from hindcast.events.catalogue.curriculum import ONLINE
from hindcast.events.envelope import Recorded
from hindcast.events.log.port import EventLog
from hindcast.events.log.reader import Bookmark, check_log
from hindcast.storage.snapshots import SnapshotKind

VERSIONS_KEPT = 16
"""Number of newest policy versions whose success is remembered."""
REASON_CHARACTERS = 300
"""Most characters of the reason that an undecided episode's line shows; the log has all of it."""


def _update_of(fact: UpdateApplied | UpdateSkipped) -> str:
    """Names an update: of the policy, or of an auxiliary model."""
    return f"update {fact.update}" if fact.model == POLICY else f"{fact.model} update {fact.update}"


class VersionTally(msgspec.Struct):
    """Verdicts on the training episodes of one policy version."""

    successes: int = 0
    judged: int = 0


class Progress(msgspec.Struct):
    """Progress of a run. `apply` takes every event in order."""

    position: int = 0
    digest: str = ""
    """sha256 of the event at `position`."""
    updates: int = 0
    episodes: int = 0
    """Online episodes that ended by themselves, not abandoned."""
    demonstrations: int = 0
    """Demonstrations that ended by themselves, not abandoned."""
    running: dict[str, str] = msgspec.field(default_factory=dict)
    """Requested episodes that have not ended: episode -> origin."""
    ended: dict[str, tuple[str, int, int]] = msgspec.field(default_factory=dict)
    """Ended training episodes and demonstrations without a verdict: episode -> (family, steps, lowest policy version)."""
    families: dict[str, str] = msgspec.field(default_factory=dict)
    by_version: dict[int, VersionTally] = msgspec.field(default_factory=dict)
    first_evaluation: EvaluationFinished | None = None
    lost: int = 0
    starts: Starts = msgspec.field(default_factory=Starts)

    def apply(self, recorded: Recorded) -> str | None:
        """Fold one event; returns a line worth showing, or None."""
        self.position, self.digest = recorded.position, recorded.digest.hex()
        unlike = self.starts.apply(recorded.fact)
        return self._line(recorded) or unlike

    def _line(self, recorded: Recorded) -> str | None:
        match recorded.fact:
            case RunStarted() as fact:
                return f"run {recorded.envelope.run} begins · recipe {fact.recipe} · base policy {fact.base_policy_name}"
            case RunResumed(after_position=after) if after > 1:
                return f"run {recorded.envelope.run} continues after position {after}"
            case EpisodeRequested() as fact:
                self.running[fact.episode] = fact.origin
                self.families[fact.episode] = fact.task.full_family
            case EpisodeEnded() as fact:
                origin = self.running.pop(fact.episode, "")
                self.episodes += origin == ONLINE
                self.demonstrations += origin == "demonstration"
                family = self.families.pop(fact.episode, "?")
                if origin not in NEVER_TRAINED:
                    self.ended[fact.episode] = (family, fact.steps, fact.policy_versions[0])
            case EvaluationStarted() as fact:
                return started_line(fact)
            case EvaluationFinished() as fact:
                self.first_evaluation = self.first_evaluation or fact
                return finished_line(fact, first=self.first_evaluation)
            case EpisodeAbandoned() as fact:
                self._lose(fact.episode)
                self.lost += 1
                return f"episode {fact.episode} abandoned: {fact.reason} {fact.detail}".rstrip()
            case EpisodeCancelled() as fact:
                self._lose(fact.episode)
            case EpisodeJudged() as fact:
                return self._judged(fact)
            case UpdateApplied() as fact:
                if fact.model == POLICY:
                    self.updates = fact.update
                loss = fact.metrics.get("loss", float("nan"))
                return f"{_update_of(fact)} · loss {loss:+.4f} · {fact.duration_ms / 1000:.1f} s"
            case UpdateSkipped() as fact:
                return f"{_update_of(fact)} skipped: {fact.reason}"
            case MismatchExceeded() as fact:
                return (
                    f"ALARM: sampler and learner disagree about policy {fact.version} · KL {fact.mismatch_kl:.2e} a token, at most "
                    f"{fact.mismatch_max:.2g} · learner.mismatch_alarm = {fact.limit:g} (docs/learner.md)"
                )
            case WeightsPublished(model="policy", version=version) if version > 0:
                return f"policy {version} published · {self.curve(version - 1)}"
            case WeightsPublished(model=model, version=version) if model != POLICY:
                return f"{model} {version} published"
            case WaitExceeded() as fact:
                return f"{recorded.envelope.producer} waited longer than {fact.setting} = {fact.limit_s} s for {fact.waited_for}"
            case ControlRequested(command="pause") as fact:
                return f"PAUSED by {fact.author}: {fact.reason}. No new episode begins until it is resumed"
            case ControlRequested(command="resume") as fact:
                return f"resumed: {fact.reason}"
            case _:
                return None
        return None

    def _lose(self, episode: str) -> None:
        self.running.pop(episode, None)
        self.families.pop(episode, None)

    def curve(self, version: int) -> str:
        """Success of one policy version with its 95 % interval and n."""
        tally = self.by_version.get(version, VersionTally())
        band = wilson(tally.successes, tally.judged)
        if tally.judged == 0:
            return f"policy {version}: no verdict yet"
        return (
            f"policy {version} succeeds {band.rate:.0%} [{band.low:.0%}, {band.high:.0%}] "
            f"(n={tally.judged}, training episodes as played)"
        )

    def _judged(self, fact: EpisodeJudged) -> str | None:
        family, steps, version = self.ended.pop(fact.episode, ("?", 0, 0))
        if family == "?":
            return None
        if fact.judgment.outcome != "undecided" and version >= 0:
            tally = self.by_version.setdefault(version, VersionTally())
            if len(self.by_version) > VERSIONS_KEPT:
                del self.by_version[min(self.by_version)]
            tally.judged += 1
            tally.successes += fact.judgment.outcome == "success"
        line = f"episode {fact.episode} {fact.judgment.outcome} · {family} · {count_of(steps, 'step')} · policy {version}"
        if fact.judgment.outcome != "undecided":
            return line
        return f"{line} · {one_line(fact.judgment.reason)[:REASON_CHARACTERS]}"


class Narrator:
    """Selects the lines that a start shows: the current state, then every later line.

    Lines from the time of start-up are held back until all earlier events are read, so that they come last.
    """

    def __init__(self, progress: Progress, *, quiet_until: int) -> None:
        """`quiet_until`: last position of the log when this start began to read it."""
        self._progress = progress
        self._quiet_until = quiet_until
        self._since_start: list[str] = []
        """Lines of the newest start recorded so far, and of the events after it."""

    def apply(self, recorded: Recorded) -> list[str]:
        """Fold one event; returns the lines to show."""
        line = self._progress.apply(recorded)
        if recorded.position > self._quiet_until:
            return [*self._shown(), *([line] if line else [])]
        if isinstance(recorded.fact, RunStarted | RunResumed):
            self._since_start = [line] if line else self._since_start
        elif line and self._since_start:
            self._since_start.append(line)
        return self._shown() if recorded.position == self._quiet_until else []

    def _shown(self) -> list[str]:
        lines, self._since_start = self._since_start, []
        return lines


FILE = "progress.json"
EVERY_EVENTS = 10_000
"""Events between two snapshots; the next start reads about as many."""

_KIND = SnapshotKind(
    "progress", Progress, rules=("hindcast.app.system.progress", "hindcast.actors.environments.web.starts")
)
logger = structlog.get_logger(__name__)


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    schema: str
    progress: Progress


class ProgressNote:
    """Snapshot of one run's progress."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the run's folder."""
        self._path = folder / FILE
        self._written_at = 0

    async def recall(self, log: EventLog) -> Progress:
        """The stored progress, or an empty one to be folded from the beginning."""
        content = read_json(self._path)
        if content is None:
            return Progress()
        try:
            note = convert(content, _Note, str_keys=True)
            if note.schema != _KIND.schema:
                return Progress()
            progress = note.progress
            bookmark = Bookmark(
                position=progress.position, digest=bytes.fromhex(progress.digest), first_digest=b""
            )
            await check_log(log, after=progress.position, bookmark=bookmark)
        except (ForeignLog, ValueError) as error:
            logger.warning("the note of the run's progress is ignored", reason=str(error))
            return Progress()
        self._written_at = progress.position
        return progress

    def keep(self, progress: Progress, *, at_least: int = EVERY_EVENTS) -> None:
        """Store the progress if at least so many events followed the last snapshot; on a full disk the old one remains."""
        if progress.position - self._written_at < at_least:
            return
        with suppress(OSError):
            note = _Note(schema=_KIND.schema, progress=progress)
            write_json(self._path, msgspec.to_builtins(note, str_keys=True))
            self._written_at = progress.position
