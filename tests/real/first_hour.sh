#!/usr/bin/env bash
# First hours of new users, each in a separate home folder: the demo on a machine without bubblewrap and without a
# database; a project without a model, from `runner init` on a terminal to a reviewed proposal; the same with Claude
# Code and a scripted model; and a person who adds a job that fails, finds the reason, and repairs it.
# usage (root): tests/real/first_hour.sh RUNNER [FOLDER_OF_PROGRAMS]
set -euo pipefail
check="first hour"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can hide bubblewrap"
need tmux unshare git jq python3 curl
runner=$(realpath "$1")
agents=${2:-/nonexistent}
unshare --mount true 2>/dev/null || skip host "no namespaces here"
here=$(realpath "$(dirname "$0")")
. "$here/new_user.sh"

demo_hour() {
    new_home demo
    cd "$HOME"
    if [ -e /usr/bin/bwrap ]; then
        unshare --mount sh -c 'mount --bind /dev/null /usr/bin/bwrap && runner demo' > out 2>&1
    else
        runner demo > out 2>&1
    fi || { cat out >&2; fail "the demo failed"; }
    grep --quiet '^\*\*7 succeeded' out || fail "not all runs of the demo succeeded"
    grep --quiet 'files-only' out || fail "the demo does not name its sandbox level"
    [ "$(sed -n '/^Do this first:$/,$p' out | grep --count '^  runner\|&& runner')" = 3 ] || fail "the demo does not suggest three commands"
    [ ! -e "$HOME/.local/state/runner" ] || fail "the demo used the user's own database"
    jq --raw-output '.[].id' runner-demo/dreams/2*/proposals.json > ids
    [ "$(wc -l < ids)" = 6 ] || fail "the demo did not make six proposals"
    local verb id
    for verb in accept undo accept; do
        while read -r id; do
            runner -C runner-demo dream "$verb" "$id" > /dev/null || fail "$verb $id failed"
        done < ids
    done
    [ "$(runner -C runner-demo dream list --json)" = '[]' ] || fail "a proposal waits for a decision"
}

# init_at_terminal CALLS: answers the questions of `runner init` after that about the backend, and declines the timer.
init_at_terminal() {
    shown 'When does the night open?'
    type_line '03:15'
    shown 'How many model calls'
    type_line 'many'
    shown 'not a valid answer'
    type_line "$1"
    shown 'sample note'
    type_line ''
    shown 'Set up a timer'
    type_line 'n'
    shown 'runner dream review'
    [ "$(runner config get night.at)" = 03:15 ] || fail "the time was not set"
    [ "$(runner config get night.budget.calls)" = "$1" ] || fail "the budget was not set"
}

# review_at_terminal: accepts the only proposal with one key.
review_at_terminal() {
    type_line "clear; $(in_readme 'runner dream review')"
    shown 'try-runner.md'
    type_key Enter
    shown 'accept'
    type_key a
    shown 'accepted'
    type_key q
    shown 'No undecided proposals'
    type_key q
    shown 'ready>'
    type_line 'clear; echo "review ended with $?"'
    shown 'review ended with 0'
    [ "$(runner dream list --json)" = '[]' ] || fail "the proposal waits for a decision"
}

no_model_hour() {
    new_home terminal
    open_terminal
    type_line "$(in_readme 'runner init')"
    init_at_terminal 20
    type_line "clear; $(in_readme 'runner night --dry-run')"
    shown 'no backend was asked and nothing was written'
    type_line "clear; $(in_readme 'runner night')"
    shown '1 succeeded' 60
    review_at_terminal
    type_line "clear; $(in_readme 'runner status') --watch"
    shown 'last night'
    type_key q
    shown 'ready>'
    type_line 'clear; echo "status ended with $?"'
    shown 'status ended with 0'
    runner status | grep --quiet 'try-runner\|1 succeeded' || fail "the status does not show the night"
}

claude_hour() {
    PATH=$agents:$PATH command -v claude > /dev/null || { (skip claude "the first hour with claude"); return; }
    new_home claude
    local proposal='[{"targets": ["ideas/try-runner.md"], "status": "meritorious", "action": "promote",
        "evidence": "no commit names it", "commits": [], "confidence": "high", "quote": "",
        "rationale": "it asks for work"}]'
    proposal=$(jq --compact-output --null-input --argjson answer "$proposal" '{answer: $answer} | tojson | @uri' --raw-output)
    python3 "$here/../fakes/model_stub.py" "$outer/port" 300 &
    local stub=$!
    while [ ! -s "$outer/port" ]; do sleep 0.1; done
    local base
    base="http://127.0.0.1:$(cat "$outer/port")/dream;json=$proposal"
    export PATH=$agents:$PATH ANTHROPIC_API_KEY=key-of-the-stub ANTHROPIC_BASE_URL=$base
    open_terminal
    type_line "$(in_readme 'runner init')"
    shown '1  claude: ' 60
    type_line '1'
    init_at_terminal 5
    [ "$(runner config get jobs.dream.backend)" = claude ] || fail "the job does not ask claude"
    [ "$(runner config get jobs.dream.budget.calls)" = 5 ] || fail "a run may need more calls than the night has"
    type_line "clear; $(in_readme 'runner night --dry-run')"
    shown 'night' 60
    [ "$(calls_of_stub)" = 0 ] || fail "a dry run asked the model"
    type_line "clear; $(in_readme 'runner night')"
    shown '1 succeeded' 120
    [ "$(calls_of_stub)" = 1 ] || fail "the night did not ask the model once"
    local run
    run=$(runner runs --job dream --json | jq --raw-output '.[0].id')
    runner runs show "$run" > "$HOME/shown"
    grep --quiet '^backend *claude' "$HOME/shown" || fail "the run does not name claude as its backend"
    grep --quiet 'reply of claude' "$HOME/shown" || fail "the run does not show the model's reply"
    runner report --html | grep --quiet 'it asks for work' || fail "the page does not show the model's reply"
    runner report | grep --quiet 'Spent 1 model call' || fail "the report does not state the cost"
    review_at_terminal
    [ -e specs/try-runner.md ] || fail "the accepted idea was not promoted"
    kill "$stub"
    wait "$stub" 2>/dev/null || true
}

calls_of_stub() { curl --silent "http://127.0.0.1:$(cat "$outer/port")/dream/calls" | jq .calls; }

operations_hour() {
    new_home operations
    runner init --yes --quiet
    runner jobs add --quiet fetch --kind command program=sh 'args=["-c", "curl --silent --show-error http://example.org"]'
    if runner run fetch 2> "$HOME/err"; then fail "a command without a network succeeded"; fi
    grep --quiet 'example.org' "$HOME/err" || fail "the reason does not name the host"
    grep --quiet 'network = true' "$HOME/err" || fail "the reason does not name the setting"
    runner logs fetch | grep --quiet 'resolve host' || fail "the log does not contain the output"
    local run
    run=$($(in_readme 'runner runs --failed --since 7d') --json | jq --raw-output '.[].id')
    runner runs show "$run" > "$HOME/shown"
    local text
    for text in 'network = true' "$HOME/.local/state/runner/runs/$run" 'last lines of stderr'; do
        grep --quiet --fixed-strings "$text" "$HOME/shown" || fail "the run does not show: $text"
    done
    if runner night --quiet; then fail "a night with a failed run succeeded"; fi
    runner report --html | sed 's:&#x2f;:/:g' > "$HOME/page.html"
    for text in 'example.org' 'network = true' "$HOME/.local/state/runner/runs/" 'last lines of stderr'; do
        grep --quiet --fixed-strings "$text" "$HOME/page.html" || fail "the page does not show: $text"
    done
    runner config set --quiet jobs.fetch.program true
    runner jobs run fetch
    [ "$(runner jobs --json | jq --raw-output '.[] | select(.job == "fetch").failures')" = 0 ] || fail "the failure count was not reset"
    $(in_readme 'runner pause --all') --quiet
    runner jobs | grep --quiet 'paused' || fail "the pause is not shown"
    $(in_readme 'runner resume --all') --quiet
    runner config unset --quiet jobs.fetch
    cd "$HOME"
    $(in_readme 'runner projects forget ~/my-repository --yes' | sed "s:~:$HOME:") --quiet
    [ "$(runner projects --json | jq length)" = 0 ] || fail "the project is not forgotten"
}

demo_hour
no_model_hour
claude_hour
operations_hour
echo "first hour: ok"
