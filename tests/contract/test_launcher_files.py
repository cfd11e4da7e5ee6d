"""Launcher files: each tool's own checker takes them, their commands are ours, and the shell runs what it should.

SkyPilot's checker needs too many packages to be installed for a test: of its file, YAML and shell are checked here.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import PyCompose
from typer.main import get_command

from hindcast.app.cli import app, main
from hindcast.app.settings.configuration import resolve
from hindcast.app.settings.deployment import Deployment, DeploymentRequest, plan_deployment
from hindcast.app.settings.launchers.launcher import LAUNCHERS, RUN, launcher_text
from hindcast.app.settings.sizing import Load
from hindcast.app.system.join import parse_machine, parse_roles
from hindcast.app.system.launch import elsewhere
from hindcast.core.settings.schema import Settings
from hindcast.events.jetstream.broker import find_program

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
KUBERNETES = "1.34"
pytestmark = pytest.mark.process

CASES = {
    "one": Load(model="0.5B", gpu="rtx4090", actors=0),
    "eight": Load(model="8B", actors=0),
    "adapter": Load(model="8B", actors=5, lora_rank=16),
}
GPUS = {"one": 1, "eight": 8, "adapter": 2}


def deployment(launcher: str, case: str) -> Deployment:
    addresses = LAUNCHERS[launcher].addresses
    return plan_deployment(
        DeploymentRequest(load=CASES[case], gpus=GPUS[case], recipe="mgrpo", addresses=addresses)
    )


def documents(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one]


def settings_in(text: str, folder: Path) -> Settings:
    file = folder / "settings.toml"
    file.write_text(text)
    return resolve(file=file, environment={}).settings


def require_own_command(line: str) -> dict[str, Any]:
    """Parse `hindcast WORD …` by our own command line. Returns its parameters."""
    words = shlex.split(line)
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    found: dict[str, Any] = command.make_context(str(command.name), words).params
    if "roles" in found and command.name == "join":
        assert parse_roles(found["roles"])
        assert found["run"] == RUN
    return found


def shellcheck(script: str, folder: Path, *, shell: str = "bash") -> None:
    file = folder / "script.sh"
    file.write_text(script)
    done = subprocess.run(
        [BIN / "shellcheck", "--shell", shell, file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    subprocess.run([shell, "-n", file], check=True)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_has_the_settings_of_its_deployment_and_says_its_command(
    launcher: str, case: str, tmp_path: Path
) -> None:
    found = deployment(launcher, case)
    text = launcher_text(launcher, found)
    embedded = {
        "slurm": lambda: re.search(r"<<'SETTINGS'\n(.*?)SETTINGS\n", text, flags=re.DOTALL)[1],  # type: ignore[index]
        "skypilot": lambda: re.search(  # type: ignore[index]
            r"<<'SETTINGS'\n(.*?)SETTINGS\n", documents(text)[0]["run"], flags=re.DOTALL
        )[1],
        "compose": lambda: documents(text)[0]["configs"]["settings"]["content"],
        "k8s": lambda: documents(text)[0]["data"]["settings.toml"],
    }[launcher]()
    assert settings_in(embedded, tmp_path) == found.settings
    assert f"--emit {launcher}" in text


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_takes_the_manifests(case: str) -> None:
    found = deployment("k8s", case)
    listed = documents(launcher_text("k8s", found))
    for document in listed:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    kinds = {(one["kind"], one["metadata"]["name"]): one for one in listed}
    workloads = {
        name: one["spec"]["template"]["spec"]
        for (_, name), one in kinds.items()
        if "template" in one.get("spec", {})
    }
    assert set(workloads) == {
        "hindcast-models",
        "hindcast-first",
        "hindcast-learner",
        "hindcast-actor",
        "policy",
    }
    gpus = {
        name: int(spec["containers"][0].get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
        for name, spec in workloads.items()
    }
    replicas = kinds["StatefulSet", "policy"]["spec"]["replicas"]
    assert gpus["hindcast-learner"] == found.settings.learner.processes
    assert replicas == len(found.settings.vllm.servers) == found.placement.servers
    assert gpus["policy"] == found.placement.gpus_per_server
    assert gpus["hindcast-first"] == gpus["hindcast-actor"] == 0
    claims = {one["metadata"]["name"] for one in listed if one["kind"] == "PersistentVolumeClaim"}
    for spec in workloads.values():
        named = {one["name"] for one in spec["volumes"]} | {"home"}
        mounted = {one["name"] for one in spec["containers"][0]["volumeMounts"]}
        assert mounted <= named
        claimed = {
            one["persistentVolumeClaim"]["claimName"]
            for one in spec["volumes"]
            if "persistentVolumeClaim" in one
        }
        assert claimed <= claims


def test_the_manifests_commands_are_ours() -> None:
    listed = documents(launcher_text("k8s", deployment("k8s", "eight")))
    containers = [
        one["spec"]["template"]["spec"]["containers"][0]
        for one in listed
        if one["kind"] in ("StatefulSet", "Deployment")
    ]
    texts = [" ".join(one.get("args", [])) for one in containers]
    lines = [line for text in texts for line in own_commands(text)]
    lines += [text for text in texts if text.startswith("join ")]
    assert len(lines) == 4
    for line in lines:
        require_own_command(line)
    assert len(parse_machine("a-7c9d8b6f5d-abcde")) <= 31


def own_commands(script: str) -> Iterator[str]:
    """Commands of `hindcast` in a shell script, without the name."""
    for found in re.finditer(r"exec hindcast ((?:\"[^\"]*\"|[^;\n\"])+)", script):
        yield found[1].replace("${HOSTNAME#hindcast-actor-}", "7c9d8b6f5d-abcde")


@pytest.mark.parametrize("case", CASES)
def test_compose_takes_its_file_and_its_commands_are_ours(case: str, tmp_path: Path) -> None:
    found = deployment("compose", case)
    content = documents(launcher_text("compose", found))[0]
    parsed = PyCompose.from_json(json.dumps(content))
    policies = {f"policy-{number}" for number in range(found.placement.servers)}
    assert {*parsed.service_names()} == {"passwords", "broker", "first", "learner", "actors", *policies}
    services = content["services"]
    assert "file" in require_own_command(shlex.join(services["passwords"]["command"]))
    assert require_own_command(shlex.join(services["learner"]["command"]))["roles"] == "learner"
    roles = require_own_command(shlex.join(services["actors"]["command"]))["roles"]
    assert parse_roles(roles)["actor"] == found.load.actors
    (script,) = services["first"]["command"]
    shellcheck(script.replace("$$", "$"), tmp_path, shell="sh")
    for line in own_commands(script):
        left_out = require_own_command(line)["without"]
        assert elsewhere(left_out, found.settings) == ("learner",)
    placed = [
        gpu
        for name in ("learner", *sorted(policies))
        for gpu in services[name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
    ]
    assert sorted(placed) == sorted(map(str, (*found.placement.learner_gpus, *found.placement.server_gpus)))


@pytest.mark.broker
def test_the_broker_takes_its_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose's, and what NATS's chart makes of our values."""
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    (tmp_path / "accounts").mkdir()
    with pytest.raises(SystemExit):
        main(["broker", "users", str(tmp_path / "accounts" / "users.conf")])
    compose = documents(launcher_text("compose", deployment("compose", "eight")))[0]["configs"]["broker"][
        "content"
    ]
    merged = documents((ROOT / "docs" / "scale" / "nats-values.yaml").read_text())[0]["config"]["merge"]
    chart = json.dumps({"port": 4222, **merged})
    chart = re.sub(r'"<< (.*?) >>"', r"\1", chart)
    chart = re.sub(r'"\$include": "\.\./nats-(.*?)"', r"include \1;", chart)
    assert "include accounts/users.conf" in chart
    for text in (compose.replace("/data", str(tmp_path / "data")), chart):
        (tmp_path / "nats.conf").write_text(text)
        done = subprocess.run(
            [find_program(), "-t", "-c", tmp_path / "nats.conf"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", CASES)
def test_the_shell_takes_the_job_scripts(case: str, tmp_path: Path) -> None:
    shellcheck(launcher_text("slurm", deployment("slurm", case)), tmp_path)
    task = documents(launcher_text("skypilot", deployment("skypilot", case)))[0]
    assert task["resources"]["accelerators"].endswith(f":{GPUS[case]}")
    for part in ("setup", "run"):
        shellcheck(f"#!/bin/bash\n{task[part]}", tmp_path)


RECORDER = """#!/bin/sh
[ "$1" = doctor ] && exit 1
echo "$@" >>"$RECORDED"
mkdir -p "$HINDCAST_HOME/runs/main"
trap 'exit 0' TERM
if [ -n "$STAY" ]; then touch "$RECORDED.waiting"; while :; do sleep 0.05; done; fi
"""


def test_the_job_gives_its_settings_once_and_resumes_after_slurms_signal(tmp_path: Path) -> None:
    """By a real shell; `hindcast` and `scontrol` are scripts that record how they are called."""
    script, recorded = tmp_path / "job.sh", tmp_path / "recorded"
    script.write_text(launcher_text("slurm", deployment("slurm", "eight")))
    for name, text in (("hindcast", RECORDER), ("scontrol", '#!/bin/sh\necho "scontrol $*" >>"$RECORDED"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HINDCAST": str(tmp_path / "hindcast"),
        "HINDCAST_HOME": str(tmp_path / "home"),
        "RECORDED": str(recorded),
        "SLURM_JOB_ID": "7",
        "STAY": "1",
    }
    job = subprocess.Popen(["bash", script], env=environment)
    until = time.monotonic() + 60
    while not Path(f"{recorded}.waiting").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == 0
    again = subprocess.run(
        ["bash", script, "--until", "updates=9"], env=environment | {"STAY": ""}, check=False
    )
    assert again.returncode == 0
    first, requeued, second = recorded.read_text().splitlines()
    assert first.startswith("start main --actors 3 --config ")
    assert resolve(file=Path(first.rpartition(" ")[2]), environment={}).settings.learner.processes == 7
    assert requeued == "scontrol requeue 7"
    assert second == "start main --actors 3 --until updates=9"


def test_the_dockerfile_has_no_finding_of_its_linter() -> None:
    done = subprocess.run(
        [BIN / "hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert not done.stdout
