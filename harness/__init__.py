"""Reproducibility harness for training Qwen3 with torchtitan on AWS Trainium.

This module stays empty of imports: `harness.stackside` runs inside a stack's Python, which has none
of the controller's packages.
"""

__version__ = "0.1.0"
