#!/usr/bin/env bash
# Debian's own cron makes the nights happen that `runner setup --apply` asks it for. Its spool, its other
# tables and its PID file are covered by empty ones in a mount namespace, so this machine's are not touched.
# usage (root): tests/real/cron.sh RUNNER
set -euo pipefail
check="real cron"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can cover the spool"
need cron crontab unshare python3 git
runner=$(realpath "$1")
if [ "${2:-}" != inside ]; then
    unshare --mount --pid --fork true 2>/dev/null || skip host "no namespaces here"
    exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$runner" inside
fi
mount --make-rprivate /
mount -t tmpfs none /var/spool/cron
install -d -m 1730 -g crontab /var/spool/cron/crontabs
mount -t tmpfs none /run
mount -t tmpfs none /etc/cron.d
mount --bind /dev/null /etc/crontab
# Everything lies where each character means something to somebody.
outer=$(mktemp -d)
trap 'rm -rf "$outer"' EXIT
folder="$outer/it's 100% \$HOME \"é\" & <x>"
mkdir "$folder"
cp "$runner" "$folder/runner"
runner=$folder/runner
export USER=root LOGNAME=root
printf 'MAILTO=""\n# somebody else\n7 7 * * 7 true\n' | crontab -
# It looks at whole seconds of change: what is written in the second in which it looks it never sees.
touch -d '1 minute ago' /var/spool/cron/crontabs /var/spool/cron/crontabs/root
cron -f -L 0 &
daemon=$!
# In a process group that the namespace knows.
setsid --wait "$(dirname "$0")/nights.sh" "$runner" cron "$folder"
kill "$daemon"
