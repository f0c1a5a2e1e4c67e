#!/bin/sh
# One step of the image's build, run as root inside the base image.
set -eu
home=/opt/harness
steps=$home/steps
venv=$home/venv
stack=/opt/stack
uv=$venv/bin/uv

# Certificates and index of the building machine, if it has its own.
[ ! -f /run/secrets/ca ] || export SSL_CERT_FILE=/run/secrets/ca PIP_CERT=/run/secrets/ca
if [ -f /run/secrets/index ]; then
  set -a
  . /run/secrets/index
  set +a
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
export UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_NO_CONFIG=1

# The Python that has torch, wherever the base keeps it; else the first one there is.
base_python() {
  first=
  for python in python3 python /opt/*/bin/python3 /opt/conda/bin/python /usr/local/bin/python3; do
    command -v "$python" >/dev/null 2>&1 || continue
    [ "${python#"$home"/}" = "$python" ] || continue
    python=$(command -v "$python")
    first=${first:-$python}
    if "$python" -B -c 'import importlib.metadata as m; m.version("torch")' >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  [ -n "$first" ] || { echo "image-check: base.no-python: the base image has no python3" >&2; return 1; }
  echo "$first"
}

step() { # module, with the Python given first
  python=$1
  module=$2
  shift 2
  PYTHONPATH=$steps${PYTHONPATH:+:$PYTHONPATH} "$python" -B -m "harness.image.inside.$module" "$@"
}

# uv notes times beside what it builds from a folder; two builds would differ by nothing else.
forget_times() { # site-packages
  for note in "$1"/*.dist-info/uv_cache.json; do
    [ -f "$note" ] || continue
    rm "$note"
    sed -i '/uv_cache\.json/d' "${note%/*}/RECORD"
  done
}

case $1 in
tools)
  python=$(base_python)
  "$python" -m venv "$venv"
  mkdir -p $home/bin $home/install
  # uv's own entry of the lock, so that the installer is as pinned as what it installs.
  awk '/^[^ ]/ { on = ($0 ~ /^uv==/) } on' $home/locks/controller.lock > $home/install/uv.lock
  "$venv/bin/python" -m pip install --quiet --no-compile --no-deps --require-hashes -r $home/install/uv.lock
  ;;
stack)
  python=$(base_python)
  step "$python" plan --home $home
  "$uv" venv --quiet --no-project --python "$python" $stack
  for lock in "$home"/install/index-*.lock; do
    [ -s "$lock" ] || continue
    "$uv" pip install --quiet --no-deps --require-hashes --python $stack/bin/python \
      $(cat "${lock%.lock}.options") -r "$lock"
  done
  for source in "$home"/install/source-*.path; do
    [ -s "$source" ] || continue
    # Building writes into the tree: a copy is built, with the build tools that the lock brought.
    rm -rf /tmp/source
    cp -R "$(cat "$source")" /tmp/source
    "$uv" pip install --quiet --no-deps --no-build-isolation --no-index --no-cache --python $stack/bin/python /tmp/source
    rm -rf /tmp/source
  done
  site=$("$stack/bin/python" -B -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  forget_times "$site"
  [ ! -s $home/install/base.pth ] || cp $home/install/base.pth "$site/harness-base.pth"
  step $stack/bin/python verify --home $home
  ;;
controller)
  "$uv" pip sync --quiet --python "$venv/bin/python" --require-hashes $home/locks/controller.lock
  # Test tools for the stack's Python lie beside it: the stack itself stays exactly its lock.
  "$uv" pip install --quiet --python $stack/bin/python --target $home/testing --no-deps --require-hashes \
    -r $home/locks/testing.lock
  step "$venv/bin/python" requires --home $home
  ;;
harness)
  cd /project
  "$uv" pip install --quiet --offline --no-cache --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
  forget_times "$("$venv/bin/python" -B -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  ln -s "$venv/bin/harness" $home/bin/harness
  for program in entrypoint run-tests; do
    cp /project/harness/image/$program.sh $home/bin/$program
    chmod 755 $home/bin/$program
  done
  # Any user may own a run: caches are separate by user, like /tmp.
  mkdir -p /project/runs /project/assets /cache /assets /compile-cache
  chmod 1777 /project/runs /cache /assets /compile-cache
  ;;
*)
  echo "step.sh: unknown step $1" >&2
  exit 2
  ;;
esac
