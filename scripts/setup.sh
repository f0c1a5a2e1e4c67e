#!/usr/bin/env bash
# Builds the controller's environment: uv by pip, everything else by uv from the hashed lock.
# The package index is the machine's own: pip's configuration is handed on to uv.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}
lock=lockfiles/controller/requirements.lock

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "setup: $("$python" --version 2>&1) is too old: Python 3.11 or newer is needed. Next: make PYTHON=/path/to/python3.12 ..." >&2
  exit 2
}
rm -f "$venv/.complete"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"

uv_requirement=$(mktemp)
trap 'rm -f "$uv_requirement"' EXIT
# uv's own entry of the lock, so that the installer is as pinned as what it installs.
awk '/^[^ ]/ { on = ($0 ~ /^uv==/) } on' "$lock" > "$uv_requirement"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$uv_requirement"

if [ -z "${UV_DEFAULT_INDEX:-}" ]; then
  index=$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)
  [ -z "$index" ] || export UV_DEFAULT_INDEX=$index
fi
"$venv/bin/uv" pip sync --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes "$lock"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
touch "$venv/.complete"
