#!/bin/sh
# Runs `harness` (or the tests) as the user who owns the checkout, so that evidence in ./runs is that user's.
#
# Compose starts it as root with three capabilities and mounts a file of the checkout as /opt/harness/owner;
# nothing of the project runs before the privileges are gone. Started as another user it changes nothing.
set -eu
case ${1:-} in
tests) set -- /opt/harness/bin/run-tests ;;
*) set -- /opt/harness/bin/harness "$@" ;;
esac
[ "$(id -u)" = 0 ] && [ -e /opt/harness/owner ] || exec "$@"

uid=$(stat -c %u /opt/harness/owner)
gid=$(stat -c %g /opt/harness/owner)
# Docker makes a missing ./runs for root.
[ "$(stat -c %u /project/runs)" != 0 ] || chown "$uid:$gid" /project/runs
# Users do not write into each other's caches.
export HARNESS_CACHE="$HARNESS_CACHE/$uid"
[ "$uid" != 0 ] || exec "$@"
# What Neuron documents (and compose gave, on trn2 only) stays with the user.
kept=
for capability in sys_admin ipc_lock; do
  case ,$(setpriv --dump | sed -n 's/^Capability bounding set: //p'), in
  *,"$capability",*) kept="$kept,+$capability" ;;
  esac
done
[ -z "$kept" ] || set -- --inh-caps="-all$kept" --ambient-caps="-all$kept" "$@"
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"
