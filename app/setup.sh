#!/bin/sh
# Brings a bare machine to the point where .venv/bin/hindcast works. Safe to repeat: does nothing when all is there.
# As root on Debian it installs what is missing; otherwise it says exactly what to install.
# `setup.sh tests` also looks for a PostgreSQL server, which only the tests use; without one they are skipped and say so.
set -eu

say() { printf '%s\n' "$*"; }

missing=""
need() { # need PACKAGE WHY
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing Debian package $1 ($2)"
        if [ -z "${apt_updated:-}" ]; then apt-get update -qq; apt_updated=1; fi
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $1 >/dev/null
    else
        missing="$missing $1"
        say "missing: $1 ($2)"
    fi
}

python=""
for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    need "python3 python3-venv" "Python 3.11 or newer runs everything"
    python=python3
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    need python3-venv "the environment is a venv"
fi

browser=${HINDCAST__ACTORS__BROWSER_PATH:-}
for candidate in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
    [ -n "$browser" ] || browser=$(command -v $candidate || true)
done
[ -n "$browser" ] || for found in "$HOME"/.cache/ms-playwright/chromium-*/chrome-linux*/chrome; do
    if [ -x "$found" ]; then browser=$found; fi
done
[ -n "$browser" ] || need "chromium-headless-shell fonts-liberation" "actors browse with it"

if [ -n "$missing" ]; then
    say "Install as root:  apt-get install -y$missing   and repeat. Without root, set PYTHON=/path/to/python3.11 or"
    say "HINDCAST__ACTORS__BROWSER_PATH=/path/to/chromium for what you have elsewhere"
    say "(\`python -m playwright install chromium\` fetches a browser without root where its download can be reached)."
    exit 1
fi

if [ "${1:-}" = tests ] && ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    as_root=""
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    if command -v apt-get >/dev/null && $as_root true 2>/dev/null; then
        say "installing Debian package postgresql (the tests of the read model run on a real server)"
        { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends postgresql; } >/dev/null || say "it could not be installed"
    else
        say "no PostgreSQL server here: its tests are skipped. As root: apt-get install -y postgresql"
    fi
fi

wanted=$(cat pyproject.toml constraints.txt app/setup.sh | cksum)
if [ -x .venv/bin/hindcast ] && [ "$(cat .venv/.wanted 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi

started=$(date +%s)
say "setting up .venv (a few minutes the first time: torch is large)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
printf '%s\n' "$wanted" > .venv/.wanted
say "environment ready after $(($(date +%s) - started)) s"
