#!/usr/bin/env bash
# Sets up a new user's machine until the doctor has no findings. Runs each fix of `runner doctor` verbatim in a
# shell, and checks that it solves the problem. Then breaks each part in turn. In a mount namespace, empty files
# and folders cover cron's spool, system tables and PID file, so the script does not touch the machine's own.
# usage (root): tests/real/doctor_walk.sh RUNNER
set -euo pipefail
check="doctor's walk"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can cover the spool"
need cron crontab unshare python3 git service
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
outer=$(mktemp -d)
trap 'rm -rf "$outer"' EXIT
mkdir "$outer/it's mine" "$outer/bin" "$outer/home"
cp "$runner" "$outer/bin/runner"
walk=$(realpath "$(dirname "$0")/doctor_walk.py")
cd "$outer/it's mine"
env -i HOME="$outer/home" USER=root LOGNAME=root TERM=dumb PATH="$outer/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    EDITOR=true TZ=UTC python3 "$walk"
