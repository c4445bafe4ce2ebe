"""One call of a runtime by the Container Runtime Interface.

    cri.py SOCKET METHOD        the request is JSON at the standard input, the answer JSON

The modules that it imports are those of scripts/cri.sh. ExecSync exits with the command's code, and
says what that said at the standard error.
"""

import sys

import api_pb2
import api_pb2_grpc
import grpc
from google.protobuf import json_format

TIMEOUT_S = 60


def main() -> int:
    socket, method = sys.argv[1:]
    request = getattr(api_pb2, f"{method}Request")()
    json_format.Parse(sys.stdin.read() or "{}", request)
    with grpc.insecure_channel(f"unix://{socket}") as channel:
        runtime = api_pb2_grpc.RuntimeServiceStub(channel)
        try:
            answer = getattr(runtime, method)(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    print(json_format.MessageToJson(answer, preserving_proto_field_name=True))
    for field in ("stdout", "stderr"):
        sys.stderr.buffer.write(getattr(answer, field, b""))
    return int(getattr(answer, "exit_code", 0))


sys.exit(main())
