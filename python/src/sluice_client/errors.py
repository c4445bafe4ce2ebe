"""Reasons why there is no answer."""


class Problem(Exception):
    """The host refuses a request, with the remedy."""

    def __init__(self, status: int, code: str, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}" if remedy else message)
        self.status = status
        """Status of HTTP."""
        self.code = code
        """Kind of the problem, for programs."""
        self.message = message
        """The problem, for people."""
        self.remedy = remedy
        """The remedy."""

    @property
    def may_have_happened(self) -> bool:
        """True if a change may still be made: look before you try again."""
        return self.code == "late"


class Unreachable(OSError):
    """Nobody answers on the socket, or the answer broke off."""

    def __init__(self, socket: str, why: str, may_have_happened: bool) -> None:
        super().__init__(f"{socket}: {why}; is the host running, and may this user ask it?")
        self.may_have_happened = may_have_happened
        """True if the request had been sent: look before you try again."""
