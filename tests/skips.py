"""Records checks that were skipped because a program is missing; `skips.sh` describes the file."""

import os


def skip(program, reason):
    """Prints a skipped check and appends it to the file that RUNNER_SKIPS names."""
    print(f"skipped {reason}", flush=True)
    if file := os.environ.get("RUNNER_SKIPS"):
        with open(file, "a") as lines:
            lines.write(f"{program}\t{reason}\n")
