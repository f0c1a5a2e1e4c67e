"""Checks: pure functions from evidence and expectation to findings.

No check touches a device, imports torch, starts a process or writes a file.
"""
