#!/usr/bin/env bash
# Every test: the controller's, then what runs inside the stack with the stack's own packages, then the
# recipes for real, then images in a real Docker engine (found, or a private one that is stopped at the end).
# All of them run even if one fails; arguments go to the first.
set -uo pipefail
bin=.venv/bin
failed=0

echo "== controller"
$bin/python -m pytest -m "not recipes and not docker" "$@" || failed=1

echo "== inside the cpu stack"
cache=${HARNESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/trn-harness}
python=$($bin/harness env --stack cpu --with-tests) || exit 3
env -u PYTHONDONTWRITEBYTECODE PYTHONPATH=. PYTHONPYCACHEPREFIX="$cache/bytecode" HF_HUB_OFFLINE=1 \
  "$python" -m pytest tests/stackside || failed=1

echo "== recipes"
$bin/python -m pytest -m recipes || failed=1

echo "== images"
scripts/docker-engine.sh run $bin/python -m pytest -m docker || failed=1

exit $failed
