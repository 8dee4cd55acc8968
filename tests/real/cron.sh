#!/usr/bin/env bash
# Checks that Debian's cron starts the nights that `runner setup --apply` configures. In a mount namespace, empty
# files and folders cover cron's spool, system tables and PID file, so the script does not touch the machine's own.
# usage (root): tests/real/cron.sh RUNNER [SCRIPT]   (SCRIPT beside this file, run while cron runs; default nights.sh)
set -euo pipefail
check="real cron"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can cover the spool"
need cron crontab unshare python3 git
runner=$(realpath "$1")
script=${2:-nights.sh}
if [ "${3:-}" != inside ]; then
    unshare --mount --pid --fork true 2>/dev/null || skip host "no namespaces here"
    exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$runner" "$script" inside
fi
mount --make-rprivate /
mount -t tmpfs none /var/spool/cron
install -d -m 1730 -g crontab /var/spool/cron/crontabs
mount -t tmpfs none /run
mount -t tmpfs none /etc/cron.d
mount --bind /dev/null /etc/crontab
# The path contains characters that are special to cron, shells or parsers.
outer=$(mktemp -d)
trap 'rm -rf "$outer"' EXIT
folder="$outer/it's 100% \$HOME \"é\" & <x>"
mkdir "$folder"
cp "$runner" "$folder/runner"
runner=$folder/runner
export USER=root LOGNAME=root
printf 'MAILTO=""\n# somebody else\n7 7 * * 7 true\n' | crontab -
# Cron compares modification times in whole seconds, so it never notices a change in the second of its check.
touch -d '1 minute ago' /var/spool/cron/crontabs /var/spool/cron/crontabs/root
cron -f -L 0 &
daemon=$!
# Runs the script in a session of its own inside the PID namespace.
setsid --wait "$(dirname "$0")/$script" "$runner" cron "$folder"
kill "$daemon"
