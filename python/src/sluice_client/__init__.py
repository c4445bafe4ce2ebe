"""Client of the management API of a Sluice host."""

from .client import Client, Way
from .errors import Problem, Unreachable
from .transport import Remote

__all__ = ["Client", "Problem", "Remote", "Unreachable", "Way"]
