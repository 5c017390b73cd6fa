"""A server of models for the real agents: it speaks the API of each, and answers first with a call that writes a file, then with words.

    server.py PORT KIND

KIND is `ok`, `cut` (its answers end before their end), or the HTTP status of every answer.
"""

import http.server
import json
import sys

PORT, KIND = int(sys.argv[1]), sys.argv[2]
COMMAND = "echo made > made.txt"
WORDS = "I made the file."


def of_responses(request, is_done):
    """The Responses API, which codex speaks."""
    response = {"id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": []}
    if is_done:
        content = [{"type": "output_text", "text": WORDS, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    else:
        tools = [tool.get("name") for tool in request.get("tools", [])]
        name = next((name for name in ("exec_command", "shell_command", "shell") if name in tools), "shell")
        argument = {"exec_command": {"cmd": COMMAND}, "shell_command": {"command": COMMAND}}.get(name, {"command": ["sh", "-c", COMMAND]})
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": json.dumps(argument), "status": "completed"}
    yield "response.created", {"type": "response.created", "response": response}
    yield "response.output_item.added", {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}
    if KIND != "cut":
        usage = {
            "input_tokens": 100,
            "output_tokens": 10,
            "total_tokens": 110,
            "input_tokens_details": {"cached_tokens": 40},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
        yield "response.completed", {"type": "response.completed", "response": {**response, "status": "completed", "output": [item], "usage": usage}}


def of_messages(request, is_done):
    """Anthropic's Messages, which Claude Code speaks."""
    usage = {"input_tokens": 100, "output_tokens": 1, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model", "m"), "content": [], "stop_reason": None, "usage": usage}
    if is_done:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": WORDS}
    else:
        block = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"command": COMMAND, "description": "make"})}
    yield "message_start", {"type": "message_start", "message": message}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    if KIND != "cut":
        reason = "end_turn" if is_done else "tool_use"
        yield "message_delta", {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 10}}
        yield "message_stop", {"type": "message_stop"}


def of_chat(request, is_done):
    """Chat Completions, which opencode speaks."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    tools = [tool.get("function", {}).get("name") for tool in request.get("tools", [])]
    if is_done or "bash" not in tools:
        delta, reason = {"role": "assistant", "content": WORDS}, "stop"
    else:
        function = {"name": "bash", "arguments": json.dumps({"command": COMMAND, "description": "make"})}
        delta = {"role": "assistant", "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
        reason = "tool_calls"
    yield None, {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    if KIND != "cut":
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110, "prompt_tokens_details": {"cached_tokens": 40}}
        yield None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
        yield None, {**chunk, "choices": [], "usage": usage}
        yield None, "[DONE]"


def of_contents(request, is_done):
    """generateContent, which Gemini CLI speaks."""
    part = {"text": WORDS} if is_done else {"functionCall": {"name": "run_shell_command", "args": {"command": COMMAND}}}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110, "cachedContentTokenCount": 40}
    candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, "finishReason": "STOP"}
    answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}
    # It takes an answer without a reason for its end as whole.
    yield None, json.dumps(answer)[:60] if KIND == "cut" else answer


# The end of a path, the answer, and the sign of a request that comes after the call.
APIS = [
    ("/responses", of_responses, "function_call_output"),
    ("/messages", of_messages, '"tool_result"'),
    ("/chat/completions", of_chat, '"role": "tool"'),
    ("enerateContent", of_contents, '"functionResponse"'),
]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "2")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            request = json.loads(body)
        except ValueError:
            request = {}
        path = self.path.split("?")[0]
        api = next((api for api in APIS if path.endswith(api[0]) or (api[0] in path and "Content" in api[0])), None)
        if api is None:
            return self.answer(404, {"error": {"message": "there is no such method"}})
        if KIND.isdigit():
            return self.answer(int(KIND), {"type": "error", "error": {"type": "error", "message": "busy"}})
        events = list(api[1](request, api[2] in json.dumps(request)))
        if api[1] is of_contents and "stream" not in path:
            return self.answer(200, events[0][1])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for name, data in events:
            if name:
                self.wfile.write(f"event: {name}\n".encode())
            text = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"data: {text}\n\n".encode())
        self.close_connection = True


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
