"""Images: a stack's lock on a pinned base, built by Docker, verified from inside and compared by content.

`inside/` runs in the image while it is built, with whatever Python is there: standard library only.
"""
