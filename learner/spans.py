"""OpenTelemetry spans of the learner: plans and updates, linked to the episodes that they use.

    hindcast.plan_batch -> hindcast.update …, hindcast.publish_weights
         links to            links to
    invoke_agent of each episode of the batch, of the mini-batch

A batch has many episodes, each with its own trace, so it begins a new trace and links to theirs. The trace of an episode
is in the headers of its final event; it is looked up only while spans are recorded.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

from opentelemetry import metrics
from opentelemetry.trace import Link, Span

from hindcast.core import telemetry_names as names
from hindcast.events.catalogue import BatchPlanned, EpisodeEnded, UpdateApplied, UpdateSkipped
from hindcast.events.catalogue.training import PlannedEpisode
from hindcast.events.log.port import EventLog
from hindcast.events.subjects import subject_of
from hindcast.events.tracing import SCOPE, Attribute, current_traceparent, fail, is_tracing, link_to, span
from hindcast.learner.batch_plan import Minibatch

_updates = metrics.get_meter(SCOPE).create_counter(
    names.UPDATES, "{update}", "Optimizer steps, applied or skipped"
)


class TrainingSpans:
    """Records the spans of one learner."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._batch = -1
        self._planned_in = ""
        self._played_in: dict[str, Link] = {}

    @asynccontextmanager
    async def planning(self, planned: BatchPlanned) -> AsyncIterator[None]:
        """Span of a batch's plan."""
        if not is_tracing():
            yield
            return
        await self._look_up(planned, position=None)
        attributes: dict[str, Attribute] = {
            names.RUN: self._log.run,
            names.BATCH: planned.batch,
            names.POLICY_VERSION: planned.version,
        }
        with span(names.PLAN_BATCH, attributes, parent="", links=self._links(planned.episodes)):
            self._planned_in = current_traceparent()
            yield

    @asynccontextmanager
    async def updating(
        self, planned: BatchPlanned, minibatch: Minibatch, *, index: int, position: int
    ) -> AsyncIterator[Span]:
        """Span of one mini-batch; `position` is the plan's."""
        await self._look_up(planned, position=position)
        attributes: dict[str, Attribute] = {
            names.RUN: self._log.run,
            names.BATCH: planned.batch,
            names.MINIBATCH: index,
        }
        links = self._links(planned.episodes[minibatch.first_episode : minibatch.end_episode])
        with span(names.UPDATE, attributes, parent=self._planned_in, links=links) as update_span:
            yield update_span

    def publishing(self, version: int) -> AbstractContextManager[Span]:
        """Span of publishing a batch's weights."""
        attributes: dict[str, Attribute] = {names.RUN: self._log.run, names.POLICY_VERSION: version}
        return span(names.PUBLISH_WEIGHTS, attributes, parent=self._planned_in)

    async def _look_up(self, planned: BatchPlanned, *, position: int | None) -> None:
        """Look up the traces of the batch's plan, unless it is made now, and of its episodes."""
        if self._batch == planned.batch or not is_tracing():
            return
        self._batch, self._planned_in, self._played_in = planned.batch, "", {}
        if position is not None:
            events = await self._log.read(after=position - 1, limit=1)
            self._planned_in = events[0].traceparent if events else ""
        for episode in _once(planned.episodes):
            event = await self._log.last_under(subject_of(self._log.run, EpisodeEnded, key=episode))
            link = link_to(event.traceparent) if event is not None else None
            if link is not None:
                self._played_in[episode] = link

    def _links(self, parts: Sequence[PlannedEpisode]) -> list[Link]:
        return [self._played_in[episode] for episode in _once(parts) if episode in self._played_in]


def _once(episodes: Sequence[PlannedEpisode]) -> list[str]:
    """Each episode once, whatever the number of epochs."""
    return list(dict.fromkeys(episode.episode for episode in episodes))


def updated(update_span: Span, fact: UpdateApplied | UpdateSkipped) -> None:
    """Record the outcome of a mini-batch."""
    outcome = "applied" if isinstance(fact, UpdateApplied) else "skipped"
    _updates.add(1, {names.OUTCOME: outcome})
    if not update_span.is_recording():
        return
    update_span.set_attribute(names.UPDATE_NUMBER, fact.update)
    update_span.set_attribute(names.OUTCOME, outcome)
    if isinstance(fact, UpdateSkipped):
        fail(update_span, outcome)
