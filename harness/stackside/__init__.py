"""What runs inside a stack's Python.

Imports the stack, the standard library and each other, never the rest of the harness, and talks to
the outside by files: it reads `request.json` and writes below `observed/`.
"""
