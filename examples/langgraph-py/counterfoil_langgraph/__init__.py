"""LangGraph checkpoints in the stores of a Counterfoil sidecar."""

from .client import CounterfoilError
from .saver import CounterfoilSaver

__all__ = ["CounterfoilError", "CounterfoilSaver"]
