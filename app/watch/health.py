"""Says in words what delays a run. Pure: uses only a view's figures."""

from hindcast.app.watch.view import RunView

QUIET_S = 30.0
"""Seconds without an event from which this is reported."""
WAITING = 0.5
"""Share of waiting time above which the learner is not the bottleneck."""
JUDGE_S = 10.0
"""Seconds after which a verdict is late."""
IDLE = 0.3
"""Share of idle time above which actors are not the bottleneck."""
AGREED = 0.5
STEP_PARTS = {"observe": "reading the page", "generate": "the policy", "act": "the browser's actions"}


def bottleneck(view: RunView) -> str:
    """The part that the others wait for."""
    if not view.up:
        return f"nothing runs. Run: hindcast start {view.run}"
    if view.quiet_s > QUIET_S:
        return f"nothing has been recorded for {view.quiet_s:.0f} s"
    if not view.actors and not view.learner.updates:
        return "starting: nobody has acted yet"
    waiting = 1 - view.learner.busy
    idle = sum(actor.idle for actor in view.actors) / len(view.actors) if view.actors else 1.0
    if waiting < WAITING:
        return f"the learner is the bottleneck: it computes {view.learner.busy:.0%} of the time, actors idle {idle:.0%}"
    said = f"the learner waits {waiting:.0%} of the time: "
    if view.oldest_unjudged_s > JUDGE_S:
        return (
            f"{said}the judge is the bottleneck, {view.unjudged} episodes want a verdict, one for "
            f"{view.oldest_unjudged_s:.0f} s"
        )
    taught = f"; {view.agreed:.0%} of the groups agreed and taught nothing" if view.agreed > AGREED else ""
    if idle > IDLE and view.requested == 0:
        return f"{said}actors idle {idle:.0%}, the curriculum asks for too little{taught}"
    return f"{said}actors are the bottleneck{_where(view)}{taught}"


def _where(view: RunView) -> str:
    """The largest part of an actor's step."""
    whole = sum(view.step_ms.values())
    if not whole:
        return ""
    part = max(view.step_ms, key=lambda name: view.step_ms[name])
    return f" ({view.step_ms[part] / whole:.0%} of a step is {STEP_PARTS[part]})"
