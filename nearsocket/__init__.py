"""Provision, tune and verify two-socket GPU servers for LLM inference."""

__version__ = "0.1.0"
