"""Fills launcher files from a deployment: SLURM, SkyPilot, Docker Compose and Kubernetes.

A launcher file starts the same commands everywhere: `hindcast start` opens the run, `hindcast join` takes part in it, vLLM
servers run with the arguments that `hindcast start` would give them. On one machine (SLURM, SkyPilot) `hindcast start` runs
every role. Compose and Kubernetes give broker, first machine, learner, servers and actors a container each.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from hindcast.actors.policy_servers.command import HOST, server_command, server_environment
from hindcast.app.settings.deployment import HUB_NAMES, VLLM_PYTHON, Deployment, home_gib, main_memory_gib
from hindcast.app.settings.deployment_text import head_lines, settings_tables
from hindcast.app.settings.sizing import GIB, PUBLISHED_BYTES
from hindcast.events.jetstream.broker import STORE_LIMIT_BYTES

RUN = "main"
"""Name of the run that a launcher starts, so that the same file resumes it."""
PORT = 8000
"""Port of the first policy server."""
VLLM_IMAGE = "vllm/vllm-openai:v0.32.0"
NATS_IMAGE = "nats:2.14-alpine"
SKY_GPUS = {"a100": "A100-80GB", "h100": "H100", "h200": "H200", "l4": "L4", "rtx4090": "RTX4090"}
"""SkyPilot's names of the GPUs."""
SYSTEM_GIB = 16
"""Main memory of the roles other than actors and learner, and room."""
DISK_DAYS = 7


class Launcher(NamedTuple):
    """A kind of launcher file."""

    template: str
    summary: str
    addresses: Callable[[int], Mapping[str, Any]] = lambda servers: {}
    """The settings that it needs for a number of policy servers."""


def _compose_addresses(servers: int) -> dict[str, Any]:
    """All containers are in the host's network: everything listens on loopback."""
    own = [f"http://{HOST}:{PORT + number}" for number in range(servers)]
    return {
        "log.url": f"nats://{HOST}:4222",
        "storage.blobs": "/shared/blobs",
        "vllm.weights_folder": "/shared/weights",
        **({"vllm.servers": own} if own else {}),
    }


def _kubernetes_addresses(servers: int) -> dict[str, Any]:
    """The services of the manifests, and names of the database and the bucket to fill in."""
    own = [f"http://policy-{number}.policy:{PORT}" for number in range(servers)]
    return {
        "log.url": "tls://nats:4222",
        "log.replicas": 3,
        "storage.blobs": "s3://hindcast/runs",
        "storage.database": "postgresql+psycopg://hindcast@postgresql/hindcast?sslmode=require",
        "vllm.weights_folder": "/shared/weights",
        **({"vllm.servers": own} if own else {}),
    }


LAUNCHERS = {
    "slurm": Launcher("slurm.sh.j2", "a job script for sbatch"),
    "skypilot": Launcher("skypilot.yaml.j2", "a SkyPilot task"),
    "compose": Launcher("compose.yaml.j2", "Docker Compose on one machine", _compose_addresses),
    "k8s": Launcher("k8s.yaml.j2", "Kubernetes manifests", _kubernetes_addresses),
}


def launcher_text(name: str, deployment: Deployment) -> str:
    """The launcher file. `deployment` was computed with the launcher's addresses."""
    settings = deployment.settings
    environment = Environment(
        loader=PackageLoader("hindcast.app.settings.launchers", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    placement, size = deployment.placement, deployment.size
    actors_gib = math.ceil(size.actors_gib)
    learner_gib = math.ceil(main_memory_gib(deployment))
    checkpoints = (settings.learner.keep_checkpoints + 1) * size.checkpoint_gib
    version_gib = PUBLISHED_BYTES * size.parameters / GIB
    return environment.get_template(LAUNCHERS[name].template).render(
        head=head_lines(deployment, name),
        settings=settings_tables(deployment),
        run=RUN,
        broker=settings.log.url,
        broker_bytes=STORE_LIMIT_BYTES,
        base=settings.policy.base,
        hub=HUB_NAMES.get(deployment.load.model, "") if not deployment.request.base else "",
        gpu=deployment.load.gpu,
        sky_gpu=SKY_GPUS[deployment.load.gpu],
        gpus=deployment.request.gpus,
        learner_gpus=placement.learner_gpus,
        servers=[
            placement.server_gpus[first : first + placement.gpus_per_server]
            for first in range(0, len(placement.server_gpus), placement.gpus_per_server)
        ],
        server_command=partial(_server_words, deployment),
        server_environment=_server_environment(deployment),
        port=PORT,
        actors=deployment.load.actors,
        actor_roles=",".join(["actor"] * deployment.load.actors),
        actor_gib=math.ceil(size.actors_gib / deployment.load.actors) + 1,
        cpus=deployment.load.actors * 2 + len(placement.learner_gpus) * 2 + 8,
        learner_memory_gib=learner_gib,
        memory_gib=learner_gib + actors_gib + math.ceil(2 * size.weights_gib) + SYSTEM_GIB,
        first_memory_gib=math.ceil(version_gib) + SYSTEM_GIB,
        server_memory_gib=math.ceil(2 * size.weights_gib) + 8,
        home_gib=math.ceil(home_gib(deployment)),
        shared_gib=math.ceil(4 * version_gib) + 8,
        disk_gib=math.ceil(
            home_gib(deployment)
            + checkpoints
            + (settings.learner.keep_weights + 4) * version_gib
            + size.weights_gib
            + DISK_DAYS * (size.log_gib_day + size.blobs_gib_day)
        ),
        vllm_image=VLLM_IMAGE,
        nats_image=NATS_IMAGE,
        image=f"hindcast:{version('hindcast')}",
        vllm_python=VLLM_PYTHON,
    )


def _server_words(deployment: Deployment, *, host: str, port: int) -> list[str]:
    """The command of a policy server in vLLM's image."""
    settings = deployment.settings
    on_gpus = settings.model_copy(
        update={
            "vllm": settings.vllm.model_copy(
                update={"python": VLLM_PYTHON, "gpus_per_server": deployment.placement.gpus_per_server}
            )
        }
    )
    return server_command(Path("python3"), Path(settings.policy.base), port=port, settings=on_gpus, host=host)


def _server_environment(deployment: Deployment) -> dict[str, str]:
    """The environment of a policy server, without what concerns vLLM's build for CPUs."""
    found = server_environment(deployment.settings, {})
    return {name: value for name, value in found.items() if not name.startswith(("VLLM_CPU_", "OMP_"))}
