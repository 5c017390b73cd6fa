"""A gRPC server that answers as a script says: what a live server does only by accident, such as a stream that breaks at a certain message."""

import base64
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import any_pb2, json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2

from belay._calls import METHODS


class ScriptedServer:
    """A server on a free port of the loopback interface. `script` has a list of answers for each method, by its name; the last one is repeated.

    An answer is an object with `send` (messages as protobuf JSON, or `{"base64": …}` of their bytes), then `end`: `ok` (the default), `silence` (nothing
    more comes until the client leaves), or a status as `{"code", "message", "reason", "domain", "metadata", "retry_after", "violations"}`.
    """

    def __init__(self, script):
        self._script = {name: list(answers) for name, answers in script.items()}
        self._lock = threading.Lock()
        #: The requests that came, as `(method, message, metadata)`.
        self.requests = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
        self._server.add_generic_rpc_handlers((self,))
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(0).wait()

    def service(self, details):
        """Finds the handler of a call, as gRPC's generic handlers do."""
        name = "/".join(part.rpartition(".")[2] if "." in part else part for part in details.method.strip("/").split("/"))
        method = METHODS[name]
        short = name.partition("/")[2]

        def stream(request, context):
            yield from self._answer(short, method, request, context)

        def unary(request, context):
            return next(self._answer(short, method, request, context))

        make = grpc.unary_stream_rpc_method_handler if method.is_streaming else grpc.unary_unary_rpc_method_handler
        return make(
            stream if method.is_streaming else unary,
            request_deserializer=method.request.FromString,
            response_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
        )

    def _answer(self, short, method, request, context):
        with self._lock:
            self.requests.append((short, request, dict(context.invocation_metadata())))
            answers = self._script[short]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        for message in answer.get("send", ()):
            yield base64.b64decode(message["base64"]) if "base64" in message else json_format.ParseDict(message, method.response())
        end = answer.get("end", "ok")
        if end == "silence":
            while context.is_active():
                time.sleep(0.02)
        elif end != "ok":
            self._fail(context, end)

    def _fail(self, context, end):
        code = getattr(code_pb2, end["code"])
        status = status_pb2.Status(code=code, message=end.get("message", ""))
        details = []
        if end.get("reason"):
            details.append(
                error_details_pb2.ErrorInfo(reason=end["reason"], domain=end.get("domain", "belay.dev"), metadata=end.get("metadata", {}))
            )
        if end.get("retry_after") is not None:
            info = error_details_pb2.RetryInfo()
            info.retry_delay.FromNanoseconds(int(end["retry_after"] * 1e9))
            details.append(info)
        if end.get("violations"):
            request = error_details_pb2.BadRequest()
            for one in end["violations"]:
                request.field_violations.add(field=one["field"], description=one["description"])
            details.append(request)
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        if details:
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort({one.value[0]: one for one in grpc.StatusCode}[code], end.get("message", ""))
