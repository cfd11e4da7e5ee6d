"""Alerts: what counts as an incident, that each is told once, and what a webhook gets."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from hindcast.app.alerts import terminal
from hindcast.app.alerts.alert import AlertContext, Incident, SystemView
from hindcast.app.alerts.built_in import LagOptions, LagQuery, StandstillOptions, StandstillQuery
from hindcast.app.alerts.incidents import AlertMessage, Incidents
from hindcast.app.alerts.report import alert_report
from hindcast.app.alerts.rules import AlertFold, AlertState, open_alerts
from hindcast.app.alerts.terminal import NAME, telling_alerts
from hindcast.app.alerts.watcher import TARGET, AlertSender, lags_of, watch_alerts
from hindcast.app.alerts.webhook import WebhookFailed, post, require_webhook
from hindcast.app.attach.attachment import AttachmentSession, detached, store_url
from hindcast.app.attach.consumers import ConsumerRow
from hindcast.app.attach.store import ConsumerStore
from hindcast.app.runs.runs import RunHandle
from hindcast.core.domain.evidence import Evidence, Judgment
from hindcast.core.domain.task import Task
from hindcast.core.errors import SettingsError
from hindcast.core.settings.schema import JudgeSettings, Settings
from hindcast.events.catalogue import (
    ControlRequested,
    EpisodeEnded,
    EpisodeJudged,
    EpisodeRequested,
    EpisodeStarted,
    QueueRepaired,
    UpdateApplied,
    WeightsPublished,
)
from hindcast.events.catalogue.training import SampleReport
from hindcast.events.catalogue.verdict import JudgeIdentity
from hindcast.events.envelope import BlobRef, Envelope, Fact, Recorded
from hindcast.events.registry import BY_CLASS
from stories.recorded_home import make_home, tell
from stories.synthetic_run import Told

LIMITS = {
    "success": {"stretch": 20},
    "lag": {"lag_s": 10.0, "still_s": 30.0},
    "still": {"still_s": 30.0},
}
USUAL = Settings()
TASK = Task(environment="store", family="buy", seed=1, instruction="", goal={}, max_steps=4)


def told(position: int, fact: Fact) -> Recorded:
    kind = BY_CLASS[type(fact)]
    envelope = Envelope(
        id=f"e{position}",
        type=kind.name,
        version=kind.version,
        run="tale",
        entity="x",
        ordinal=0,
        causation=None,
        correlation=None,
        producer="test.1",
        incarnation="test.1.a",
        producer_seq=position,
        prev_hash=b"",
        occurred_ns=position,
        policy_version=None,
        code_rev="test",
        payload=b"",  # type: ignore[arg-type]
    )
    return Recorded(position, envelope, fact, bytes(32))


def requested(episode: str, origin: str = "online") -> EpisodeRequested:
    return EpisodeRequested(
        episode=episode,
        task=TASK,
        group=f"g_{episode}",
        member=0,
        group_size=1,
        attempt=0,
        origin=origin,
        temperature=1.0,
        phase=0,
        min_version=0,
        lease_s=60.0,
    )


def judged(episode: str, *, success: bool, judge: str = "rules") -> EpisodeJudged:
    outcome = "success" if success else "failure"
    judgment = Judgment(outcome=outcome, reward=float(success), reason="")
    return EpisodeJudged(
        episode=episode,
        task_id=TASK.id,
        judge=JudgeIdentity(name=judge, version="1"),
        judgment=judgment,
    )


def updated(number: int, mismatch: float) -> UpdateApplied:
    return update_of("policy", number, {"mismatch_kl": mismatch})


def update_of(model: str, number: int, metrics: dict[str, float]) -> UpdateApplied:
    return UpdateApplied(
        update=number,
        model=model,
        batch=number,
        minibatch=0,
        before="a",
        after="b",
        inputs="c",
        metrics=metrics,
        samples=SampleReport(advantages=b"", weights=b"", ratios=b"", masks=b""),
        duration_ms=1.0,
        cpu_ms=1.0,
    )


def critic_phase(version: int, *gaps: float | None, base: float = 0.4) -> list[Fact]:
    """The critic's updates of one phase, and its publication. None: one of the two kinds of state is missing."""
    facts: list[Fact] = []
    for number, gap in enumerate(gaps):
        values = {"value_of_successes": 0.0 if gap is None else base + gap, "value_of_failures": base}
        facts.append(update_of("critic", number, values if gap is None else values | {"auc": 0.5}))
    weights = BlobRef(sha256="0" * 64, size=1)
    return [*facts, WeightsPublished(version=version, model="critic", weights=weights, update=len(gaps))]


def episodes(outcomes: str) -> list[Fact]:
    """`+` a success, `-` a failure."""
    facts: list[Fact] = []
    for number, outcome in enumerate(outcomes):
        facts += [requested(f"ep_{number}"), judged(f"ep_{number}", success=outcome == "+")]
    return facts


def watched(facts: list[Fact]) -> AlertState:
    fold = AlertFold(open_alerts(USUAL.telemetry.alerts, USUAL, LIMITS))
    state = fold.initial()
    for position, fact in enumerate(facts, 1):
        state = fold.apply(state, told(position, fact))
    return state


def test_success_that_surely_falls_is_one_incident_until_it_is_back() -> None:
    story = "+" * 45 + "-" * 20 + "+" * 20
    (one,) = watched(episodes(story)).incidents
    assert (one.kind, one.id) == ("success", f"success.{one.position}")
    assert 45 * 2 < one.position < 65 * 2
    assert "the best 20 before them came to 100%" in one.text
    assert one.over.startswith("success is back")
    assert [i.over for i in watched(episodes(story[:65])).incidents] == [""]


@pytest.mark.parametrize("story", ["+-" * 60, "-" * 60, "+" * 39, "+" * 45 + "+-" * 3])
def test_luck_and_few_episodes_are_no_incident(story: str) -> None:
    assert watched(episodes(story)).incidents == []


def test_only_the_training_judge_and_online_episodes_count() -> None:
    facts = episodes("+" * 45)
    for number in range(60):
        facts += [
            requested(f"ev_{number}", origin="evaluation"),
            judged(f"ev_{number}", success=False),
            requested(f"se_{number}"),
            judged(f"se_{number}", success=False, judge="second"),
        ]
    assert watched(facts).incidents == []


def test_mismatch_that_rises_is_one_incident_however_long_it_lasts() -> None:
    steady = [updated(number, 0.01) for number in range(30)]
    high = [updated(number, 0.2) for number in range(30, 120)]
    (one,) = watched([*steady, *high]).incidents
    assert one.kind == "mismatch"
    assert not one.over, "that it lasts makes it no usual one"
    (same,) = watched([*steady, *high, *(updated(n, 0.01) for n in range(120, 140))]).incidents
    assert (same.id, bool(same.over)) == (one.id, True)
    assert watched([*steady, *(updated(n, 0.012) for n in range(30, 60))]).incidents == []


def test_a_pause_is_known_and_lifted_by_whoever_it_names() -> None:
    pause = ControlRequested(command="pause", arguments={}, author="me", reason="lunch")
    lift = ControlRequested(command="resume", arguments={"of": "me"}, author="you", reason="")
    assert watched([pause]).pauses == {"me": "lunch"}
    assert watched([pause, lift]).pauses == {}


class StandstillClock:
    """Asks both queries about the running system."""

    def __init__(self) -> None:
        context = AlertContext(name="still", settings=USUAL, options=StandstillOptions(still_s=30.0))
        self._still = StandstillQuery(context)
        lag = AlertContext(name="lag", settings=USUAL, options=LagOptions(lag_s=10.0, still_s=30.0))
        self._lag = LagQuery(lag)

    def still(self, last: int, now_s: float, *, expected: bool, standing: list[Incident]) -> list[Incident]:
        return self._still(SystemView(last=last, lags=None, expected=expected, now_s=now_s), standing)

    def lag(self, lags: dict[str, Any], *, standing: list[Incident]) -> list[Incident]:
        return self._lag(SystemView(last=1, lags=lags, expected=True, now_s=0.0), standing)


def test_a_critic_that_stays_constant_is_an_incident_until_a_phase_in_which_it_is_not() -> None:
    """Only the last pass over the phase counts: here its last two updates."""
    state = watched(critic_phase(1, 0.3, 0.3, 0.01, 0.02))
    (one,) = state.incidents
    assert (one.kind, one.over, one.position) == ("constant_critic", "", 5)
    assert (
        "at version 1 its values of successes are +0.015 above those of failures, less than 0.02" in one.text
    )
    assert "learner.critic_learning_rate" in one.text
    again = [*critic_phase(1, 0.0), *critic_phase(2, -0.1), *critic_phase(3, 0.0, 0.0, 0.2, 0.1)]
    (one,) = watched(again).incidents
    assert (one.position, one.over_at) == (2, len(again))
    assert "at version 3 its values of successes are +0.150 above" in one.over


@pytest.mark.parametrize("gaps", [(None, None), (), (0.03,), (0.0, 0.0, 0.03, 0.02), (0.03, None)])
def test_a_critic_that_learns_or_had_nothing_to_compare_is_no_incident(
    gaps: tuple[float | None, ...],
) -> None:
    assert watched(critic_phase(1, *gaps)).incidents == []


def sampled(version: int, *, episodes: int, origin: str = "online") -> list[Fact]:
    """Episodes that a version sampled from begin to end."""
    facts: list[Fact] = []
    for number in range(episodes):
        name = f"{origin}_{version}_{number}"
        ended = EpisodeEnded(
            episode=name,
            task_id=TASK.id,
            actor="actor.1",
            reason="done",
            steps=1,
            evidence=Evidence(answer=None, final_url="", probes={}),
            final_observation=None,
            policy_versions=(version, version),
            duration_ms=1.0,
        )
        facts += [requested(name, origin), ended]
    return facts


def published(*versions: int, model: str = "policy") -> list[Fact]:
    weights = BlobRef(sha256="0" * 64, size=1)
    return [
        WeightsPublished(version=version, model=model, weights=weights, update=version)
        for version in versions
    ]


def test_a_sampler_that_stays_at_its_first_version_is_an_incident_until_a_later_one_samples() -> None:
    pinned = [*sampled(0, episodes=5), *published(1, 2, 3, 4, 5), *sampled(0, episodes=20)]
    (one,) = watched(pinned).incidents
    assert (one.kind, one.over) == ("pinned_sampler", "")
    assert "version 0 sampled the last 20 online episodes, although version 5 is published" in one.text
    (one,) = watched([*pinned, *sampled(5, episodes=1)]).incidents
    assert one.over == "version 5 samples episodes"


@pytest.mark.parametrize(
    "facts",
    [
        [fact for version in range(9) for fact in (*published(version), *sampled(version, episodes=20))],
        [*published(4), *sampled(0, episodes=40)],
        [*published(9, model="critic"), *sampled(0, episodes=40)],
        [*published(9), *sampled(0, episodes=40, origin="evaluation"), *sampled(9, episodes=1)],
        [*published(9), *sampled(0, episodes=19), *sampled(9, episodes=20)],
    ],
    ids=["fresh", "a little behind", "another model", "an evaluation", "a few late episodes"],
)
def test_a_sampler_that_follows_is_no_incident(facts: list[Fact]) -> None:
    assert watched(facts).incidents == []


def test_nothing_moving_is_an_incident_only_where_something_should() -> None:
    clock = StandstillClock()
    assert clock.still(7, 0.0, expected=True, standing=[]) == []
    assert clock.still(7, 29.0, expected=True, standing=[]) == []
    (one,) = clock.still(7, 31.0, expected=True, standing=[])
    assert one.id == "still.7"
    (over,) = clock.still(8, 32.0, expected=True, standing=[one])
    assert (over.id, bool(over.over)) == ("still.7", True)
    paused = StandstillClock()
    assert [paused.still(7, at, expected=False, standing=[]) for at in (0.0, 100.0)] == [[], []]
    assert paused.still(7, 110.0, expected=True, standing=[]) == [], "it counts from when it should go on"


def test_lag_is_an_incident_while_it_grows_beyond_the_bound_and_over_below_half_of_it() -> None:
    clock = StandstillClock()
    assert clock.lag({"learner": (12.0, 5)}, standing=[]) == [], "a first look shows no growth"
    (one,) = clock.lag({"learner": (14.0, 6)}, standing=[])
    assert one.id == "lag.learner.6"
    assert clock.lag({"learner": (8.0, 9)}, standing=[one]) == []
    (over,) = clock.lag({"learner": (4.0, 9)}, standing=[one])
    assert bool(over.over)


def test_a_learner_in_one_long_update_is_not_behind_until_it_hangs() -> None:
    """The first updates of a cloning run take longer than the bound, while demonstrations are recorded."""
    clock = StandstillClock()
    looks = [(0.0, 5), (6.0, 5), (12.0, 5), (29.0, 5)]
    assert [clock.lag({"learner": look}, standing=[]) for look in looks] == [[]] * len(looks)
    assert clock.lag({"learner": (1.0, 90)}, standing=[]) == []
    (one,) = clock.lag({"learner": (32.0, 90)}, standing=[])
    assert one.id == "lag.learner.90"


def test_a_consumer_that_reads_an_old_log_again_is_not_behind() -> None:
    clock = StandstillClock()
    looks = [(9000.0, 1), (9005.0, 1), (9010.0, 1), (400.0, 700), (0.0, 900)]
    assert [clock.lag({"learner": look}, standing=[]) for look in looks] == [[]] * len(looks)


def test_requests_wait_their_turn_where_actors_work() -> None:
    """The curriculum asks for many episodes at once, so that the age of the oldest request grows at every start."""
    row = ConsumerRow(name="episodes", kind="queue", state="running", position=5, lag_s=70.0)
    assert lags_of([row]) == {}
    assert lags_of([msgspec.structs.replace(row, state="stopped")]) == {"episodes": (70.0, 5)}


def test_lag_that_cannot_be_told_stands_and_that_of_a_detached_consumer_is_over() -> None:
    one = Incident(id="lag.sink.6", kind="lag", position=6, text="lag grows")
    clock = StandstillClock()
    assert clock.lag({"sink": (None, 0), "learner": (0.0, 9)}, standing=[one]) == []
    (over,) = clock.lag({"learner": (0.0, 9)}, standing=[one])
    assert (over.id, over.over) == ("lag.sink.6", "sink is not attached any more")


def test_only_who_is_at_work_is_behind() -> None:
    def row(name: str, kind: str, state: str, target: str = "") -> ConsumerRow:
        return ConsumerRow(name=name, kind=kind, state=state, target=target, position=5, lag_s=99.0)  # type: ignore[arg-type]

    rows = [
        row("learner", "ours", "running"),
        row("curriculum", "ours", "stopped"),
        row("verdicts", "queue", "stopped"),
        row("sink", "attached", "failed"),
        row("bridge", "attached", "stopped"),
        row("alerts", "attached", "running", TARGET),
        row("start-alerts", "attached", "running", TARGET),
    ]
    assert lags_of(rows) == dict.fromkeys(("learner", "verdicts", "sink"), (99.0, 5))


class Receiver:
    """A webhook on this machine."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[int] = []
        """Statuses to answer with first; 200 afterwards."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == 200:
                    receiver.got.append((self.headers["idempotency-key"], body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


ONE = Incident(id="success.40", kind="success", position=40, text="success falls")
OVER = Incident(id="success.40", kind="success", position=40, text="success falls", over="success is back")


def test_an_incident_is_told_once_and_again_only_until_the_webhook_takes_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    url = f"sqlite:///{tmp_path}/alerts.sqlite"
    store = ConsumerStore(url)
    incidents = Incidents(store, "tale")
    incidents.prepare()
    said: list[AlertMessage] = []
    receiver.answers = [503]
    teller = AlertSender(incidents, said.append, webhook=receiver.url)
    incidents.note([ONE])
    incidents.note([ONE])
    teller.tell(0.0)
    teller.tell(1.0)
    assert receiver.got == [], "it waits before it tries again"
    teller.tell(10.0)
    teller.tell(20.0)
    assert [key for key, _ in receiver.got] == ["tale/success.40/begun"]
    incidents.note([OVER])
    teller.tell(30.0)
    store.close()
    again = ConsumerStore(url)
    later = Incidents(again, "tale")
    later.prepare()
    later.note([ONE, OVER])
    AlertSender(later, said.append, webhook=receiver.url).tell(0.0)
    again.close()
    assert [key for key, _ in receiver.got] == ["tale/success.40/begun", "tale/success.40/over"]
    assert [body["text"] for _, body in receiver.got] == ["success falls", "success is back"]
    assert [(m.text, m.over) for m in said] == [("success falls", False), ("success is back", True)]


def test_the_terminal_neither_waits_for_the_webhook_nor_is_told_again_by_a_second_watcher(
    tmp_path: Path, receiver: Receiver
) -> None:
    other = Incident(id="lag.sink.41", kind="lag", position=41, text="lag grows")
    receiver.answers = [503, 503]
    said: list[str] = []
    for _ in range(2):  # started again while the webhook refuses
        store = ConsumerStore(f"sqlite:///{tmp_path}/alerts.sqlite")
        incidents = Incidents(store, "tale")
        incidents.prepare()
        incidents.note([ONE, other])
        teller = AlertSender(incidents, lambda message: said.append(message.line), webhook=receiver.url)
        teller.tell(0.0)
        store.close()
    assert said == [
        "ALERT · success falls (run tale, success.40)",
        "ALERT · lag grows (run tale, lag.sink.41)",
    ]
    assert receiver.answers == receiver.got == []


def test_what_is_no_address_is_refused_before_anything_is_watched() -> None:
    for url in ("9000/alerts", "file:///etc/passwd", "http://", "http://[::1/a", "http://here:port/a"):
        with pytest.raises(SettingsError, match="--webhook"):
            require_webhook(url)
    with pytest.raises(SettingsError, match="no user and password") as refused:
        require_webhook("http://me:secret@here/alerts")
    assert "secret@" not in str(refused.value)


def test_a_webhook_that_does_not_speak_http_has_failed_like_any_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(65_536)
                taken.sendall(b"220 mail here\r\n")

        thread = Thread(target=answer)
        thread.start()
        message = AlertMessage(run="tale", id="success.40", kind="success", position=40, over=False, text="")
        with pytest.raises(WebhookFailed, match="does not answer"):
            post(f"http://127.0.0.1:{server.getsockname()[1]}/", message)
        thread.join()


def lived(outcomes: str) -> list[Told]:
    """Episodes as roles record them, each role in one go: whatever is appended by turns is waited for each time."""
    facts: list[list[Told]] = [[], [], [], []]
    for number, outcome in enumerate(outcomes):
        name = f"ep_{number}"
        started = EpisodeStarted(episode=name, actor="actor.1", instruction="", renderer="lines/1")
        ended = EpisodeEnded(
            episode=name,
            task_id=TASK.id,
            actor="actor.1",
            reason="exit",
            steps=0,
            evidence=Evidence(answer="", final_url="", probes={}),
            final_observation=None,
            policy_versions=(0, 0),
            duration_ms=1.0,
        )
        for kind, one in zip(
            facts,
            (
                Told("curriculum.1", name, requested(name)),
                Told("actor.1", name, started),
                Told("actor.1", name, ended),
                Told("judge.1", f"{name}.rules", judged(name, success=outcome == "+")),
            ),
            strict=True,
        ):
            kind.append(one)
    return [one for kind in facts for one in kind]


async def test_a_run_is_watched_from_its_log_and_a_second_watcher_repeats_nothing(
    tmp_path: Path, receiver: Receiver
) -> None:
    handle = await make_home(tmp_path / "home", lived("+" * 45 + "-" * 20))
    said: list[AlertMessage] = []

    async def watch(until: int) -> int:
        session = AttachmentSession()

        def on_progress(position: int) -> None:
            if position >= until:
                session.stop.set()

        session.on_progress = on_progress
        return await watch_alerts(
            handle, session, said.append, options=LIMITS, begin="start", webhook=receiver.url, look_s=0.2
        )

    async with asyncio.timeout(120):
        last = 65 * 4
        assert await watch(last) == last
    assert [(m.kind, m.over) for m in said] == [("success", False)]
    assert [body["id"] for _, body in receiver.got] == [said[0].id]
    assert said[0].text.startswith("success falls")

    report = alert_report(handle)
    assert [(one.incident.kind, one.incident.id) for one in report.raised] == [("success", said[0].id)]
    assert "hindcast why" in report.raised[0].advice
    assert [(one.name, one.position) for one in report.watchers] == [("alerts", last)]
    began = report.raised[0].incident.position
    assert not alert_report(handle, as_of=began - 1).raised
    assert alert_report(handle, as_of=began).raised == report.raised
    rules = {rule.name: rule for rule in report.rules}
    assert list(rules) == list(handle.settings.telemetry.alerts)
    assert [(one.name, one.value, one.default) for one in rules["success"].options] == [
        ("stretch", 100, 100),
        ("fall", 0.1, 0.1),
    ]
    assert (rules["success"].of_events, rules["still"].of_events) == (True, False)
    assert all(rule.finds and rule.advice and not rule.trouble for rule in rules.values())

    again = AttachmentSession()
    again.on_start = lambda *_: again.stop.set()
    async with asyncio.timeout(120):
        reached = await watch_alerts(
            handle, again, said.append, options=LIMITS, webhook=receiver.url, look_s=0.2
        )
    assert reached == last
    assert len(said) == len(receiver.got) == 1


async def test_a_report_tells_what_was_raised_as_of_a_position_and_what_it_cannot_know(
    tmp_path: Path,
) -> None:
    handle = await make_home(tmp_path / "home", lived("+" * 45 + "-" * 20 + "+" * 25))
    session = AttachmentSession()
    session.on_progress = lambda position: session.stop.set() if position >= 90 * 4 else None
    async with asyncio.timeout(120):
        await watch_alerts(handle, session, lambda _: None, options=LIMITS, begin="start", look_s=0.2)
    store = ConsumerStore(store_url(handle, "alerts"))
    lag = Incident(id="lag.learner.5", kind="lag", position=5, text="lag grows", over="learner is 1 s behind")
    Incidents(store, handle.name).note([lag])
    store.close()
    now = alert_report(handle)
    assert now.raised == []
    assert {one.kind for one in now.over} == {"success", "lag"}
    (fall,) = (one for one in now.over if one.kind == "success")
    assert fall.position < fall.over_at <= 90 * 4
    then = alert_report(handle, as_of=fall.over_at - 1)
    assert [(one.incident.kind, one.end_unknown) for one in then.raised] == [
        ("success", False),
        ("lag", True),
    ]
    assert [one.incident.kind for one in alert_report(handle, as_of=fall.over_at).raised] == ["lag"]
    assert alert_report(handle, as_of=4).raised == []


class Heard:
    """What was said, waited for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._said = asyncio.Event()

    def say(self, line: str) -> None:
        self.lines.append(line)
        self._loop.call_soon_threadsafe(self._said.set)

    async def next(self) -> None:
        async with asyncio.timeout(120):
            await self._said.wait()
        self._said.clear()


async def live_on(handle: RunHandle, before: str, outcomes: str) -> None:
    """More episodes in a run that had those before."""
    known = {one.entity for one in lived(before)}
    await tell(handle, [one for one in lived(before + outcomes) if one.entity not in known])


async def begun(handle: RunHandle, heard: Heard) -> None:
    """A start that has come to watch the run, and no further."""
    with detached(handle, NAME):
        async with asyncio.timeout(120), telling_alerts(handle, heard.say):
            await heard.next()
    hindered = heard.lines.pop()
    assert hindered.startswith(
        f"alerts cannot be watched, trying again: a consumer called '{NAME}' is attached already"
    )


OLD = "+" * 200 + "-" * 20 + "+" * 100
"""A fall, and its end."""


async def test_a_start_says_alerts_of_what_is_new_in_the_words_of_the_command_once(tmp_path: Path) -> None:
    handle = await make_home(tmp_path / "home", lived(OLD))
    heard = Heard()
    await begun(handle, heard)
    async with asyncio.timeout(120), telling_alerts(handle, heard.say):
        await live_on(handle, OLD, "-" * 30)
        await heard.next()
    async with asyncio.timeout(120), telling_alerts(handle, heard.say):
        pass
    (alert,) = heard.lines
    assert alert.startswith("ALERT · success falls: ")


async def test_a_fall_that_was_past_when_a_start_first_watched_is_told_to_nobody_but_its_end_is(
    tmp_path: Path,
) -> None:
    handle = await make_home(tmp_path / "home", lived(OLD[:220]))
    heard = Heard()
    await begun(handle, heard)
    async with asyncio.timeout(120), telling_alerts(handle, heard.say):
        await live_on(handle, OLD[:220], "+" * 130)
        await heard.next()
    (line,) = heard.lines
    assert line.startswith("over · success is back: ")


async def test_what_happened_before_the_log_was_first_reached_is_told_if_it_came_after_the_start(
    tmp_path: Path,
) -> None:
    handle = await make_home(tmp_path / "home", lived(OLD[:200]))
    started_ns = time.time_ns()
    await live_on(handle, OLD[:200], "-" * 30)

    async def told(name: str, since_ns: int) -> list[str]:
        session, said = AttachmentSession(), list[AlertMessage]()
        session.on_progress = lambda position: session.stop.set() if position >= 230 * 4 else None
        async with asyncio.timeout(120):
            await watch_alerts(handle, session, said.append, name=name, begin="start", new_since_ns=since_ns)
        return [message.text[:13] for message in said]

    assert await told("first", started_ns) == ["success falls"]
    assert await told("second", time.time_ns()) == [], "that was past"


async def test_whoever_cannot_be_told_ends_nothing_and_is_told_at_the_next_start(tmp_path: Path) -> None:
    handle = await make_home(tmp_path / "home", lived(OLD[:200]))
    heard = Heard()
    await begun(handle, heard)

    def gone(line: str) -> None:
        heard.say(line)
        raise BrokenPipeError(32, "Broken pipe")

    async def failing() -> None:
        async with telling_alerts(handle, gone):
            await live_on(handle, OLD[:200], "-" * 30)
            await heard.next()
            raise KeyError("mine")

    async with asyncio.timeout(120):
        with pytest.raises(KeyError, match="mine"):
            await failing()
        async with telling_alerts(handle, heard.say):
            await heard.next()
    told, again = heard.lines
    assert told == again
    assert told.startswith("ALERT · success falls: ")


async def test_a_start_that_is_cancelled_while_it_waits_for_its_watcher_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = await make_home(tmp_path / "home", [])
    begun, asked, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def watch(_handle: RunHandle, session: AttachmentSession, *_: Any, **__: Any) -> int:
        begun.set()
        try:
            await session.stop.wait()
            asked.set()
            await asyncio.Event().wait()  # a look that does not end
        finally:
            gone.set()
        return 0

    monkeypatch.setattr(terminal, "watch_alerts", watch)

    async def start() -> None:
        async with telling_alerts(handle, lambda _: None):
            await begun.wait()

    async with asyncio.timeout(120):
        starting = asyncio.ensure_future(start())
        await asked.wait()
        starting.cancel()
        await asyncio.wait({starting})
    assert gone.is_set()


async def test_a_watcher_that_is_stopped_while_it_tells_sends_it_once(
    tmp_path: Path, receiver: Receiver
) -> None:
    handle = await make_home(tmp_path / "home", lived("+" * 45 + "-" * 20))
    session, loop = AttachmentSession(), asyncio.get_running_loop()

    def said(_: AlertMessage) -> None:
        loop.call_soon_threadsafe(session.stop.set)
        time.sleep(2)

    async with asyncio.timeout(120):
        await watch_alerts(
            handle, session, said, options=LIMITS, begin="start", webhook=receiver.url, look_s=0.2
        )
    await loop.shutdown_default_executor()  # whoever still tells has told
    assert [body["kind"] for _, body in receiver.got] == ["success"]


def test_a_repaired_queue_and_an_event_where_its_producer_may_not_write_are_incidents() -> None:
    settings = Settings(judge=JudgeSettings(judges=("strict",)))
    fold = AlertFold(open_alerts(settings.telemetry.alerts, settings, LIMITS))
    state = fold.apply(fold.initial(), told(1, QueueRepaired(queue="verdicts", wrong="it was not there")))
    pause = told(2, ControlRequested(command="pause", arguments={}, author="me", reason=""))
    for producer in ("actor.1", "control.1"):
        envelope = msgspec.structs.replace(pause.envelope, producer=producer)
        state = fold.apply(state, msgspec.structs.replace(pause, envelope=envelope))
    repaired, intruder = state.incidents
    assert (repaired.kind, repaired.over != "") == ("queue", True)
    assert (intruder.kind, intruder.position, intruder.over) == ("intruder", 2, "")
    assert "actor.1 stands under `control`" in intruder.text
