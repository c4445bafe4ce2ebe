"""HTTP/1.1 on a Unix socket or by TLS: one request a connection, as a host answers it."""

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from .errors import Problem, Unreachable

#: Longest answer in bytes: that of 16,384 endpoints is a tenth of it.
ANSWER_MAX = 256 << 20


@dataclass(frozen=True)
class Remote:
    """A host over the network, at the address of its `[api.tls]`."""

    at: str
    """Address and port, such as `192.0.2.1:9343` or `[2001:db8::1]:9343`."""
    token: str = field(repr=False)
    """What `sluice api token` printed; empty: the certificate says who asks."""
    name: str
    """Name in the host's certificate: that of the host, if the fabric gave it."""
    authority: str | os.PathLike[str] | None = None
    """File of the authority that signed it (PEM); None: those that this machine trusts."""
    certificate: str | os.PathLike[str] | None = None
    """File with the client's certificate and its key (PEM), whose name the host knows."""

    def head(self) -> dict[str, str]:
        """Returns the header that has the token."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class _OnSocket(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _ByTls(http.client.HTTPConnection):
    def __init__(self, remote: Remote, timeout: float) -> None:
        host, _, port = remote.at.rpartition(":")
        super().__init__(host.strip("[]"), int(port), timeout=timeout)
        self._remote = remote

    def connect(self) -> None:
        authority = self._remote.authority
        context = ssl.create_default_context(cafile=authority and os.fspath(authority))
        if self._remote.certificate is not None:
            context.load_cert_chain(os.fspath(self._remote.certificate))
        super().connect()
        # Until then the socket is the connection's, which closes it.
        self.sock = context.wrap_socket(self.sock, server_hostname=self._remote.name)


class Transport:
    """A host's socket or address, and the longest silence there in seconds."""

    def __init__(self, host: str | os.PathLike[str] | Remote, timeout: float) -> None:
        self._host: str | Remote = host if isinstance(host, Remote) else os.fspath(host)
        self._path: str = self._host.at if isinstance(self._host, Remote) else self._host
        self._timeout = timeout

    def _connection(self) -> http.client.HTTPConnection:
        if isinstance(self._host, Remote):
            return _ByTls(self._host, self._timeout)
        return _OnSocket(self._host, self._timeout)

    def ask(
        self,
        method: str,
        template: str,
        names: dict[str, str],
        query: dict[str, Any],
        body: object,
        key: str | None = None,
    ) -> Any:
        """Sends a request, and returns the JSON of its answer.

        `names` fill the template of the path; keys of the query that are None are left out. A
        request that changes something is made once for its `key`.
        """
        path = template.format_map({key: quote(name, safe="") for key, name in names.items()})
        said = {key: _word(value) for key, value in query.items() if value is not None}
        if said:
            path += "?" + urlencode(said)
        head = self._host.head() if isinstance(self._host, Remote) else {}
        data = None
        if key is not None and method != "GET":
            head["Idempotency-Key"] = key
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

    def lines(self, path: str, timeout: float | None) -> Iterator[str]:
        """Sends a GET, and returns the lines of its answer as they come."""
        connection = self._connection()
        connection.timeout = timeout
        head = {"Accept": "text/event-stream"}
        if isinstance(self._host, Remote):
            head |= self._host.head()
        try:
            connection.request("GET", path, headers=head)
            response = connection.getresponse()
            if response.status >= 300:
                raise _problem(response.status, json.loads(response.read(ANSWER_MAX)))
            for line in response:
                yield line.decode().rstrip("\n")
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(self._path, why, False) from error
        finally:
            connection.close()

    def _exchange(
        self, method: str, path: str, data: bytes | None, head: dict[str, str]
    ) -> tuple[int, bytes]:
        is_sent = False
        try:
            connection = self._connection()
        except ValueError as error:
            why = "it is no address with a port, such as 192.0.2.1:9343"
            raise Unreachable(self._path, why, False) from error
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
