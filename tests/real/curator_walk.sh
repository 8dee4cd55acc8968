#!/usr/bin/env bash
# Sets up a new user's curator, from an empty project to a working curator with a model. Runs each fix of
# `runner curator diagnose` verbatim in a shell, and checks that it solves the problem. Then breaks each part in
# turn. The model's server is tests/fakes/ollama_stub.py under the name `ollama`; in a network namespace it can
# use Ollama's own port.
# usage (root): tests/real/curator_walk.sh RUNNER
set -euo pipefail
check="curator's walk"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can make a namespace"
need unshare ip python3 git curl
runner=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
if [ "${2:-}" != inside ]; then
    unshare --net --pid --fork true 2>/dev/null || skip host "no namespaces here"
    exec unshare --net --pid --fork --kill-child --mount-proc "$here/curator_walk.sh" "$runner" inside
fi
ip link set lo up
outer=$(mktemp -d)
trap 'rm -rf "$outer"' EXIT
mkdir "$outer/it's mine" "$outer/bin" "$outer/home"
cp "$runner" "$outer/bin/runner"
printf '#!/bin/sh\nexec python3 "%s" "$@"\n' "$here/../fakes/ollama_stub.py" > "$outer/bin/ollama"
chmod 755 "$outer/bin/ollama"
cd "$outer/it's mine"
env -i HOME="$outer/home" USER=root LOGNAME=root TERM=dumb PATH="$outer/bin:$PATH" EDITOR=true TZ=UTC \
    python3 "$here/curator_walk.py"
