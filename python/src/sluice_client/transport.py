"""HTTP/1.1 on a Unix socket: one request a connection, as a host answers it."""

import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import quote, urlencode

from .errors import Problem, Unreachable

#: Longest answer in bytes: that of 16,384 endpoints is a tenth of it.
ANSWER_MAX = 256 << 20


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Transport:
    """A socket, and the longest silence on it in seconds."""

    def __init__(self, path: str | os.PathLike[str], timeout: float) -> None:
        self._path = os.fspath(path)
        self._timeout = timeout

    def ask(
        self,
        method: str,
        template: str,
        names: dict[str, str],
        query: dict[str, Any],
        body: object,
    ) -> Any:
        """Sends a request, and returns the JSON of its answer.

        `names` fill the template of the path; keys of the query that are None are left out.
        """
        path = template.format_map({key: quote(name, safe="") for key, name in names.items()})
        said = {key: _word(value) for key, value in query.items() if value is not None}
        if said:
            path += "?" + urlencode(said)
        head, data = {}, None
        if body is not None:
            head["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        status, text = self._exchange(method, path, data, head)
        try:
            answer = json.loads(text)
        except ValueError as error:
            why = f"the answer is no JSON ({error})"
            raise Unreachable(self._path, why, True) from error
        if status >= 300:
            raise _problem(status, answer)
        return answer

    def _exchange(
        self, method: str, path: str, data: bytes | None, head: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = _Connection(self._path, self._timeout)
        is_sent = False
        try:
            connection.connect()
            is_sent = True
            connection.request(method, path, data, head)
            response = connection.getresponse()
            text = response.read(ANSWER_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(self._path, why, is_sent and method != "GET") from error
        finally:
            connection.close()
        if len(text) > ANSWER_MAX:
            why = f"the answer is longer than {ANSWER_MAX} bytes"
            raise Unreachable(self._path, why, method != "GET")
        return response.status, text


def _word(value: object) -> str:
    """Writes a value of a query: booleans are `true` and `false`."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _problem(status: int, answer: Any) -> Problem:
    """Makes the exception of a refusal, were it not one of ours."""
    known = answer if isinstance(answer, dict) else {}
    word = {key: str(known.get(key, "")) for key in ("code", "message", "remedy")}
    return Problem(status, word["code"], word["message"] or f"status {status}", word["remedy"])
