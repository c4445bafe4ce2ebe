"""Neutron's API as its own WSGI application, served by the standard library.

    api_server.py PORT [Neutron's arguments...]
"""

import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, as under uWSGI."""

    daemon_threads = True
    request_queue_size = 64


class Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Does nothing."""


port = int(sys.argv.pop(1))
# Neutron reads the arguments when it is imported.
from neutron.wsgi.api import application  # noqa: E402

with make_server("127.0.0.1", port, application, Server, Quiet) as server:
    server.serve_forever()
