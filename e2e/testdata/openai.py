"""A scripted stand-in for the OpenAI API, for the real CLIs of Codex and opencode.

usage: openai.py PORT SCRIPT LOG

It streams responses (POST /v1/responses) and chat completions (POST /v1/chat/completions).
SCRIPT is a JSON list of replies, one for each call: {"text": ...} or {"tool": name, "input": {...}}, with
"usage": {"input_tokens": n, ...}, where input_tokens leaves cached ones out; "namespace" is the tool's; {"status": n, "error": {...}} is an
error, and "retry_after" its header.
LOG gets one JSON line for each call: the usage it was answered with, what the user said, and the instructions.
A call without the key "sk-right-..." is answered like the real API does, with 401.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, SCRIPT, LOG = int(sys.argv[1]), json.load(open(sys.argv[2])), sys.argv[3]
SIDE = {"text": "title", "usage": {"input_tokens": 7, "output_tokens": 3}}  # calls beside the conversation
END = {"text": "nothing more to do", "usage": {"input_tokens": 1, "output_tokens": 1}}
WRONG = {"status": 401, "error": {
    "message": "Incorrect API key provided", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}}
CUSTOM = "custom:"  # before the name of a tool that takes text: {"input": text}
replies = iter(SCRIPT)


def custom(reply):
    return reply.get("tool", "").startswith(CUSTOM)


def tokens(reply):
    """What a reply used: all input, its cached part, output."""
    u = reply["usage"]
    cached = u.get("cache_read_input_tokens", 0)
    return u["input_tokens"] + cached, cached, u["output_tokens"]


def response(number, model, reply):
    """The events of one streamed response."""
    total, cached, out = tokens(reply)
    whole = {"id": "resp_%03d" % number, "object": "response", "created_at": 1795203487, "status": "in_progress",
             "model": model, "output": [], "usage": None}
    item = {"id": "msg_%03d" % number, "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": reply.get("text", ""), "annotations": []}]}
    if "tool" in reply:
        item = {"id": "fc_%03d" % number, "type": "function_call", "status": "completed", "call_id": "call_%03d" % number,
                "name": reply["tool"], "arguments": json.dumps(reply["input"])}
        if "namespace" in reply:
            item["namespace"] = reply["namespace"]
    if custom(reply):
        item = {"id": "ctc_%03d" % number, "type": "custom_tool_call", "status": "completed", "call_id": "call_%03d" % number,
                "name": reply["tool"][len(CUSTOM):], "input": reply["input"]["input"]}
    yield {"type": "response.created", "response": whole}
    begun = dict(item, status="in_progress")
    begun.update({key: type(item[key])() for key in ("arguments", "input", "content") if key in item})
    yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
    if custom(reply):
        yield {"type": "response.custom_tool_call_input.delta", "item_id": item["id"], "output_index": 0, "delta": item["input"]}
    elif "tool" in reply:
        yield {"type": "response.function_call_arguments.delta", "item_id": item["id"], "output_index": 0, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", "item_id": item["id"], "output_index": 0, "arguments": item["arguments"]}
    else:
        yield {"type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": reply["text"]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": dict(whole, status="completed", output=[item], usage={
        "input_tokens": total, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": out,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": total + out})}


def chat(number, model, reply):
    """The chunks of one streamed chat completion."""
    total, cached, out = tokens(reply)
    delta, reason = {"role": "assistant", "content": reply.get("text", "")}, "stop"
    if "tool" in reply:
        delta, reason = {"role": "assistant", "content": None, "tool_calls": [{
            "index": 0, "id": "call_%03d" % number, "type": "function",
            "function": {"name": reply["tool"], "arguments": json.dumps(reply["input"])}}]}, "tool_calls"
    chunk = {"id": "chatcmpl-%03d" % number, "object": "chat.completion.chunk", "created": 1795203487, "model": model}
    yield dict(chunk, choices=[{"index": 0, "delta": delta, "finish_reason": None}])
    yield dict(chunk, choices=[{"index": 0, "delta": {}, "finish_reason": reason}])
    yield dict(chunk, choices=[], usage={
        "prompt_tokens": total, "completion_tokens": out, "total_tokens": total + out,
        "prompt_tokens_details": {"cached_tokens": cached}})


def texts(content):
    """The texts of a message's content."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content or [] if part.get("text")]


def said(request, *roles):
    """What those roles said in the request."""
    found = []
    for m in request.get("input") or request.get("messages") or []:
        if m.get("role") in roles:
            found += texts(m.get("content"))
        elif m.get("type") == "function_call_output" and "tool" in roles:
            found += texts(m.get("output"))
    return found


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    calls = 0

    def answer(self, status, kind, body, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.answer(426, "application/json", b"{}")
            return
        self.answer(200, "application/json", b'{"object": "list", "data": []}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        make = {"/v1/responses": response, "/v1/chat/completions": chat}.get(self.path)
        if not make:
            self.answer(404, "application/json", b"{}")
            return
        Handler.calls += 1
        request = json.loads(body)
        right = self.headers.get("Authorization", "").startswith("Bearer sk-right-")
        side = not request.get("tools") and not any(custom(r) for r in SCRIPT)  # with tools that take text, none is named in any call
        reply = WRONG if not right else SIDE if side else next(replies, END)
        self.log({
            "status": reply.get("status", 200), "usage": reply.get("usage", {}), "path": self.path, "model": request["model"],
            "prompt": said(request, "user"), "results": said(request, "tool"),
            "instructions": texts(request.get("instructions")) + said(request, "system", "developer")})
        if "error" in reply:
            more = [("Retry-After", str(reply["retry_after"]))] if "retry_after" in reply else []
            self.answer(reply["status"], "application/json", json.dumps({"error": reply["error"]}).encode(), more)
            return
        events = list(make(Handler.calls, request["model"], reply))
        out = "".join(("event: %s\n" % e["type"] if "type" in e else "") + "data: %s\n\n" % json.dumps(e) for e in events)
        if make is chat:
            out += "data: [DONE]\n\n"
        self.answer(200, "text/event-stream", out.encode())

    def log(self, entry):
        with open(LOG, "a") as f:
            f.write(json.dumps(entry) + "\n")

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
