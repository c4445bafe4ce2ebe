"""What the client does where no host answers as it should."""

import socket
import tempfile
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sluice_client import Client, Problem, Unreachable


@contextmanager
def answering(text: bytes) -> Iterator[str]:
    """Answers one connection with a text, and ends it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(folder) / "http.sock")
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            stream, _ = listener.accept()
            with stream:
                stream.recv(65536)
                stream.sendall(text)

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join()


def response(status: str, body: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class Transport(unittest.TestCase):
    def test_nobody_listens(self) -> None:
        with self.assertRaises(Unreachable) as caught:
            Client("/nowhere/http.sock").delete_port("web")
        self.assertFalse(caught.exception.may_have_happened)
        self.assertIn("is the host running", str(caught.exception))

    def test_answer_broken_off(self) -> None:
        for text in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"nonsense\r\n\r\n"):
            with self.subTest(text), answering(text) as path:
                with self.assertRaises(Unreachable) as caught:
                    Client(path).delete_port("web")
                self.assertTrue(caught.exception.may_have_happened)

    def test_what_only_looks_has_not_happened(self) -> None:
        with answering(b"") as path, self.assertRaises(Unreachable) as caught:
            Client(path).ports()
        self.assertFalse(caught.exception.may_have_happened)

    def test_silence_is_bounded(self) -> None:
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = str(Path(folder) / "http.sock")
            listener.bind(path)
            listener.listen()
            with self.assertRaises(Unreachable):
                Client(path, timeout=0.1).ports()

    def test_refusal_of_something_else(self) -> None:
        for body in ("{}", "[]", '{"code": 7}'):
            with self.subTest(body), answering(response("502 Bad Gateway", body)) as path:
                with self.assertRaises(Problem) as caught:
                    Client(path).ports()
                self.assertEqual(caught.exception.status, 502)
                self.assertIn("502", str(caught.exception))

    def test_late_answer_may_have_happened(self) -> None:
        body = '{"code":"late","message":"no answer within 14 s","remedy":"Look."}'
        with answering(response("504 Gateway Timeout", body)) as path:
            with self.assertRaises(Problem) as caught:
                Client(path).confirm()
            self.assertTrue(caught.exception.may_have_happened)


if __name__ == "__main__":
    unittest.main()
