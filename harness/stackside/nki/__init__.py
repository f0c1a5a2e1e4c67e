"""NKI kernels inside the stack: which backend runs them, what they did, and how they are probed."""
