"""A scripted server of the Model Context Protocol, revision 2025-11-25: tools that work, and tools that misbehave.

Its descriptions have the text of the file `words` beside it, so that they can change under its users."""

import json
import os
import signal
import sys
import time

WORDS = open(os.path.join(os.path.dirname(__file__), "words")).read().strip()


def tool(name, properties=(), **more):
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in properties}, "required": list(properties)}
    return {"name": name, "description": f"{name}: {WORDS}", "inputSchema": schema, **more}


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
TOOLS = [
    tool("write", ["path", "text"]),
    tool("append", ["path", "text"]),
    tool("ask"),
    tool("fail"),
    tool("die"),
    tool("flood"),
    tool("noisy"),
    tool("hang"),
    tool("linger"),
    tool("sample"),
    tool("quick"),
    tool("torn"),
    tool("withdraw"),
    tool("number", ["text"], outputSchema=NUMBER, annotations={"readOnlyHint": True, "title": "A number"}),
    tool("bad name"),
    tool("no_object") | {"inputSchema": {"type": "string"}},
]
if os.environ.get("SLOW"):
    time.sleep(60)


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def receive():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(0)


def answer(call, text, **more):
    send({"id": call["id"], "result": {"content": [{"type": "text", "text": text}], **more}})


def act(call):
    name, arguments = call["params"]["name"], call["params"].get("arguments", {})
    if name in ("write", "append"):
        with open(arguments["path"], "w" if name == "write" else "a") as file:
            file.write(arguments["text"])
        answer(call, f"wrote {arguments['path']}")
    elif name == "ask":
        schema = {"type": "object", "properties": {"region": {"type": "string", "enum": ["eu", "us"]}}, "required": ["region"]}
        send({"id": "q", "method": "elicitation/create", "params": {"message": "Which region?\nIt costs the same.", "requestedSchema": schema}})
        while (reply := receive()).get("id") != "q":
            pass
        open("region", "w").write(json.dumps(reply["result"]))
        answer(call, json.dumps(reply["result"]))
    elif name == "fail":
        open("half", "w").write("of it")
        answer(call, "there is no such branch", isError=True)
    elif name == "die":
        open("half", "w").write("of it")
        print("the last words", file=sys.stderr, flush=True)
        os._exit(7)
    elif name == "flood":
        answer(call, "a" * (5 << 20))
    elif name == "noisy":
        print("Warming up …", flush=True)
        print('{"id": 77}', flush=True)
        answer(call, "first")
        answer(call, "second")
    elif name == "hang":
        time.sleep(60)
    elif name == "linger":
        open("done", "w").write("before the answer")
        answer(call, "ready")
        time.sleep(60)
    elif name == "quick":
        answer(call, "gone")
        os._exit(3)
    elif name == "torn":
        answer(call, "written")
        open("half", "w").write("of it")
        os.kill(os.getpid(), signal.SIGSEGV)
    elif name == "withdraw":
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        send({"id": "w", "method": "elicitation/create", "params": {"message": "Never mind?", "requestedSchema": schema}})
        time.sleep(1)
        send({"method": "notifications/cancelled", "params": {"requestId": "w"}})
        answer(call, "did without")
    elif name == "sample":
        send({"id": "s", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
        answer(call, str(receive()["error"]["code"]))
    elif name == "number":
        answer(call, arguments["text"], structuredContent={"n": json.loads(arguments["text"])})


while True:
    request = receive()
    method = request.get("method")
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        send({"id": request["id"], "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "scripted", "version": "1"}}})
    elif method == "tools/list":
        # Two pages.
        cursor = int((request.get("params") or {}).get("cursor") or 0)
        more = {"nextCursor": str(cursor + 8)} if cursor + 8 < len(TOOLS) else {}
        send({"id": request["id"], "result": {"tools": TOOLS[cursor : cursor + 8], **more}})
    elif method == "tools/call":
        act(request)
    elif "id" in request and method:
        send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
