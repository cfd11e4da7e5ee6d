"""The files of docs/scale: nats-server takes them, honcho takes them, our own commands and settings take them."""

import shlex
import subprocess
from pathlib import Path

import pytest
from honcho.environ import Procfile, parse_procfile
from typer.main import get_command

from hindcast.app.cli import app, main
from hindcast.app.settings.configuration import resolve
from hindcast.app.system.join import parse_roles
from hindcast.app.system.launch import elsewhere
from hindcast.events.jetstream.broker import find_program
from servers.certificates import certificate

pytestmark = pytest.mark.broker

FILES = Path(__file__).parents[2] / "docs" / "scale"


@pytest.fixture(scope="module")
def etc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/etc/nats of such a machine."""
    folder = tmp_path_factory.mktemp("etc")
    certificate(folder, "ca")
    for name in ("server", "far"):
        certificate(folder, name, signer="ca")
    return folder


@pytest.mark.parametrize(
    ("name", "users"),
    [
        ("hub.conf", ["--leaf", "far"]),
        ("leaf.conf", ["--roles", "actor,reader", "--at-leaf"]),
    ],
)
def test_nats_server_takes_the_configuration(
    etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, users: list[str]
) -> None:
    text = (FILES / name).read_text()
    assert shlex.join(["hindcast", "broker", "users", "users.conf", *users]) in text
    monkeypatch.setenv("HINDCAST_HOME", str(tmp_path / "home"))
    main_of(["broker", "users", str(tmp_path / "users.conf"), *users])
    changed = text.replace("/etc/nats", str(etc)).replace("/var/lib/nats", str(tmp_path / "store"))
    (tmp_path / name).write_text(changed)
    urls = {
        f"{role.upper()}_URL_{n}": f"tls://far-{role}:secret@nats-{n}:7422"
        for role in ("actor", "reader")
        for n in (1, 2, 3)
    }
    for key, value in {"SYSTEM_PASSWORD": "a-secret", **urls}.items():
        monkeypatch.setenv(key, value)
    done = subprocess.run(
        [find_program(), "-t", "-c", tmp_path / name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def main_of(arguments: list[str]) -> None:
    """A command that ends well leaves by itself."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0


def procfile(name: str) -> Procfile:
    return parse_procfile((FILES / name).read_text())


@pytest.mark.parametrize("name", ["Procfile.first", "Procfile.gpu", "Procfile.far"])
def test_what_procfiles_start_are_commands_with_options_that_exist(name: str) -> None:
    lines = procfile(name).processes
    assert lines
    for line in lines.values():
        words = shlex.split(line)
        assert words[0] == "exec"
        if words[1] == "nats-server":
            continue
        command = get_command(app).commands[words[2]]
        context = command.make_context(words[2], words[3:])
        if words[2] == "join":
            assert parse_roles(context.params["roles"])


def test_the_settings_hold_and_leave_to_others_what_others_may_have() -> None:
    resolved = resolve(file=FILES / "settings.toml", environment={})
    assert resolved.settings.log.replicas == 3
    assert len(resolved.settings.log.url.split(",")) == 3
    words = shlex.split(procfile("Procfile.first").processes["system"])
    left_out = get_command(app).commands["start"].make_context("start", words[3:]).params["without"]
    assert elsewhere(left_out, resolved.settings) == ("learner",)
