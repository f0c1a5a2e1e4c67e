"""Measurements of what the harness claims about its own speed."""
