"""How the processes of a learner find each other: torchrun's environment, or that of a leader which starts its own.

Every process knows its rank, how many there are, and the address of the store that all share (`RANK`, `LOCAL_RANK`,
`WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`). Collectives on the CPU go by gloo, those on GPUs by NCCL.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from core.computing import Device
from core.models.arithmetic import device_for
from learner.leading import Orders
from learner.ranks import Together


class Place(NamedTuple):
    """One process among those of a learner."""

    rank: int
    """0: the leader."""
    local_rank: int
    """Which GPU of its machine is its own."""
    size: int

    def environment(self, port: int) -> dict[str, str]:
        """What a process started at this place, on the leader's machine, is to find in its environment."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(port),
        }


LOOPBACK = "127.0.0.1"


def place_in(environment: Mapping[str, str]) -> Place | None:
    """This process's place as whoever started it says; None: nobody did."""
    if "RANK" not in environment:
        return None
    return Place(int(environment["RANK"]), int(environment["LOCAL_RANK"]), int(environment["WORLD_SIZE"]))


def open_store(size: int) -> TCPStore:
    """A leader's own store, at a free port of this machine; the others are not waited for."""
    return TCPStore(LOOPBACK, 0, size, is_master=True, wait_for_workers=False)


def found_store(place: Place) -> TCPStore:
    """The store that the environment names. torchrun keeps one itself; else the leader's is there already."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, place.size, is_master=False)


@contextmanager
def joined(place: Place, store: TCPStore, device: Device) -> Iterator[tuple[Orders, Together]]:
    """In step with the others, on a GPU of its own where `device` (`learner.device`) asks for GPUs."""
    on_gpu = device_for(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(place.local_rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo", store=store, rank=place.rank, world_size=place.size
    )
    try:
        yield Orders(store), Together()
    finally:
        dist.destroy_process_group()
