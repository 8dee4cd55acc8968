# Functions for checks that act as a new user at a terminal. Source this file after setting `check` to the check's
# name and `runner` to the program. It creates the folder $outer, which is removed at the end.
# shellcheck shell=bash

outer=$(mktemp -d -p /var/tmp)
socket=$outer/tmux
trap 'tmux -S "$socket" kill-server 2>/dev/null || true; rm -rf "$outer"' EXIT
mkdir "$outer/bin"
cp "${runner:?}" "$outer/bin/runner"
readme=$(dirname "${BASH_SOURCE[0]}")/../../README.md
readme=$(realpath "$readme")

fail() { echo "${check:?}: $*" >&2; exit 1; }

# new_home NAME: creates a home folder with a repository of one commit, and changes to the repository.
new_home() {
    export HOME=$outer/$1 PATH=$outer/bin:/usr/sbin:/usr/bin:/sbin:/bin TZ=UTC
    unset XDG_STATE_HOME XDG_CONFIG_HOME ANTHROPIC_API_KEY ANTHROPIC_BASE_URL OPENAI_API_KEY
    mkdir -p "$HOME/my-repository"
    cd "$HOME/my-repository" || return
    git config --global user.name a
    git config --global user.email a@example.org
    git init --quiet --initial-branch=main
    git commit --quiet --allow-empty --message Begin
}

# open_terminal: opens a terminal of 110 by 45 characters in the current folder, with the current environment.
open_terminal() {
    tmux -S "$socket" kill-server 2>/dev/null || true
    # The old server may still be ending, so the new one has another socket.
    socket=$(mktemp -u -p "$outer" tmux.XXXXXX)
    tmux -S "$socket" -f /dev/null new-session -d -x 110 -y 45 "env PS1='ready> ' sh"
    shown 'ready>'
}

# shown TEXT [SECONDS]: waits until the terminal shows a text, for at most SECONDS (default: 10).
shown() {
    for _ in $(seq $((${2:-10} * 10))); do
        if tmux -S "$socket" capture-pane -p | grep --quiet --fixed-strings -- "$1"; then return 0; fi
        sleep 0.1
    done
    tmux -S "$socket" capture-pane -p >&2
    fail "the terminal does not show: $1"
}

type_line() { tmux -S "$socket" send-keys "$1" Enter; }
type_key() { tmux -S "$socket" send-keys "$1"; }

# in_readme COMMAND: prints the command, which the README must contain word for word.
in_readme() {
    grep --quiet --fixed-strings -- "$1" "$readme" || fail "the README does not contain: $1"
    echo "$1"
}
