#!/usr/bin/env python3
"""A scripted Ollama: the server on loopback, and the parts of the command that a user types.

    ollama_stub.py --port-file FILE     serves on a free port, until standard input ends
    ollama serve                        serves at OLLAMA_HOST (127.0.0.1:11434)
    ollama pull MODEL                   adds a model to the server
    ollama rm MODEL                     removes a model from the server

The first part of a request's path may be a scenario, so that one server can serve many clients: `/cut/api/chat`.
The default is `good`. All faults were observed in a real server:

    good       an answer that fits the requested schema
    evil       an answer in the requested format with content that was not offered: places that do not exist,
               control characters, paths, far too much text, and two further events for each event
    missing    404, no such model             tools     400, tools are not supported
    badjson    400, invalid request           busy      503, too many requests
    killed     200, half an answer, and `unexpected EOF` in the last line
    cut        half an answer, and the end of the connection
    stall      half an answer, then silence   late      no answer
    page       200 and a web page             text      plain text although JSON was requested
    short      an answer that stops at the length limit, because the question filled the window
    unload     an answer without content, because the model was unloaded
    garbage    a line that is not JSON

`GET /SCENARIO/calls` returns the number of model requests for the scenario.
"""

import json
import os
import sys
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CALLS = Counter()
MODELS = set(os.environ.get("OLLAMA_STUB_MODELS", "").split())
GUARD = threading.Lock()
NAMES = "good evil missing tools badjson busy killed cut stall late page text short unload garbage".split()


def answer(schema, evil):
    """Returns an answer to one of the curator's questions."""
    asked = (schema or {}).get("properties", {})
    words = "Look\x1b[2J at\n../../etc/passwd\0 it" if evil else "words of the model"
    places = [99, -1, 0, 0, 10**9, "x", None] if evil else [0]
    if "suggestions" in asked:
        return {"suggestions": [{"finding": at, "text": words} for at in places] * (1000 if evil else 1)}
    if "chosen" in asked:
        return {"chosen": [{"candidate": at, "title": words} for at in places]}
    if "kept" in asked:
        return {"kept": [{"finding": at, "title": words} for at in places]}
    if "note" in asked:
        more = [{"severity": "high", "desired_action": "more", "budget": count} for count in (1, 2)]
        return {"note": words, "raise": more if evil else []}
    return {"answer": words}


class Ollama(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def place(self):
        first, _, rest = self.path.split("?")[0].strip("/").partition("/")
        return (first, rest) if first in NAMES else ("good", f"{first}/{rest}".strip("/"))

    def do_GET(self):
        scenario, rest = self.place()
        if rest == "calls":
            return self.json(200, {"calls": CALLS[scenario]})
        if rest == "api/version":
            return self.json(200, {"version": "0.12.3"})
        if rest == "api/tags":
            with GUARD:
                models = [{"name": it, "model": it, "modified_at": "2026-01-02T03:04:05Z", "size": 1, "digest": "d",
                           "details": {}} for it in sorted(MODELS)]
            return self.json(200, {"models": models})
        self.json(404, {"error": "not found"})

    def do_POST(self):
        scenario, rest = self.place()
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        with GUARD:
            if rest in ("api/pull", "api/delete"):
                (MODELS.add if rest == "api/pull" else MODELS.discard)(asked["model"])
                return self.json(200, {"status": "success"})
            CALLS[scenario] += 1
        try:
            self.chat(scenario, asked)
        except OSError:
            pass  # the client disconnected

    def chat(self, scenario, asked):
        model = asked.get("model", "m")
        refusals = {"missing": (404, f'model "{model}" not found, try pulling it first'),
                    "tools": (400, f"registry.ollama.ai/library/{model} does not support tools"),
                    "badjson": (400, "invalid character 'x' looking for beginning of value"),
                    "busy": (503, "server busy, please try again.  maximum pending requests exceeded")}
        if scenario in refusals:
            code, words = refusals[scenario]
            return self.json(code, {"error": words})
        if scenario == "late":
            time.sleep(3600)
        self.send_response(200)
        self.send_header("content-type", "text/html" if scenario == "page" else "application/x-ndjson")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        if scenario == "page":
            return self.wfile.write(b"<html>a login page</html>")
        evil = scenario == "evil"
        text = "I would rather talk." if scenario == "text" else json.dumps(answer(asked.get("format"), evil))
        half = len(text) // 2
        if scenario != "unload":
            self.piece(model, text[:half])
        if scenario == "killed":
            return self.line({"error": "an error was encountered while running the model: unexpected EOF"})
        if scenario == "garbage":
            return self.wfile.write(b"{\"model\": \n")
        if scenario == "cut":
            return
        if scenario == "stall":
            time.sleep(3600)
        if scenario not in ("unload", "short"):
            self.piece(model, text[half:])
        window = (asked.get("options") or {}).get("num_ctx", 4096)
        why = {"short": "length", "unload": "unload"}.get(scenario, "stop")
        self.line({"model": model, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": why,
                   "prompt_eval_count": window if scenario == "short" else 120, "eval_count": 17})

    def piece(self, model, words):
        self.line({"model": model, "message": {"role": "assistant", "content": words}, "done": False})

    def line(self, value):
        self.wfile.write(json.dumps(value).encode() + b"\n")
        self.wfile.flush()

    def json(self, code, value):
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    host, port = os.environ.get("OLLAMA_HOST", "127.0.0.1:11434").split(":")
    if sys.argv[1:2] in (["pull"], ["rm"]):
        what = "pull" if sys.argv[1] == "pull" else "delete"
        asked = urllib.request.Request(f"http://{host}:{port}/api/{what}", json.dumps({"model": sys.argv[2]}).encode())
        print(json.load(urllib.request.urlopen(asked, timeout=10))["status"])
        return
    own = sys.argv[1:2] == ["--port-file"]
    server = ThreadingHTTPServer(("127.0.0.1", 0) if own else (host, int(port)), Ollama)
    server.daemon_threads = True
    if not own:
        return server.serve_forever()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(sys.argv[2] + ".new", "w") as file:
        file.write(str(server.server_address[1]))
    os.rename(sys.argv[2] + ".new", sys.argv[2])
    sys.stdin.read()


if __name__ == "__main__":
    main()
