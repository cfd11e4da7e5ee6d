#!/bin/sh
# Lays out the packages as they are installed (hindcast.core, hindcast.events, ...), as links, for the type checker.
# An editable install maps these names by an import hook, which type checkers do not see.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1/hindcast"
for folder in core events storage actors learner app; do
    ln -sfn "$root/$folder" "$1/hindcast/$folder"
done
ln -sfn "$root/app/api" "$1/hindcast/api"
