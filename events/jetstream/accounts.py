"""Permissions of each role at the broker: an account per role, with exact imports from the account of the log.

Permissions on subjects do not cover reply subjects: in one account, any request with the reply subject `run.R.verdict.x`
makes the server write its answer into the log. So no role is in the account of the log (`LOG_ACCOUNT`). That account
exports each request as a service, and a role's own account imports the requests that the role needs. Whatever its reply
subject, an answer arrives in the role's account, where no stream listens.

Only `admin`, which makes the work queues when it opens a run, may create a consumer: a consumer's body may name a
`deliver_subject`, and the server delivers there within the account of the log. All roles follow the log by `DIRECT.GET`,
which needs no consumer. So a run's name is the only wildcard, and a new run or reader needs no new permission.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import hindcast.events.catalogue  # noqa: F401  # fills the registry
from hindcast.events.registry import BY_NAME, ROLES, SUBJECTS

LOG_ACCOUNT = "HINDCAST"
"""Account that holds the streams of all runs. It has no users."""
API = "$JS.API"
"""Prefix of requests to JetStream in the account of the log."""
ROLE_API = "$JS.log.API"
"""Prefix of the same requests in a role's account, also behind a leaf node. Under `$JS.API` a server answers for the role's
account itself, which has no JetStream; a prefix with its own domain does not pass a leaf node."""


def _families_of(role: str) -> tuple[str, ...]:
    if role == "importer":
        return tuple(sorted(SUBJECTS))
    appended = {entry.family for entry in BY_NAME.values() if role in entry.roles}
    return tuple(family for family in SUBJECTS if family in appended)


PUBLISHES: dict[str, tuple[str, ...]] = {role: _families_of(role) for role in ROLES}
"""Role -> families of the facts that it appends. `importer` restores an archive's events, which are those of every role."""


class Queue(NamedTuple):
    """A work queue: a durable consumer."""

    role: str
    """Role that works on it."""
    family: str
    """Family of the facts that it delivers."""


QUEUES: dict[str, Queue] = {
    "episodes": Queue("actor", "request"),
    "verdicts": Queue("judge", "episode_end"),
    "relabels": Queue("relabeler", "episode_end"),
}
"""Work queues by the names of their consumers."""

FOLLOWERS = ("curriculum", "actor", "judge", "relabeler", "learner", "projector")
"""Roles whose processes report how far they have read. The archiver waits for them, but not for attached consumers, which
read older events from the archive."""

READING = ("STREAM.INFO.*", "STREAM.NAMES", "CONSUMER.LIST.*", "DIRECT.GET.*")
"""Requests of every role. They change nothing and keep no state on the server."""
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
"""Role -> further requests. Only the archiver purges the beginning of a stream, once it is verified in the archive."""
SEVERAL_ANSWERS = ("DIRECT.GET.", "CONSUMER.MSG.NEXT.")
"""Requests that the server may answer with several messages."""

Block = dict[str, Any]
"""A block of a server's configuration."""


def account_of(role: str) -> str:
    """Return the account of a role."""
    return f"{LOG_ACCOUNT}_{role}"


def inbox_prefix(role: str) -> str:
    """Return the subject prefix of replies to a role; no other role may subscribe to it."""
    return f"_INBOX_{role}"


def _requests(role: str) -> list[str]:
    return [f"{API}.{request}" for request in (*READING, *REQUESTS.get(role, ()))]


def _messages(role: str) -> list[str]:
    """List the subjects that are the same in both accounts: events, acknowledgements, positions of followers."""
    acknowledgements = [f"$JS.ACK.*.{name}.>" for name, queue in QUEUES.items() if queue.role == role]
    positions = [f"reading.*.{role}.*"] if role in FOLLOWERS else []
    return [f"run.*.{family}.>" for family in PUBLISHES[role]] + acknowledgements + positions


def permissions(role: str) -> Block:
    """Build the publish and subscribe permissions of a role's user in its own account; the server reports a denial at once."""
    requests = [subject.replace(API, ROLE_API, 1) for subject in _requests(role)]
    return {
        "publish": {"allow": [*_messages(role), *requests]},
        "subscribe": {"allow": [f"{inbox_prefix(role)}.>"]},
    }


def log_accounts(users: Mapping[str, Collection[Block]]) -> Block:
    """Build the accounts of a server that holds the log. `users`: role -> users of that role."""
    exports: dict[str, list[str]] = {}
    for role in users:
        for subject in (*_requests(role), *_messages(role)):
            exports.setdefault(subject, []).append(account_of(role))
    log_account = {
        "jetstream": "enabled",
        "exports": [
            {"service": subject, "accounts": accounts, **_response(subject)}
            for subject, accounts in exports.items()
        ],
    }
    return {LOG_ACCOUNT: log_account} | {
        account_of(role): {"imports": _imports(role), "users": list(block)} for role, block in users.items()
    }


def _response(subject: str) -> Block:
    several = any(subject.startswith(f"{API}.{request}") for request in SEVERAL_ANSWERS)
    return {"response_type": "stream"} if several else {}


def _imports(role: str) -> list[Block]:
    unchanged = [{"service": {"account": LOG_ACCOUNT, "subject": subject}} for subject in _messages(role)]
    renamed = [
        {
            "service": {"account": LOG_ACCOUNT, "subject": subject},
            "to": subject.replace(API, ROLE_API, 1),
        }
        for subject in _requests(role)
    ]
    return [*unchanged, *renamed]


def leaf_accounts(users: Mapping[str, Collection[Block]]) -> Block:
    """Build the accounts of a leaf node, one for each role, bound to that role's account at the hub."""
    return {account_of(role): {"users": list(block)} for role, block in users.items()}


@lru_cache(maxsize=1024)
def role_of_producer(producer: str) -> str | None:
    """Return the role under which a producer appends; None if its name does not imply one."""
    parts = producer.split(".")
    role = parts[1] if parts[0] == "start" and len(parts) > 1 else OTHER_PRODUCERS.get(parts[0], parts[0])
    return role if role in PUBLISHES else None


OTHER_PRODUCERS = {
    "opening": "admin",
    "queues": "admin",
    "repair": "repairer",
    "pages": "archiver",
}
"""First word of a producer's name -> its role, if they differ. A fork is made under several roles."""


def may_append(producer: str, family: str) -> bool:
    """Whether a producer's role may append facts of a family; True if its name implies no role."""
    role = role_of_producer(producer)
    return role is None or family in PUBLISHES[role]
