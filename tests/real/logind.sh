#!/usr/bin/env bash
# Checks that a real logind, under a real systemd as the first process, lists a run's sleep lock exactly while
# the run is active, even if it ends with kill -9. systemd runs in separate namespaces with only the units of
# the bus and of logind, so it does not change this machine's mounts, files or kernel settings.
# usage (root): tests/real/logind.sh RUNNER
set -euo pipefail
check="real logind"
. "$(dirname "$0")/../skips.sh"
[ "$(id -u)" = 0 ] || skip host "only root can create the namespaces"
manager=$(command -v /lib/systemd/systemd || command -v /usr/lib/systemd/systemd) || skip systemd "systemd is not installed"
need unshare python3 git busctl systemd-inhibit dbus-daemon
units=$(dirname "$manager")/system
[ -e "$units/systemd-logind.service" ] && [ -e "$units/dbus.service" ] || skip systemd "the units of logind and its bus are not installed"
runner=$(realpath "$1")
here=$(realpath "$(dirname "$0")")

if [ "${2:-}" = place ]; then
    folder=$3
    mount --make-rprivate /
    mount -t tmpfs -o mode=755 tmpfs /run
    mount -t cgroup2 none /sys/fs/cgroup
    mount --bind /proc/sys /proc/sys
    mount -o remount,ro,bind /proc/sys
    mkdir /run/units /run/none
    for unit in dbus.service dbus.socket systemd-logind.service shutdown.target; do
        cp "$units/$unit" /run/units/
    done
    for target in sysinit basic sockets; do
        printf '[Unit]\nDefaultDependencies=no\n' > "/run/units/$target.target"
    done
    cat > /run/units/look.service <<IN
[Unit]
Requires=dbus.socket systemd-logind.service
After=dbus.socket systemd-logind.service
[Service]
Type=oneshot
ExecStart=/bin/bash "$here/logind_list.sh" "$runner" "$folder"
StandardOutput=file:$folder/said
StandardError=file:$folder/said
IN
    mount --bind /run/units "$units"
    mount --bind /run/none /etc/systemd/system
    mount --bind /run/none "$(dirname "$manager")/system-generators"
    exec env -i container=runner-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        "$manager" --system --unit=look.service --log-target=null --show-status=0 </dev/null >/dev/null 2>&1
fi

unshare --mount --pid --cgroup --uts --ipc --net --fork true 2>/dev/null || skip host "no namespaces here"
tree=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$tree" ] || skip host "no control groups of version 2"
group=$tree/runner-logind-$$
mkdir -p "$group/init" 2>/dev/null || skip host "control groups cannot be made"
folder=$(mktemp -d)
mkfifo "$folder/over"
touch "$folder/said"
(
    echo "$BASHPID" > "$group/init/cgroup.procs"
    exec unshare --mount --pid --cgroup --uts --ipc --net --fork --kill-child --mount-proc "$0" "$runner" place "$folder"
) &
place=$!
clean() {
    kill -9 "$place" 2>/dev/null || true
    wait "$place" 2>/dev/null || true
    echo 1 > "$group/cgroup.kill" 2>/dev/null || true
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
        [ -d "$group" ] || break
    done
    rm -rf "$folder"
}
trap clean EXIT
# If the namespaces cannot be set up, the pipe closes without output.
code=$(timeout 120 cat "$folder/over") || code="nothing for two minutes"
cat "$folder/said"
[ -n "$code" ] || code="nothing"
case $code in
    0) echo "real logind: the lock was there during runs and gone after them, also after kill -9" ;;
    none) skip host "systemd and logind do not start here" ;;
    *) echo "real logind: failed: $code"; exit 1 ;;
esac
