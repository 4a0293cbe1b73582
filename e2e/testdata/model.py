"""A scripted stand-in for the Anthropic Messages API, for the real Claude Code CLI.

usage: model.py PORT SCRIPT LOG

SCRIPT is a JSON list of replies, one for each call of the main conversation:
{"text": ...} or {"tool": name, "input": {...}}, with "usage": {"input_tokens": n, ...}.
LOG gets one JSON line for each call: the usage it was answered with, what the user said first, and what tools answered.
A call without the key "sk-right-..." is answered like the real API does, with 401.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, SCRIPT, LOG = int(sys.argv[1]), json.load(open(sys.argv[2])), sys.argv[3]
SIDE = {"text": "title", "usage": {"input_tokens": 7, "output_tokens": 3}}  # calls beside the conversation
END = {"text": "nothing more to do", "usage": {"input_tokens": 1, "output_tokens": 1}}
replies = iter(SCRIPT)


def stream(number, model, reply):
    """The events of one streamed reply."""
    usage = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
    usage.update(reply["usage"])
    block, delta, stop = {"type": "text", "text": ""}, {"type": "text_delta", "text": reply.get("text", "")}, "end_turn"
    if "tool" in reply:
        block = {"type": "tool_use", "id": "toolu_%03d" % number, "name": reply["tool"], "input": {}}
        delta, stop = {"type": "input_json_delta", "partial_json": json.dumps(reply["input"])}, "tool_use"
    yield {"type": "message_start", "message": {
        "id": "msg_%03d" % number, "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": dict(usage, output_tokens=1)}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def said(message):
    """What the user said in a message, without what the CLI adds."""
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [b["text"] for b in content if b["type"] == "text" and not b["text"].startswith("<system-reminder>")]


def results(messages):
    """The texts that tools answered."""
    blocks = [b for m in messages if isinstance(m["content"], list) for b in m["content"] if b["type"] == "tool_result"]
    return [c["text"] for b in blocks if isinstance(b.get("content"), list) for c in b["content"] if c["type"] == "text"]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    calls = 0

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, "application/json", b"{}")

    def do_HEAD(self):
        self.answer(200, "application/json", b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
            self.answer(404, "application/json", b"{}")
            return
        Handler.calls += 1
        if not self.headers.get("X-Api-Key", "").startswith("sk-right-"):
            self.log({"status": 401})
            self.answer(401, "application/json", json.dumps(
                {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}).encode())
            return
        request = json.loads(body)
        reply = next(replies, END) if request.get("tools") else SIDE
        self.log({"status": 200, "usage": reply["usage"], "prompt": said(request["messages"][0]), "results": results(request["messages"])})
        out = "".join("event: %s\ndata: %s\n\n" % (e["type"], json.dumps(e)) for e in stream(Handler.calls, request["model"], reply))
        self.answer(200, "text/event-stream", out.encode())

    def log(self, entry):
        with open(LOG, "a") as f:
            f.write(json.dumps(entry) + "\n")

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
