"""A collector of traces, by OpenTelemetry's own messages: it writes what it takes, a span a line.

    collector.py ADDRESS PORT FILE

A request that those messages do not take to the letter (an unknown key, another type) gets 400, and
its reason is a line of FILE. Identifiers in OTLP's JSON are hexadecimal digits, and base64 in that of
the library.
"""

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service

ADDRESS, PORT, FILE = sys.argv[1:]


def span_of(span) -> dict:
    assert len(span.trace_id) == 16 and any(span.trace_id), "a trace has 16 bytes"
    assert len(span.span_id) == 8 and any(span.span_id), "a span has 8 bytes"
    assert len(span.parent_span_id) in (0, 8), "a parent has 8 bytes, or there is none"
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, "it ends after it begins"
    return {
        "trace": span.trace_id.hex(),
        "name": span.name,
        "is_root": not span.parent_span_id,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "status": span.status.code,
        "attributes": {one.key: one.value.string_value for one in span.attributes},
    }


def spans_of(text: bytes) -> list[dict]:
    message = json.loads(text)
    for resource in message["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    request = json_format.ParseDict(message, service.ExportTraceServiceRequest())
    rows = []
    for resource in request.resource_spans:
        of_host = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            rows += [span_of(span) | {"resource": of_host} for span in scope.spans]
    return rows


class Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            assert self.path == "/v1/traces", self.path
            assert self.headers["Content-Type"] == "application/json"
            rows, status = spans_of(text), 200
        except Exception as error:
            rows, status = [{"wrong": repr(error), "text": text.decode(errors="replace")}], 400
        with open(FILE, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


HTTPServer((ADDRESS, int(PORT)), Collector).serve_forever()
