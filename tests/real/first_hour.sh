#!/usr/bin/env bash
# Three first hours of a new user, each in an own home folder: the demo on a machine without bubblewrap and without a
# database; a project without a model, from `runner init` on a terminal to a reviewed proposal; and a person who adds a
# job that fails, finds the reason, and repairs it.
# usage (root): tests/real/first_hour.sh RUNNER
set -euo pipefail
check="first hour"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can hide bubblewrap"
need tmux unshare git jq
runner=$(realpath "$1")
unshare --mount true 2>/dev/null || skip host "no namespaces here"
outer=$(mktemp -d)
socket=$outer/tmux
trap 'tmux -S "$socket" kill-server 2>/dev/null || true; rm -rf "$outer"' EXIT
mkdir "$outer/bin"
cp "$runner" "$outer/bin/runner"

fail() { echo "first hour: $*" >&2; exit 1; }

# new_home NAME: an own home folder with a repository of one commit.
new_home() {
    export HOME=$outer/$1 PATH=$outer/bin:/usr/sbin:/usr/bin:/sbin:/bin TZ=UTC
    unset XDG_STATE_HOME XDG_CONFIG_HOME ANTHROPIC_API_KEY OPENAI_API_KEY
    mkdir -p "$HOME/my-repository"
    cd "$HOME/my-repository"
    git config --global user.name a
    git config --global user.email a@example.org
    git init --quiet --initial-branch=main
    git commit --quiet --allow-empty --message Begin
}

# shown TEXT: waits until the terminal shows a text.
shown() {
    for _ in $(seq 100); do
        if tmux -S "$socket" capture-pane -p | grep --quiet --fixed-strings -- "$1"; then return 0; fi
        sleep 0.1
    done
    tmux -S "$socket" capture-pane -p >&2
    fail "the terminal does not show: $1"
}
type_line() { tmux -S "$socket" send-keys "$1" Enter; }

new_home demo
if [ -e /usr/bin/bwrap ]; then
    unshare --mount sh -c 'mount --bind /dev/null /usr/bin/bwrap && runner demo' > "$HOME/out" 2>&1
else
    runner demo > "$HOME/out" 2>&1
fi || { cat "$HOME/out" >&2; fail "the demo failed"; }
grep --quiet '^\*\*7 succeeded' "$HOME/out" || fail "not all runs of the demo succeeded"
grep --quiet 'files-only' "$HOME/out" || fail "the demo does not name its sandbox level"
[ "$(sed -n '/^Do this first:$/,$p' "$HOME/out" | grep --count '^  ')" = 3 ] || fail "no three commands at the end"
[ ! -e "$HOME/.local/state/runner" ] || fail "the demo used the user's own database"
jq --raw-output '.[].id' runner-demo/dreams/2*/proposals.json > "$HOME/ids"
while read -r id; do
    runner -C runner-demo dream accept "$id" > /dev/null || fail "proposal $id cannot be accepted"
done < "$HOME/ids"
[ "$(wc -l < "$HOME/ids")" = 6 ] || fail "not six proposals"

new_home terminal
tmux -S "$socket" -f /dev/null new-session -d -x 110 -y 45 "env PS1='ready> ' sh"
shown 'ready>'
type_line 'runner init'
shown 'When does the night open?'
type_line '03:15'
shown 'How many model calls'
type_line 'many'
shown 'not a valid answer'
type_line '20'
shown 'sample note'
type_line ''
shown 'Set up a timer'
type_line 'n'
shown 'runner dream review'
[ "$(runner config get night.at)" = 03:15 ] || fail "the time was not set"
[ "$(runner config get night.budget.calls)" = 20 ] || fail "the budget was not set"
type_line 'clear; runner night'
shown '1 succeeded'
type_line 'clear; runner status --watch'
shown 'last night'
tmux -S "$socket" send-keys q
type_line 'echo "ended with $?"'
shown 'ended with 0'
id=$(runner dream list --json | jq --raw-output '.[0].id')
runner dream accept "$id" > /dev/null

new_home operations
runner init --yes --quiet
runner jobs add --quiet fetch --kind command program=sh 'args=["-c", "curl --silent --show-error http://example.org"]'
if runner run fetch 2> "$HOME/err"; then fail "a command without a network succeeded"; fi
grep --quiet 'network = true' "$HOME/err" || fail "the reason does not name the setting"
runner logs fetch | grep --quiet 'resolve host' || fail "the log does not have the output"
[ "$(runner runs --failed --since 7d --json | jq length)" = 1 ] || fail "the failed run is not listed"
runner config set --quiet jobs.fetch.program true
runner jobs run fetch
[ "$(runner jobs --json | jq --raw-output '.[] | select(.job == "fetch").failures')" = 0 ] || fail "the failure stays"
runner config unset --quiet jobs.fetch
echo "first hour: ok"
