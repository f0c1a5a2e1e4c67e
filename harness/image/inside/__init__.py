"""Runs inside the image while it is built. Standard library only, and nothing else of the harness.

The steps, in order: `plan` (what the base carries, what is missing), the installer, `verify` (what is
there now is what was asked), `requires` (every declared dependency is met).
"""
