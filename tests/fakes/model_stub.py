#!/usr/bin/env python3
"""A scripted model that serves the Anthropic Messages API and the OpenAI Responses API on loopback.

    model_stub.py PORT_FILE [SECONDS [ADDRESS CERTIFICATE]]

The first part of a request's path is its scenario, so that one server can serve many independent clients at
once:

    answer         one text, or JSON that fits a small schema if the request asks for JSON
    status-CODE    an HTTP error; status-429-7 also sends `retry-after: 7`
    credit         the error of an account without credit
    limit          429 for a subscription whose five-hour limit is used up until 2030
    overage        an answer that is billed beyond the subscription
    stall, cut     half an answer, then silence or the end of the connection
    late           no answer
    empty          an answer without content
    page           status 200 with a web page
    loop           a tool call as the answer to every request
    tool           one tool call (a shell command: the query `sh=`), then the text
    answer with `json=`: this JSON if the request asks for JSON; `wild=` if the requested schema has a first
                   step; `@1@`, `@2@` … are replaced with the packet ids in the request
    dream          the answer in the query: `json=` if the request asks for JSON, otherwise the text; `sh=` adds
                   a tool call before the answer; with `plain=1` always the text

`GET /SCENARIO/calls` returns the number of model requests for the scenario. The server exits after SECONDS
(default 300). With a CERTIFICATE, a file that also contains its key, it serves HTTPS at the loopback address
ADDRESS. It must never be reachable from another machine.
"""

import json
import os
import re
import ssl
import sys
import threading
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CALLS = Counter()
GUARD = threading.Lock()
OVER = threading.Event()
WORDS = "five words from the stub"
# A tool call (name and input) that the model makes first, if a program that imports this one sets it.
TOOL = None
KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
         429: "rate_limit_error", 529: "overloaded_error"}

LIMITS = "anthropic-ratelimit-unified-"
USED_UP = {LIMITS + "status": "rejected", LIMITS + "reset": "1893456000",
           LIMITS + "representative-claim": "five_hour"}
BEYOND = USED_UP | {LIMITS + "overage-status": "allowed", LIMITS + "overage-in-use": "true"}


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.plain(200, b"")

    def do_GET(self):
        scenario, rest, _ = self.place()
        if rest == "calls":
            with GUARD:
                return self.json(200, {"calls": CALLS[scenario]})
        if rest.endswith("models"):
            return self.json(200, {"data": [], "models": [], "object": "list", "has_more": False})
        self.json(404, {"type": "error", "error": {"type": "not_found_error", "message": "nothing here"}})

    def do_POST(self):
        scenario, rest, query = self.place()
        body = self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"
        asked = json.loads(body)
        self.body = body.decode(errors="replace")
        if not rest.endswith(("v1/messages", "/responses")):
            return self.json(404, {"type": "error", "error": {"type": "not_found_error", "message": "nothing here"}})
        with GUARD:
            CALLS[scenario] += 1
            self.number = CALLS[scenario]
        self.scenario = scenario
        try:
            if not self.refused():
                (self.anthropic if rest.endswith("messages") else self.openai)(asked, query)
        except OSError:
            pass  # the client disconnected

    def place(self):
        url = urllib.parse.urlsplit(self.path)
        scenario, _, rest = url.path.lstrip("/").partition("/")
        # A scenario may contain a query (`tool;sh=...`), for clients that append a path to the base URL.
        scenario, _, own = scenario.partition(";")
        return scenario, rest, dict(urllib.parse.parse_qsl(own))

    def wanted(self, query):
        """Returns the JSON in the query, with the packet ids from the request."""
        text = query["wild"] if "wild" in query and "first_step" in self.body else query.get("json", '{"answer": [1]}')
        for number, name in enumerate(dict.fromkeys(re.findall(r"dream-[0-9a-f]{16}", self.body)), 1):
            text = text.replace(f"@{number}@", name)
        return text

    # -- refusals of both APIs

    def refused(self):
        kind, *values = self.scenario.split("-")
        if kind == "status":
            code = int(values[0])
            more = {"retry-after": values[1]} if values[1:] else {}
            error = {"type": KINDS.get(code, "api_error"), "code": KINDS.get(code), "message": f"the stub says {code}"}
            self.json(code, {"type": "error", "error": error}, more)
        elif kind == "limit":
            error = {"type": KINDS[429], "message": "the five hours are used up"}
            self.json(429, {"type": "error", "error": error}, USED_UP)
        elif kind == "credit":
            words = "Your credit balance is too low to access the API."
            self.json(400, {"type": "error", "error": {"type": KINDS[400], "message": words}})
        elif kind == "page":
            self.plain(200, b"<html>not what was asked for</html>", {"content-type": "text/html"})
        elif kind == "late":
            OVER.wait()
        else:
            return False
        return True

    # -- Anthropic Messages

    def anthropic(self, asked, query):
        tools = [tool.get("name") for tool in asked.get("tools") or []]
        last = (asked.get("messages") or [{}])[-1].get("content")
        returned = isinstance(last, list) and any(part.get("type") == "tool_result" for part in last)
        stop, block = "end_turn", {"type": "text", "text": WORDS}
        call = {"type": "tool_use", "id": f"toolu_{os.urandom(6).hex()}"}
        calls = self.scenario == "tool" or (self.scenario == "dream" and "sh" in query)
        if self.scenario == "loop" or (calls and not returned):
            stop = "tool_use"
            block = call | {"name": "Bash", "input": {"command": query.get("sh", "true"), "description": "a try"}}
        elif TOOL and not returned:
            stop, block = "tool_use", call | {"name": TOOL[0], "input": TOOL[1]}
        elif "StructuredOutput" in tools and "plain" not in query:
            value = json.loads(self.wanted(query))
            stop, block = "tool_use", call | {"name": "StructuredOutput", "input": value}
        used = {"input_tokens": 1200, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 5000,
                "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 0}}
        message = {"id": f"msg_{os.urandom(6).hex()}", "type": "message", "role": "assistant",
                   "model": asked.get("model"), "content": [], "stop_reason": None, "stop_sequence": None,
                   "usage": used | {"output_tokens": 1}}
        blocks = [] if self.scenario == "empty" else [block]
        if not asked.get("stream"):
            self.json(200, message | {"content": blocks, "stop_reason": stop, "usage": used | {"output_tokens": 17}})
            return
        self.begin_stream()
        self.say("message_start", message=message)
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                start, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            self.say("content_block_start", index=index, content_block=start)
            if self.scenario in ("stall", "cut"):
                self.say("content_block_delta", index=index, delta={"type": "text_delta", "text": "five w"})
                return self.broken()
            self.say("content_block_delta", index=index, delta=delta)
            self.say("content_block_stop", index=index)
        self.say("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=used | {"output_tokens": 17})
        self.say("message_stop")

    # -- OpenAI Responses

    def openai(self, asked, query):
        items = asked.get("input") if isinstance(asked.get("input"), list) else []
        returned = any(str(item.get("type", "")).endswith("call_output") for item in items)
        wants_json = (asked.get("text") or {}).get("format", {}).get("type") == "json_schema"
        text = "" if self.scenario == "empty" else self.wanted(query) if wants_json else WORDS
        name = os.urandom(6).hex()
        message = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed",
                   "content": [{"type": "output_text", "text": text, "annotations": []}]}
        item = message
        if self.scenario == "loop" or (self.scenario == "tool" and not returned):
            tools = [tool.get("name") for tool in asked.get("tools") or []]
            tool = next((known for known in ("exec_command", "shell_command", "shell") if known in tools), "shell")
            script = query.get("sh", "true")
            arguments = {"exec_command": {"cmd": script}, "shell_command": {"command": script},
                         "shell": {"command": ["sh", "-c", script]}}[tool]
            item = {"type": "function_call", "id": f"fc_{name}", "call_id": f"call_{name}", "name": tool,
                    "arguments": json.dumps(arguments), "status": "completed"}
        response = {"id": f"resp_{name}", "object": "response", "created_at": 0, "status": "in_progress",
                    "model": asked.get("model"), "output": [], "usage": None}
        used = {"input_tokens": 6500, "input_tokens_details": {"cached_tokens": 5000}, "output_tokens": 17,
                "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 6517}
        self.begin_stream()
        self.say("response.created", response=response)
        if self.scenario in ("stall", "cut"):
            self.say("response.output_item.added", output_index=0, item=message | {"content": [], "status": "in_progress"})
            self.say("response.output_text.delta", item_id=message["id"], output_index=0, content_index=0, delta="five w")
            return self.broken()
        if self.scenario != "empty" or item is not message:
            self.say("response.output_item.done", output_index=0, item=item)
        self.say("response.completed", response=response | {"status": "completed", "output": [item], "usage": used})

    # -- HTTP

    def broken(self):
        if self.scenario == "stall":
            OVER.wait()
        self.close_connection = True

    def begin_stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        if self.scenario == "overage":
            for name, value in BEYOND.items():
                self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    def say(self, kind, **fields):
        event = {"type": kind, **fields}
        self.wfile.write(f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def json(self, code, value, headers=None):
        self.plain(code, json.dumps(value).encode(), {"content-type": "application/json", **(headers or {})})

    def plain(self, code, body, headers=None):
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def main():
    address, certificate = sys.argv[3:5] if sys.argv[4:] else ("127.0.0.1", None)
    server = ThreadingHTTPServer((address, 0), Model)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = True
    port_file = sys.argv[1]
    with open(port_file + ".new", "w") as file:
        file.write(str(server.server_address[1]))
    os.rename(port_file + ".new", port_file)
    seconds = float(sys.argv[2]) if sys.argv[2:] else 300
    ending = threading.Timer(seconds, lambda: os._exit(0))
    ending.daemon = True
    ending.start()
    server.serve_forever()


if __name__ == "__main__":
    main()
