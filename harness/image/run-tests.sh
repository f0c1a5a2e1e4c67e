#!/bin/sh
# The tests that mean something in an image: the checks by the controller's Python, and what runs inside the
# stack by the stack's own. Nothing of the image is written to; bytecode goes where recipes put theirs.
set -u
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$HARNESS_CACHE/bytecode"
export HYPOTHESIS_STORAGE_DIRECTORY=/tmp/hypothesis HF_HUB_OFFLINE=1
failed=0
/opt/harness/venv/bin/python -m pytest -q -p no:cacheprovider tests/checks || failed=1
PYTHONPATH=/project /opt/stack/bin/python -c '
import site, sys
site.addsitedir("/opt/harness/testing")
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/stackside"]))
' || failed=1
exit $failed
