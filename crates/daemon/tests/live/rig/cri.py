"""A client of the Container Runtime Interface, for tests.

    cri.py SOCKET

Each line of the standard input is a call, `{"method": …, "request": …}`. Each answer is a line:
`{"answer": …}`, or `{"error": …}`. The output of ExecSync is text, in `said`. The modules that it
imports are those of scripts/cri.sh.
"""

import json
import sys

import api_pb2
import api_pb2_grpc
import grpc
from google.protobuf import json_format

TIMEOUT_S = 60


def call(socket: str, method: str, request: object) -> dict:
    message = json_format.ParseDict(request, getattr(api_pb2, f"{method}Request")())
    # A channel that is kept waits before it connects to a runtime that has started again.
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        runtime = api_pb2_grpc.RuntimeServiceStub(channel)
        try:
            answer = getattr(runtime, method)(message, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return {"error": f"{error.code().name}: {error.details()}"}
    row = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    said = b"".join(getattr(answer, field, b"") for field in ("stdout", "stderr"))
    return {"answer": row, "said": said.decode(errors="replace")}


for line in sys.stdin:
    one = json.loads(line)
    print(json.dumps(call(sys.argv[1], one["method"], one["request"])), flush=True)
