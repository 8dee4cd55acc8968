#!/usr/bin/env python3
"""Prints one of the two commands that the README gives for a fresh clone.

    readme_commands.py demo|test [README]
    readme_commands.py --self-test

The README marks them with `<!-- two commands -->` before an `sh` block of exactly two lines: the demo and the tests.
Comments after a command are removed. If the block has another form, the exit code is 1 and the reason is printed.
"""

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
NAMES = {"demo": "cargo run ", "test": "cargo test "}


def commands(text):
    """Returns the commands by name. Raises ValueError if the block is invalid."""
    blocks = re.findall(r"^<!-- two commands -->\n```sh\n(.*?)^```$", text, re.M | re.S)
    if len(blocks) != 1:
        raise ValueError(f"there are {len(blocks)} blocks marked with two commands, not 1")
    lines = [re.sub(r"\s+#.*", "", line).strip() for line in blocks[0].splitlines()]
    if len(lines) != 2:
        raise ValueError(f"the marked block has {len(lines)} lines, not 2")
    for line, (name, start) in zip(lines, NAMES.items()):
        if not line.startswith(start):
            raise ValueError(f"the {name} command does not start with {start!r}: {line!r}")
    return dict(zip(NAMES, lines))


def self_test():
    block = "<!-- two commands -->\n```sh\ncargo run -- demo   # shows it\ncargo test --workspace\n```\n"
    assert commands("# x\n\n" + block + "\n```sh\nrm -rf x\n```\n") == {"demo": "cargo run -- demo", "test": "cargo test --workspace"}
    for bad in ["", block + block, block.replace("cargo run", "cargo install"), block.replace("```\n", "true\n```\n"),
                block.replace("cargo test --workspace\n", ""), block.replace("<!-- two commands -->\n", "")]:
        try:
            commands(bad)
        except ValueError:
            continue
        raise AssertionError(f"accepted: {bad!r}")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:2] not in (["demo"], ["test"]):
        sys.exit(__doc__)
    try:
        print(commands(Path(sys.argv[2] if sys.argv[2:] else README).read_text())[sys.argv[1]])
    except (OSError, ValueError) as error:
        sys.exit(f"error: README's commands cannot be read: {error}")


main()
