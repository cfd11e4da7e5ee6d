"""The services of an emitted Compose file, without Docker: each entry point with its command, environment and health check.

Real processes, a home for each container, and the volumes that they share as folders. What a machine without a GPU cannot have
is overridden by environment variables, and the policy servers are left out.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from hindcast.app.settings.deployment import DeploymentRequest, plan_deployment
from hindcast.app.settings.launchers.launcher import LAUNCHERS, RUN, launcher_text
from hindcast.app.settings.sizing import Load
from hindcast.app.system.policy_servers import free_ports
from hindcast.events.jetstream.broker import find_program
from processes.system import ROOT, SMALL_GROUPS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.broker, pytest.mark.browser]

READY_S = 900.0
STOP_S = 60.0
WITHOUT_GPU = {
    "policy.base": "base",
    "policy.engine": "in_process",
    "learner.device": "cpu",
    "vllm.servers": "[]",
    "curriculum.max_running": "8",
}


def image() -> dict[str, Any]:
    """Entry point, health check and environment of the Dockerfile's last stage."""
    stage = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").rpartition("\nFROM ")[2]
    found = dict(re.findall(r"^(ENTRYPOINT|ENV|HEALTHCHECK) (.*)$", stage, re.MULTILINE))
    return {
        "entrypoint": json.loads(found["ENTRYPOINT"]),
        "health": json.loads(found["HEALTHCHECK"].partition("CMD ")[2]),
        "environment": dict(word.split("=", 1) for word in shlex.split(found["ENV"])),
    }


def without_init(words: list[str]) -> list[str]:
    """The words without tini, where it is not installed: it forwards signals and collects ended processes."""
    return words if shutil.which("tini") or words[:2] != ["tini", "--"] else words[2:]


class Services:
    """The containers of a Compose file."""

    def __init__(self, text: str, root: Path, overrides: Mapping[str, str]) -> None:
        self._services: dict[str, Any] = yaml.safe_load(text)["services"]
        self._root = root
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._image = image()
        self._overrides = {
            f"HINDCAST__{key.upper().replace('.', '__')}": value for key, value in overrides.items()
        }
        (root / "secrets").mkdir(mode=0o700)

    def environment(self, name: str) -> dict[str, str]:
        """Environment variables in a container, and the folder that its home's volume is."""
        home = self._root / name
        if not home.exists():
            home.mkdir(mode=0o700)
            (home / "secrets").symlink_to(self._root / "secrets")
        own = self._image["environment"]
        path = own["PATH"].replace("/opt/hindcast/bin", str(Path(sys.executable).parent))
        return (
            own
            | self._overrides
            | {
                "PATH": path.replace("$PATH", os.environ["PATH"]),
                "HINDCAST_HOME": str(home),
                "HOME": str(self._root),
                "OMP_NUM_THREADS": "1",
            }
        )

    def words(self, name: str) -> list[str]:
        """What a container executes; Compose writes a dollar sign as two."""
        service = self._services[name]
        entry = service.get("entrypoint", self._image["entrypoint"])
        return [word.replace("$$", "$") for word in without_init([*entry, *service["command"]])]

    @contextmanager
    def running(self, name: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A container that runs until the block ends; it must stop in order when it is asked to, as `docker stop` does."""
        with (self._root / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                self.words(name), cwd=self._root, env=self.environment(name), stdout=output, stderr=output
            )
        self._processes[name] = process
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_S) == 0, self.said(name)
        finally:
            process.kill()
            process.wait()

    def health(self, name: str) -> "subprocess.CompletedProcess[str]":
        """The image's health check in a container."""
        return subprocess.run(
            self._image["health"],
            cwd=self._root,
            env=self.environment(name),
            capture_output=True,
            text=True,
            check=False,
        )

    def hindcast(self, name: str, *arguments: str) -> Any:
        """`docker exec`: one command in a container, as JSON."""
        words = [*without_init(self._image["entrypoint"]), *arguments, "--json"]
        done = subprocess.run(
            words, cwd=self._root, env=self.environment(name), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def said(self, name: str) -> str:
        """The end of a container's output."""
        return (self._root / f"{name}.log").read_text(errors="replace")[-4000:]

    def wait_for(self, name: str, what: str, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, as long as the container runs."""
        until = time.monotonic() + READY_S
        while not condition():
            assert self._processes[name].poll() is None, f"{name} ended: {what}\n{self.said(name)}"
            assert time.monotonic() < until, f"{what}\n{self.said(name)}"
            time.sleep(1)


def compose_file(root: Path) -> str:
    """The emitted file, with the shared volumes' folders and the broker's port of this test."""
    addresses = LAUNCHERS["compose"].addresses
    load = Load(model="0.5B", gpu="rtx4090", actors=1, contexts=4)
    text = launcher_text(
        "compose", plan_deployment(DeploymentRequest(load=load, gpus=1, recipe="mgrpo", addresses=addresses))
    )
    port, http = free_ports(2)
    for then, now in {
        ":4222": f":{port}",
        "port: 4222": f"port: {port}",
        ":8222": f":{http}",
        '"/shared/': f'"{root}/shared/',
        "/etc/": f"{root}/etc/",
        "/data,": f"{root}/data,",
    }.items():
        text = text.replace(then, now)
    return text


@contextmanager
def broker(root: Path) -> Iterator[None]:
    """The broker's container, with its own program."""
    config = root / "etc" / "nats" / "nats.conf"
    with (root / "broker.log").open("wb") as output:
        process = subprocess.Popen(
            [str(find_program()), "--config", str(config)], stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_S)


def test_containers_open_a_run_train_stop_in_order_and_continue(tmp_path: Path) -> None:
    text = compose_file(tmp_path)
    configs = yaml.safe_load(text)["configs"]
    for place, content in (("nats/nats.conf", "broker"), ("hindcast/settings.toml", "settings")):
        file = tmp_path / "etc" / place
        file.parent.mkdir(parents=True)
        file.write_text(configs[content]["content"].replace("$$", "$"))
    for folder in ("etc/nats/accounts", "shared"):
        (tmp_path / folder).mkdir()
    short = {key: value for key, value in SMALL_GROUPS.items() if not key.endswith("_s")}
    services = Services(text, tmp_path, short | WITHOUT_GPU)
    subprocess.run(services.words("passwords"), env=services.environment("passwords"), check=True)
    assert services.health("first").returncode == 1, "nothing runs there yet"

    def healthy(name: str) -> bool:
        return services.health(name).returncode == 0

    def updates() -> int:
        return int(services.hindcast("first", "run", "show", RUN)["updates"])

    with broker(tmp_path):
        with ExitStack() as stack:
            for name in ("first", "learner", "actors"):
                process = stack.enter_context(services.running(name))
                services.wait_for(name, f"{name} is not healthy", lambda name=name: healthy(name))  # type: ignore[misc]
                assert process.poll() is None
            services.wait_for("learner", "no update", lambda: updates() > 0)
        assert services.health("first").returncode == 1, "all of its processes have ended"
        with services.running("first"):
            services.wait_for("first", "it does not continue", lambda: healthy("first"))
            assert updates() > 0, "the same run"
