"""Configuration: the resolved torchtitan configuration is what the recipe asked.

The same comparison stops a run before its first step; here the evidence of it is judged.
"""

from collections.abc import Mapping
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.stackside.configuration import MISSING, differences

__all__ = ["check_configuration"]

NAME = "configuration"


def check_configuration(resolved: Mapping[str, Any], expected: Mapping[str, Any]) -> CheckResult:
    """Judge a resolved configuration (nested dictionaries) against asked values by dotted key."""
    findings = []
    for difference in differences(resolved, expected):
        key, asked, found = difference
        code = "configuration.missing" if found == MISSING else "configuration.differs"
        findings.append(Finding(code, str(difference), {"key": key, "asked": asked, "found": found}))
    facts = [f"{len(expected)} values of the resolved configuration compared"] if expected else []
    return judge(NAME, findings, facts)
