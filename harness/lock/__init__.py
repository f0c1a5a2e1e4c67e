"""Locks: resolving a stack's pins, judging what was resolved, and comparing two stacks."""
