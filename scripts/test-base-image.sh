#!/usr/bin/env bash
# Makes the test base image and prints its name: Debian with Python, from the machine's own package sources.
# Stands in for a base image from a registry where none can be pulled; made once, then reused.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# Another recipe (this file) is another image.
name=trn-harness-test-base:$(sha256sum "$here/test-base-image.sh" | cut -c1-12)

docker version >/dev/null || exit 3
if docker image inspect "$name" >/dev/null 2>&1; then
  echo "$name"
  exit
fi
command -v mmdebstrap >/dev/null || {
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap >&2
}
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  [ ! -s "$file" ] || sources+=("$file")
done
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
echo "making the test base image $name" >&2
# The machine's own package sources do not belong into an image, and neither does documentation.
mmdebstrap --quiet --variant=minbase --include=python3,python3-venv \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' \
  --customize-hook='rm -rf "$1"/etc/apt/sources.list* "$1"/etc/apt/apt.conf.d/99*' \
  --customize-hook='rm -f "$1"/etc/resolv.conf "$1"/etc/hostname' \
  "$release" - "${sources[@]}" |
  docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$name" >/dev/null
echo "$name"
