#!/bin/sh
# Makes .venv-peers: the packages of other projects that exports and environments are tested with, in addition to those of
# .venv. Safe to repeat: does nothing when all is there. The tests that need it are tests/peers (make test-peers).
set -eu

say() { printf '%s\n' "$*"; }

wanted=$(cat constraints.txt constraints-peers.txt app/setup_peers.sh | cksum)
if [ -x .venv-peers/bin/python ] && [ "$(cat .venv-peers/.wanted 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi

started=$(date +%s)
say "setting up .venv-peers"
[ -x .venv-peers/bin/python ] || .venv/bin/python -m venv .venv-peers
ours=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
theirs=$(.venv-peers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# a .pth line, so that the editable install of Hindcast is found, too
printf 'import site; site.addsitedir("%s")\n' "$ours" >"$theirs/hindcast_peers.pth"
# every package is listed, so nothing has to be resolved
.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement constraints-peers.txt
printf '%s\n' "$wanted" >.venv-peers/.wanted
say "the peers' environment is ready after $(($(date +%s) - started)) s"
