"""Names of the processes of a running system, as `hindcast bench profile` counts them."""

import pytest

from bench.profile import WORKER, kind_of


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["hindcast actor.1"], "actor.1"),
        (["hindcast fork server for torch workers"], "fork server for torch workers"),
        (["/usr/lib/chromium/chromium-headless-shell", "--headless"], "chromium browser"),
        (["/usr/lib/chromium/chromium-headless-shell", "--type=renderer"], "chromium renderer"),
        (["--hindcast-browser=0a1b"], "Playwright's driver"),
        (["/x/bin/nats-server", "--config", "nats.conf"], "broker"),
        (["/x/bin/python3", "-P", "-m", "hindcast.app.system", "judge"], "supervisors"),
        (["/x/bin/python3", "-P", "-m", "honcho", "-f", "Procfile"], "honcho"),
        ([], "ended"),
    ],
)
def test_a_process_is_named_by_what_it_is(command: list[str], kind: str) -> None:
    assert kind_of(command) == kind
    assert bool(WORKER.fullmatch(kind)) == (kind == "actor.1")
