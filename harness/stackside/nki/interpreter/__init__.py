"""A small NumPy interpreter for the part of NKI that this project's kernels use.

It is not AWS's simulator, and stands in only where AWS's `nki` wheel is absent. It executes the
kernel's own Python source, instruction by instruction, with the documented data flow (float32
arithmetic, one rounding at the store) and the documented constraints. What is not listed in
`coverage.COVERED` raises; nothing is approximated in silence.

Proven by a run here: logic, indexing, dtype flow, constraints. Not proven: that the kernel compiles
for Trainium, that it fits SBUF, the rounding of the engines, its speed.
"""
