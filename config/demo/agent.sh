#!/bin/sh
# The demo's agent. It follows a script instead of asking a model, and writes the same output as
# `claude -p`, so that runner treats it like that program. It needs no network.
set -u
export GIT_AUTHOR_NAME='Mara Tide' GIT_AUTHOR_EMAIL=mara@example.org
export GIT_COMMITTER_NAME='Mara Tide' GIT_COMMITTER_EMAIL=mara@example.org
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
case "${1:-}" in --version) echo '2.1.330 (Claude Code)'; exit 0 ;; esac
request=$(cat)
uses=0

# Prints a line unchanged. The echo of some shells would interpret backslashes.
say() { printf '%s\n' "$1"; }

# Escapes text for a JSON string.
quote() { printf '%s' "$1" | tr '\n\t' '  ' | sed 's/\\/\\\\/g; s/"/\\"/g'; }

# Runs a command as the use of a tool. Arguments: the tool's name, the name and value of its
# argument, and the command.
tool() {
    name=$1 key=$2 value=$(quote "$3")
    shift 3
    uses=$((uses + 1))
    say "{\"type\":\"assistant\",\"message\":{\"id\":\"m$uses\",\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"t$uses\",\"name\":\"$name\",\"input\":{\"$key\":\"$value\"}}]}}"
    if said=$("$@" 2>&1); then bad=false; else bad=true said="Exit code 1 $said"; fi
    say "{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t$uses\",\"is_error\":$bad,\"content\":\"$(quote "$said")\"}]}}"
    [ "$bad" = false ]
}

# Reports the answer, with structured output if it is given, and exits.
finish() {
    say "{\"type\":\"assistant\",\"message\":{\"id\":\"end\",\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"$(quote "$1")\"}],\"usage\":{\"input_tokens\":900,\"output_tokens\":120}}}"
    say "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"num_turns\":$((uses + 1)),\"result\":\"$(printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g' | awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }')\"${2:+,\"structured_output\":$2},\"total_cost_usd\":0,\"usage\":{\"input_tokens\":900,\"output_tokens\":120}}"
    exit 0
}

# Changes a file in place. Unlike sed -i, it writes no other file to the folder, which the sandbox may
# refuse.
edit() { changed=$(sed "$1" "$2") && printf '%s\n' "$changed" > "$2"; }
put() { printf '%s\n' "$2" > "$1"; }
commit() { git add -- "$@" && git commit --quiet -m "$message"; }
picked() { printf '%s\n' "$request" | sed -n 's/^PICKED  //p' | head -n 1; }

say '{"type":"system","subtype":"init","session_id":"demo","model":"scripted","tools":["Bash","Write","Edit"],"mcp_servers":[],"permissionMode":"default"}'

case "$request" in
*'waking up to work'*)
    task=$(picked)
    page="docs/$(printf '%s' "$task" | tr -cs 'a-zA-Z0-9' '-' | tr 'A-Z' 'a-z' | sed 's/^-//; s/-$//').md"
    tool Bash command "ls docs" ls docs
    tool Write file_path "$page" put "$page" "# $task"
    if ! tool Bash command "grep -q water $page" grep -q water "$page"; then
        tool Edit file_path "$page" put "$page" "# $task

The higher the water, the darker the line."
        tool Bash command "grep -q water $page" grep -q water "$page"
    fi
    case "$task" in
    *accuracy*) tool Write file_path rem/forged.org put rem/forged.org "* tale" ;;
    esac
    tool Edit file_path plan.org edit "s/^\(\*\*\) DOING $task/\1 DONE $task/" plan.org
    message="add: $task"
    tool Bash command "git commit -m '$message'" commit "$page" plan.org
    finish "The page $page is written, its check passes, and the board says DONE."
    ;;
*'waking up to audit'*)
    tool Bash command "wc -l docs/*.md" sh -c 'wc -l docs/*.md'
    tool Bash command "grep -L water docs/*.md" sh -c 'grep -L water docs/*.md || :'
    tool Write file_path docs/AUDIT.md put docs/AUDIT.md "Every new page was opened and says what its title promises."
    message="audit: each new page says what its title promises"
    tool Bash command "git commit -m '$message'" commit docs/AUDIT.md plan.org
    words="Each page was opened."
    for number in $(printf '%s\n' "$request" | sed -n 's/^claim \([0-9]*\): .*/\1/p'); do
        words="$words
claim $number: holds — the page was opened"
    done
    finish "$words"
    ;;
*'waking up to plan'*)
    next=$(printf '%s\n' "$request" | sed -n 's/^- next action: //p' | head -n 1)
    tool Read file_path plan.org cat plan.org
    tool Edit file_path plan.org sh -c 'printf "%s\n" "** TODO a drawing for $(date +%Y)" >> plan.org'
    message="plan: a drawing is missing on the board"
    tool Bash command "git commit -m '$message'" commit plan.org
    finish "The carry says what is next: ${next:-nothing yet}. A drawing was missing on the board."
    ;;
*)
    line=$(printf '%s\n' "$request" | grep -E '^[0-9a-f]{7,40} add: ' | head -n 1)
    hash=${line%% *}
    page=$(printf '%s\n' "$request" | grep -oE 'docs/[a-z0-9-]+\.md' | head -n 1)
    entry="{\"tale\":\"Three runs added pages for visitors, the last of them in commit $hash. Each page failed its first check and passed the second. An attempt to write below rem/ was refused. An audit opened every page.\",\
\"goals\":[\"a page that colour-blind readers can use\",\"words for the weather desk once its data is there\",\"one drawing for each page\"],\
\"blue_sky\":[\"pages that show the water of this very hour\",\"harbours that write their own page\"],\
\"fears\":[\"three pages that say one thing in three ways\",\"words on accuracy that nobody measured\"],\
\"verdicts\":[{\"act\":\"pick-up\",\"task\":\"a page that colour-blind readers can use\",\"why\":\"the pages so far tell by colour alone\"},\
{\"act\":\"put-down\",\"task\":\"a page for the weather desk\",\"why\":\"its data is not there yet\"},\
{\"act\":\"cancel\",\"task\":\"short notes for the launch\",\"why\":\"there is no launch in sight\"}],\
\"carry\":{\"doing\":\"nothing\",\"next_action\":\"write the page that colour-blind readers can use\",\"file\":\"${page:-docs/export.md}\",\"verified\":[\"every page in docs names the water\",\"plan.org is committed\"]}}"
    finish "$entry" "$entry"
    ;;
esac
