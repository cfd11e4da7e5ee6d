"""How the processes of a learner find each other: by torchrun's environment, or that of a leader which starts its own.

Every process knows its rank, their number, and the address of a shared store (`RANK`, `LOCAL_RANK`, `WORLD_SIZE`,
`MASTER_ADDR`, `MASTER_PORT`). Collectives on the CPU use gloo, those on GPUs NCCL.
torchrun's store outlives the processes that it restarts, and still holds the addresses of ended ones: joining through it
would wait for them. So it only names the store of the living leader, which is opened anew each time.
"""

import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import msgspec
import structlog
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hindcast.core.errors import HindcastError, SettingsError
from hindcast.core.models.arithmetic import device_for
from hindcast.core.settings.schema import LearnerSettings
from hindcast.core.structs import decode_json
from hindcast.events.catalogue.run import Fingerprint
from hindcast.learner.distributed.leader import Orders
from hindcast.learner.distributed.ranks import DistributedRank
from hindcast.learner.numerics import configure_collectives, fingerprint_of


class Place(NamedTuple):
    """One process among those of a learner."""

    rank: int
    """0: the leader."""
    local_rank: int
    """Index of its GPU on its machine."""
    size: int

    def environment(self, port: int) -> dict[str, str]:
        """Environment variables for a process that is started at this place on the leader's machine."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(port),
        }


_log = structlog.get_logger()
NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT")
LOOPBACK = "127.0.0.1"
LEADER = "hindcast leader"
"""Key in torchrun's store for the port of the leader's own store on the same host."""
MEET_S = 300.0
"""Seconds to wait for a leader; the same as torch's bound for the first."""
CALL_S = 1.0
"""Seconds for one attempt to reach the leader, and between attempts."""


class UnlikeRanks(SettingsError):
    """The processes of a learner have different machines or versions, so that one of them cannot repeat all their bits."""


class LeaderMissing(HindcastError):
    """The leader of a learner's processes did not start."""


def place_in(environment: Mapping[str, str]) -> Place | None:
    """This process's place according to its environment; None if it names none.

    Raises:
        SettingsError: the environment is incomplete, as under a scheduler other than torchrun.
    """
    if "RANK" not in environment:
        return None
    problems = [
        f"{name}={environment.get(name, '')}" for name in NUMBERS if not environment.get(name, "").isdecimal()
    ]
    problems += [] if environment.get("MASTER_ADDR") else ["MASTER_ADDR="]
    if problems:
        raise SettingsError(
            f"the environment has RANK={environment['RANK']}, as for one of several processes of a learner, but {', '.join(problems)}. "
            "Start it by torchrun, which sets all of them (docs/learner.md); for a learner of one process unset RANK"
        )
    return Place(int(environment["RANK"]), int(environment["LOCAL_RANK"]), int(environment["WORLD_SIZE"]))


def open_store(size: int) -> TCPStore:
    """A leader's own store at a free port of this machine; does not wait for the others."""
    return TCPStore(LOOPBACK, 0, size, is_master=True, wait_for_workers=False)


def found_store(place: Place) -> TCPStore:
    """The leader's store that the environment names, directly or through torchrun's store.

    Raises:
        LeaderMissing: no leader started within `MEET_S`.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    named_store = TCPStore(host, port, place.size, is_master=False)
    if not dist.is_torchelastic_launched():
        return named_store
    if place.rank == 0:
        leader_store = open_store(place.size)
        named_store.set(LEADER, str(leader_store.port))
        return leader_store
    return TCPStore(host, _living(host, named_store), place.size, is_master=False)


def _living(host: str, store: TCPStore) -> int:
    """Port of the living leader; one that has ended cannot be reached."""
    deadline = time.monotonic() + MEET_S
    while True:
        try:
            store.wait([LEADER], timedelta(seconds=MEET_S))
        except dist.DistStoreError as error:
            raise LeaderMissing(
                f"the learner's first process named no address at {host}:{store.port} within {MEET_S:.0f} s; its own log lines say "
                "what it waits for"
            ) from error
        port = int(store.get(LEADER))
        try:
            socket.create_connection((host, port), timeout=CALL_S).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise LeaderMissing(
                    f"the learner's first process could not be reached at {host}:{port} within {MEET_S:.0f} s ({error}). Its own "
                    "log lines say why it ended, or a firewall blocks its port, which is chosen among the free ones"
                ) from error
            time.sleep(CALL_S)
        else:
            return port


def _require_same_machines(place: Place, store: TCPStore, settings: LearnerSettings) -> None:
    """Compare the fingerprints of all ranks with the leader's, which is the one that a run records.

    Raises:
        UnlikeRanks: in every process; names the ranks and what differs. Without `learner.exact_ranks` a line says so.
    """
    store.set(f"fingerprint/{place.rank}", msgspec.json.encode(fingerprint_of(settings)).decode())
    leading, *following = (
        decode_json(store.get(f"fingerprint/{rank}"), Fingerprint) for rank in range(place.size)
    )
    unlike = [
        f"process {rank} has {name} {getattr(fingerprint, name)}, its leader {getattr(leading, name)}"
        for rank, fingerprint in enumerate(following, start=1)
        for name in Fingerprint.__struct_fields__
        if getattr(fingerprint, name) != getattr(leading, name)
    ]
    if unlike and settings.exact_ranks:
        raise UnlikeRanks(
            f"the learner's processes compute differently, and only the leader's machine is recorded: {'; '.join(unlike)}. Give "
            "all of them the same versions and kind of machine, or begin a run with learner.exact_ranks=false, which is then "
            "verified within rounding"
        )
    if unlike:
        _log.warning("the learner's processes compute differently", unlike=unlike)


@contextmanager
def join_group(
    place: Place, store: TCPStore, settings: LearnerSettings
) -> Iterator[tuple[Orders, DistributedRank]]:
    """Join the process group, on an own GPU if `learner.device` asks for GPUs.

    Raises:
        UnlikeRanks: with `learner.exact_ranks`, the processes differ in what affects bits.
    """
    on_gpu = device_for(settings.device).type == "cuda"
    if on_gpu:
        configure_collectives()
        torch.cuda.set_device(place.local_rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo", store=store, rank=place.rank, world_size=place.size
    )
    try:
        _require_same_machines(place, store, settings)
        yield Orders(store), DistributedRank(exact=settings.exact_ranks)
    finally:
        dist.destroy_process_group()
