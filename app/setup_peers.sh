#!/bin/sh
# Makes the environments .venv-peers/NAME, one for each folder tests/peers/NAME: the packages of another project that its
# constraints.txt lists, in addition to those of .venv. Safe to repeat: does nothing for an environment that is there.
# `setup_peers.sh NAME` makes one of them.
set -eu

say() { printf '%s\n' "$*"; }

if [ $# = 0 ]; then
    for list in tests/peers/*/constraints.txt; do basename "$(dirname "$list")"; done | xargs -n 1 -P 3 sh "$0"
    exit
fi
environment=.venv-peers/$1
list=tests/peers/$1/constraints.txt
wanted=$(cat constraints.txt "$list" app/setup_peers.sh | cksum)
if [ "$(cat "$environment/.wanted" 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi

started=$(date +%s)
.venv/bin/python -m venv --clear --without-pip "$environment"
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
# a .pth line, so that the editable install of Hindcast is found, too
printf 'import site; site.addsitedir("%s")\n' "$(.venv/bin/python -c "$purelib")" \
    >"$("$environment/bin/python" -c "$purelib")/hindcast_peers.pth"
# every package is listed, so nothing has to be resolved
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$list"
printf '%s\n' "$wanted" >"$environment/.wanted"
say "$environment is ready after $(($(date +%s) - started)) s"
