"""`harness doctor`: what is on this machine, whether a stack's runs can work here, and what to do if not.

Readers make a `Host` of a machine; the checks are pure and judge that value.
"""

from harness.doctor.host import Host
from harness.doctor.inspection import examine, inspect, preflight
from harness.doctor.readers import Probes, read_host
from harness.doctor.report import Level, Line, Report, exit_code, report_lines

__all__ = [
    "Host",
    "Level",
    "Line",
    "Probes",
    "Report",
    "examine",
    "exit_code",
    "inspect",
    "preflight",
    "read_host",
    "report_lines",
]
