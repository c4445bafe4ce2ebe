"""Client of the management API of a Sluice host."""

from .client import Client, Way
from .errors import Problem, Unreachable

__all__ = ["Client", "Problem", "Unreachable", "Way"]
