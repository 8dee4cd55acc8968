#!/usr/bin/env bash
# Checks that a real `systemd --user` starts the nights that `runner setup --apply` configures. The manager runs
# in separate mount, PID and control group namespaces. Its private /run contains the folder /run/systemd/system,
# which marks a host booted by systemd. There is no logind, so lingering is not tested.
# usage (root): tests/real/systemd_user.sh RUNNER
set -euo pipefail
check="real systemd"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can create the namespaces"
manager=$(command -v /lib/systemd/systemd || command -v /usr/lib/systemd/systemd) || skip systemd "systemd is not installed"
need unshare setpriv python3 git
if [ "${2:-}" != inside ]; then
    runner=$(realpath "$1")
    unshare --mount --pid --cgroup --fork true 2>/dev/null || skip host "no namespaces here"
    tree=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$tree" ] || skip host "no control groups of version 2"
    group=$tree/runner-test-$$
    mkdir -p "$group/init" 2>/dev/null || skip host "control groups cannot be made"
    chown -R nobody "$group"
    # The path contains characters that are special to systemd, shells or parsers.
    outer=$(mktemp -d)
    chmod 755 "$outer"
    folder="$outer/it's 100% \$HOME %h \"é\" & <x>"
    mkdir "$folder"
    install -m 755 "$runner" "$folder/runner"
    chown nobody "$folder"
    code=0
    (
        echo "$BASHPID" > "$group/init/cgroup.procs"
        exec unshare --mount --cgroup --pid --fork --kill-child --mount-proc "$0" "$folder" inside "$manager"
    ) || code=$?
    echo 1 > "$group/cgroup.kill" 2>/dev/null || true
    rm -rf "$outer"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null && break
    done
    exit "$code"
fi
folder=$1 manager=$3
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
uid=$(id -u nobody)
mkdir -p /run/systemd/system "/run/user/$uid"
chown nobody "/run/user/$uid"
chmod 700 "/run/user/$uid"
mount -t cgroup2 none /sys/fs/cgroup
cp "$(dirname "$0")/nights.sh" "$folder/"
cat > "$folder/manager.sh" <<'IN'
set -euo pipefail
mkdir -p "$HOME"
cd "$FOLDER"
mkfifo ready
exec 3<>ready
"$1" --user --log-target=null 3>&- &
manager=$!
# systemctl answers as soon as the manager is ready.
timeout 30 bash -c 'until systemctl --user is-system-running --wait >/dev/null 2>&1 || systemctl --user show-environment >/dev/null 2>&1; do read -t 0.1 -u 3 || true; done'
export DBUS_SESSION_BUS_ADDRESS=unix:path=$XDG_RUNTIME_DIR/bus
code=0
setsid --wait "$FOLDER/nights.sh" "$FOLDER/runner" systemd "$FOLDER" || code=$?
[ "$code" = 0 ] || journalctl --user -n 30 2>/dev/null || true
systemctl --user exit 2>/dev/null || kill "$manager"
wait "$manager" || true
exit "$code"
IN
exec setpriv --reuid=nobody --regid=nogroup --clear-groups env -i PATH=/usr/bin:/bin USER=nobody LOGNAME=nobody \
    HOME="$folder/home" FOLDER="$folder" XDG_RUNTIME_DIR="/run/user/$uid" bash "$folder/manager.sh" "$manager"
