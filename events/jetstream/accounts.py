"""What each role may ask of the broker: an account per role, with exact imports from the account that holds the log.

Permissions on subjects do not cover reply subjects: in one account, any request with the reply subject `run.R.verdict.x`
makes the server write its answer into the log. So no role is in the account of the log (`LOG_ACCOUNT`). That account
exports each request as a service, and a role's own account imports those that the role needs. An answer comes back into
the role's account, where no stream listens, whatever its reply subject is.

No role may create a consumer but `admin`, which makes the work queues when it opens a run: a consumer's body may name a
`deliver_subject`, and the server delivers there within the account of the log. Everybody follows the log by
`DIRECT.GET`, which needs no consumer. So a run's name is the only wildcard, and a new run or reader needs no new permission.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.events.registry import BY_NAME

LOG_ACCOUNT = "HINDCAST"
"""Account that holds the streams of the runs. Nobody logs into it."""
API = "$JS.API"
"""Prefix of requests to JetStream in the account of the log."""
ROLE_API = "$JS.log.API"
"""Prefix of the same requests in the account of a role, also behind a leaf node. Under `$JS.API` a server answers for the
account itself, which has no JetStream; under its own domain's name it lets nothing through a leaf node."""

PUBLISHES: dict[str, tuple[str, ...]] = {
    "admin": ("run", "notice"),
    "curriculum": ("curriculum", "request", "episode_end", "notice", "control", "snapshot"),
    "actor": ("episode", "episode_end", "step", "adoption", "notice"),
    "policy_server": ("notice",),
    "judge": ("verdict", "notice"),
    "relabeler": ("relabel", "notice"),
    "learner": ("learner", "storage", "notice", "snapshot"),
    "control": ("control", "dispute"),
    "projector": (),
    "archiver": ("storage", "notice", "snapshot"),
    "reader": (),
    "importer": tuple(sorted({entry.family for entry in BY_NAME.values()})),
    "repairer": ("storage",),
}
"""Role -> the families whose facts it appends. `importer` puts an archive's events back: those of every role."""


class Queue(NamedTuple):
    """A work queue: a durable consumer."""

    role: str
    """Who works on it."""
    family: str
    """Facts that it hands out."""


QUEUES: dict[str, Queue] = {
    "episodes": Queue("actor", "request"),
    "verdicts": Queue("judge", "episode_end"),
    "relabels": Queue("relabeler", "episode_end"),
}
"""The work queues by the names of their consumers."""

FOLLOWERS = ("curriculum", "actor", "judge", "relabeler", "learner", "projector")
"""Roles that say how far each of their processes has read. The archiver waits for them, not for attached consumers: what
these have not read they read from the archive."""

READING = ("STREAM.INFO.*", "STREAM.NAMES", "CONSUMER.LIST.*", "DIRECT.GET.*")
"""Requests of every role. They change nothing, and hold nothing on the server."""
REQUESTS: dict[str, tuple[str, ...]] = {
    "admin": (
        "STREAM.CREATE.*",
        "STREAM.UPDATE.*",
        *(f"CONSUMER.{verb}.*.{queue}" for queue in QUEUES for verb in ("INFO", "DELETE")),
        *(f"CONSUMER.CREATE.*.{queue}.>" for queue in QUEUES),
    ),
    "archiver": ("STREAM.PURGE.*",),
    "repairer": ("STREAM.DELETE.*",),
} | {queue.role: (f"CONSUMER.INFO.*.{name}", f"CONSUMER.MSG.NEXT.*.{name}") for name, queue in QUEUES.items()}
"""Role -> further requests. The beginning of a stream is purged by the archiver alone, once it is verified in the archive."""
SEVERAL_ANSWERS = ("DIRECT.GET.", "CONSUMER.MSG.NEXT.")
"""Requests that the server answers with more than one message."""

Block = dict[str, Any]
"""A block of a server's configuration."""


def account_of(role: str) -> str:
    """The account of a role."""
    return f"{LOG_ACCOUNT}_{role}"


def inbox_prefix(role: str) -> str:
    """Replies to a role arrive under this subject, and nobody else may listen there."""
    return f"_INBOX_{role}"


def _requests(role: str) -> list[str]:
    return [f"{API}.{request}" for request in (*READING, *REQUESTS.get(role, ()))]


def _messages(role: str) -> list[str]:
    """Subjects that are the same in both accounts: events, acknowledgements, positions of followers."""
    acknowledgements = [f"$JS.ACK.*.{name}.>" for name, queue in QUEUES.items() if queue.role == role]
    positions = [f"reading.*.{role}.*"] if role in FOLLOWERS else []
    return [f"run.*.{family}.>" for family in PUBLISHES[role]] + acknowledgements + positions


def permissions(role: str) -> Block:
    """What a user of a role may publish and listen to, in the role's own account. A denial is then worded at once."""
    requests = [subject.replace(API, ROLE_API, 1) for subject in _requests(role)]
    return {
        "publish": {"allow": [*_messages(role), *requests]},
        "subscribe": {"allow": [f"{inbox_prefix(role)}.>"]},
    }


def log_accounts(users: Mapping[str, Collection[Block]]) -> Block:
    """The accounts of a server that holds the log. `users`: role -> who may log in as that role."""
    exports: dict[str, list[str]] = {}
    for role in users:
        for subject in (*_requests(role), *_messages(role)):
            exports.setdefault(subject, []).append(account_of(role))
    held = {
        "jetstream": "enabled",
        "exports": [
            {"service": subject, "accounts": accounts, **_response(subject)}
            for subject, accounts in exports.items()
        ],
    }
    return {LOG_ACCOUNT: held} | {
        account_of(role): {"imports": _imports(role), "users": list(block)} for role, block in users.items()
    }


def _response(subject: str) -> Block:
    several = any(subject.startswith(f"{API}.{request}") for request in SEVERAL_ANSWERS)
    return {"response_type": "stream"} if several else {}


def _imports(role: str) -> list[Block]:
    same = [{"service": {"account": LOG_ACCOUNT, "subject": subject}} for subject in _messages(role)]
    renamed = [
        {
            "service": {"account": LOG_ACCOUNT, "subject": subject},
            "to": subject.replace(API, ROLE_API, 1),
        }
        for subject in _requests(role)
    ]
    return [*same, *renamed]


def leaf_accounts(users: Mapping[str, Collection[Block]]) -> Block:
    """The accounts of a leaf node: each role in one of its own, bound to the account of that role at the hub."""
    return {account_of(role): {"users": list(block)} for role, block in users.items()}


def role_of_producer(producer: str) -> str | None:
    """The role under which a producer appends; None where its name does not say so."""
    words = producer.split(".")
    named = words[1] if words[0] == "start" and len(words) > 1 else OTHER_PRODUCERS.get(words[0], words[0])
    return named if named in PUBLISHES else None


OTHER_PRODUCERS = {
    "opening": "admin",
    "queues": "admin",
    "repair": "repairer",
    "pages": "archiver",
}
"""First word of a producer's name -> its role, where they differ. A fork is made under several roles."""


def may_append(producer: str, family: str) -> bool:
    """Whether the role of a producer appends facts of a family; True where its name says no role."""
    role = role_of_producer(producer)
    return role is None or family in PUBLISHES[role]
