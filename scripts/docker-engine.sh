#!/usr/bin/env bash
# A Docker engine for the tests: the one that runs, or a private one on a socket and data folder of its own.
#
#   scripts/docker-engine.sh run COMMAND...   runs a command with an engine; one that was started for it is
#                                             stopped when nobody uses it any more
#   scripts/docker-engine.sh start            the same for a shell: finds or starts one that stays, and prints
#                                             `export` lines to be evaluated
#   scripts/docker-engine.sh stop             stops the private engine by its process id; touches no other one
#   scripts/docker-engine.sh clean            stops it, and removes its images, volumes and caches
#
# Needs root and Debian's packages to install an engine; with a running engine that has BuildKit and compose
# it needs neither. Everything of it lies in $HARNESS_ENGINE (default: <cache>/docker).
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "$0")" && pwd)
state=${HARNESS_ENGINE:-${HARNESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/trn-harness}/docker}
# A socket's path must be short (the system allows about a hundred characters), and every state has its own.
socket=/tmp/trn-harness-docker.$(printf %s "$state" | sha256sum | cut -c1-12).sock
pid_file=$state/dockerd.pid
stays=$state/stays
users=$state/users.lock

say() { echo "docker-engine: $*" >&2; }

# The plugins of the next Debian release: the machine's own has none. Derived from its own package sources,
# read into a folder of ours, so that nothing but these two files comes from there.
fetch_plugins() {
  local release next apt=$state/apt
  release=$(. /etc/os-release && echo "$VERSION_CODENAME")
  case $release in
  bookworm) next=trixie ;;
  *) next=$release ;;
  esac
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/debs" "$state/cli/cli-plugins"
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | sed "s/\b$release\b/$next/g" > "$apt/sources.list" || true
  mkdir -p "$apt/sources.list.d"
  for file in /etc/apt/sources.list.d/*.sources; do
    [ ! -f "$file" ] || sed "s/\b$release/$next/g" "$file" > "$apt/sources.list.d/${file##*/}"
  done
  cat > "$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/sources.list.d";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "root";
CONF
  APT_CONFIG=$apt/apt.conf apt-get update -qq >&2
  (cd "$apt/debs" && APT_CONFIG=$apt/apt.conf apt-get download -qq docker-compose docker-buildx >&2)
  for package in "$apt"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$package" |
      tar -x -C "$state/cli/cli-plugins" --strip-components=5 --wildcards './usr/libexec/docker/cli-plugins/*'
  done
  rm -rf "$apt"
}

# A complete client is one with both plugins; ours are used only if the user's own client lacks one.
client() {
  if docker buildx version >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then
    return
  fi
  [ -x "$state/cli/cli-plugins/docker-compose" ] && [ -x "$state/cli/cli-plugins/docker-buildx" ] || {
    say "fetching docker's compose and buildx plugins"
    fetch_plugins
  }
  export DOCKER_CONFIG=$state/cli
  echo "export DOCKER_CONFIG='$DOCKER_CONFIG'"
}

# Two at once would both find no engine.
find_or_start() {
  mkdir -p "$state"
  (
    flock 8
    find_or_start_alone
  ) 8> "$state/starting.lock"
}

find_or_start_alone() {
  if docker version >/dev/null 2>&1; then
    client
    return
  fi
  if ! command -v dockerd >/dev/null; then
    say "installing docker.io"
    apt-get update -qq >&2
    # The engine of the package must not start by itself: this one is private.
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io iptables >&2
  fi
  client
  export DOCKER_HOST=unix://$socket
  if ! docker version >/dev/null 2>&1; then
    say "starting a private engine in $state"
    mkdir -p "$state/data" "$state/exec"
    rm -f "$socket" "$pid_file"
    setsid nohup dockerd --host "$DOCKER_HOST" --data-root "$state/data" --exec-root "$state/exec" \
      --pidfile "$pid_file" --log-level warn > "$state/dockerd.log" 2>&1 < /dev/null 8>&- 9>&- &
    for _ in $(seq 100); do
      docker version >/dev/null 2>&1 && break
      sleep 0.3
    done
    docker version >/dev/null 2>&1 || {
      say "the engine did not start; its last words:"
      tail -5 "$state/dockerd.log" >&2
      exit 3
    }
  fi
  echo "export DOCKER_HOST='$DOCKER_HOST'"
}

# Every user holds a shared lock on one file; whoever can have it alone at the end was the last.
run() {
  local engine code=0
  mkdir -p "$state"
  exec 9> "$users"
  flock --shared 9
  engine=$(find_or_start)
  eval "$engine"
  "$@" 9>&- || code=$?
  flock --unlock 9
  if [ -s "$pid_file" ] && [ ! -e "$stays" ] && flock --exclusive --nonblock 9; then
    stop
  fi
  return $code
}

stop() {
  [ -s "$pid_file" ] || { say "no private engine runs"; return; }
  local pid
  pid=$(cat "$pid_file")
  # Only if it is still that engine: process ids are used again.
  if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
    # Layers of the last build and the download cache are worth keeping; every build before them is not.
    { docker -H "unix://$socket" image prune --force &&
      docker -H "unix://$socket" builder prune --force --keep-storage 16GB; } >/dev/null 2>&1 || true
    kill "$pid"
    for _ in $(seq 200); do
      [ -e "/proc/$pid" ] || break
      sleep 0.1
    done
  fi
  rm -f "$pid_file" "$socket" "$stays"
}

case ${1:-} in
run)
  shift
  run "$@"
  ;;
start)
  find_or_start
  [ ! -s "$pid_file" ] || touch "$stays"
  ;;
stop) stop ;;
clean)
  stop
  rm -rf "$state"
  ;;
*)
  sed -n '2,/^set /p' "$here/docker-engine.sh" | sed '$d; s/^# \{0,1\}//' >&2
  exit 2
  ;;
esac
