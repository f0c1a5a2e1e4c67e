#!/usr/bin/env bash
# Makes sure that the image of a stack is on this machine, and prints the line that tells compose which one.
#
#   scripts/image-for-ci.sh trn2 name@sha256:...    pulls it; nothing but a digest is taken: a tag can move
#   scripts/image-for-ci.sh trn2                    builds it (in seconds if nothing changed)
set -euo pipefail
stack=$1
image=${2:-}
variable=HARNESS_$(echo "$stack" | tr 'a-z-' 'A-Z_')_IMAGE
pinned='^[^@[:space:]]+@sha256:[0-9a-f]{64}$'

if [ -z "$image" ]; then
  .venv/bin/harness build "$stack" >&2
  grep "^$variable=" .env
elif [[ $image =~ $pinned ]]; then
  docker pull "$image" >&2
  echo "$variable=$image"
else
  echo "$image carries no digest. Next: give name@sha256:..." >&2
  exit 2
fi
