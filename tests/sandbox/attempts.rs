//! The attempts of a malicious program, as shell scripts. The tests check their effects from
//! outside.
//!
//! A script gets these variables: the fixture's root `R`, the folders `W` (writable), `O` (not
//! writable) and `S` (hidden), and `HOME`. `V` is the PID of another process, and `FD` is an
//! inherited descriptor of `O/victim`. `ABSTRACT` and `PORT` name sockets, `RUNNER` is the built
//! program, and `T` is a unique token: surviving processes are found by the argument `1000.$T`, and
//! files by names that contain `$T`. If only the script can detect that it succeeded, it prints
//! `THROUGH` when it does.

pub struct Attempt {
    pub name: String,
    pub script: String,
    pub about: About,
}

/// The class of an attempt. It determines which sandboxes cover the attempt, and whether the tests
/// try it without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Covered by every sandbox. Also tried without one.
    Files,
    /// Modes, owners, times and attributes: not covered by Landlock alone.
    Attributes,
    /// Not tried without a sandbox, because it could harm the host or needs something that may be
    /// missing.
    Kernel,
    /// Abstract sockets while the network is allowed: not covered by bubblewrap alone.
    Abstract,
}

use About::{Abstract, Attributes, Files, Kernel};

use super::kernel_attempts::ON_KERNEL;

/// Ways to change the file `$P` in the folder `$D`.
const WAYS: &[(&str, About, &str)] = &[
    ("write the file", Files, "echo evil > $P"),
    ("append to the file", Files, "echo evil >> $P"),
    ("truncate the file", Files, "perl -e 'syscall(76, shift, 0)' $P"),
    ("remove the file", Files, "rm -rf $P"),
    ("rename another file over it", Files, "echo evil > $W/x; mv -f -T $W/x $P"),
    ("rename it away", Files, "mv -T $P $W/stolen"),
    (
        "exchange it with another file",
        Files,
        "echo evil > $W/x; perl -e 'syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2)' $W/x $P",
    ),
    ("replace it with a hard link", Files, "echo evil > $W/x; rm -f $P; ln $W/x $P"),
    ("write through a hard link", Files, "ln $P $W/hard && echo evil > $W/hard"),
    ("write through a symbolic link", Files, "ln -s $P $W/soft; echo evil > $W/soft"),
    (
        "write through a link to its folder",
        Files,
        "ln -s $D $W/dir; echo evil > $W/dir/$(basename $P)",
    ),
    ("write through its own root in proc", Files, "echo evil > /proc/self/root$P"),
    ("write through the parent's root in proc", Files, "echo evil > /proc/$PPID/root$P"),
    (
        "write through another's root in proc",
        Files,
        "echo evil > /proc/$V/root$P || echo evil > $P",
    ),
    (
        "write through the work folder in proc",
        Files,
        "cd $W; echo evil > /proc/self/cwd/../${P#$R/}",
    ),
    ("write through dot-dot", Files, "cd $W; echo evil > ../${P#$R/}"),
    ("write with double slashes", Files, "echo evil > //$(echo $P | sed 's,/,//,g')"),
    ("write through a read-write descriptor", Files, "exec 9<>$P && echo evil >&9"),
    ("reopen a read-only descriptor", Files, "exec 9<$P; echo evil > /proc/self/fd/9"),
    (
        "link an unnamed file in its place",
        Files,
        "rm -f $P; perl -e 'my $f = syscall(257, -100, $ARGV[0], 020200002, 0644); syscall(1, $f, \"evil\", 4) ; syscall(265, -100, \"/proc/self/fd/$f\", -100, $ARGV[1], 0x400)' $D $P",
    ),
    (
        "map and truncate it",
        Files,
        "perl -e 'my $f = syscall(2, $ARGV[0], 2, 0); exit if $f < 0; my $a = syscall(9, 0, 4096, 3, 1, $f, 0); pipe(my $r, my $w); syswrite($w, q(EVIL)); syscall(0, fileno($r), $a, 4); syscall(76, $ARGV[0], 1)' $P",
    ),
    (
        "allocate space",
        Files,
        "perl -e 'my $f = syscall(2, $ARGV[0], 1, 0); syscall(285, $f, 0, 0, 9999)' $P",
    ),
    (
        "copy a range into it",
        Files,
        "echo evil > $W/x; perl -e 'my $i = syscall(2, $ARGV[0], 0, 0); my $o = syscall(2, $ARGV[1], 1, 0); syscall(326, $i, 0, $o, 0, 5, 0)' $W/x $P",
    ),
    ("write with dd", Files, "echo evil | dd of=$P conv=notrunc"),
    ("write in the background", Files, "(sleep 0.02; echo evil > $P) & wait"),
    ("write in a new session", Files, "setsid -w sh -c \"echo evil > $P\""),
    ("write with a cleared environment", Files, "env -i /bin/sh -c \"echo evil > $P\""),
    ("change the mode", Attributes, "chmod 0777 $P"),
    (
        "change the mode by descriptor",
        Attributes,
        "exec 9<$P; perl -e 'open(F, \"<&=9\"); chmod(0777, *F)'",
    ),
    ("change the times", Attributes, "touch -d 2001-01-01 $P"),
    (
        "set an attribute",
        Attributes,
        "perl -e 'syscall(188, $ARGV[0], \"user.evil\", \"1\", 1, 0)' $P",
    ),
];

/// Ways to create something at `$P`, where nothing exists.
const MAKES: &[(&str, &str)] = &[
    ("create a file", "echo evil > $P"),
    ("create a file exclusively", "set -C; echo evil > $P"),
    ("create a folder", "mkdir -p $P"),
    ("create a symbolic link", "ln -s $W/x $P"),
    ("create a hard link", "echo evil > $W/x; ln $W/x $P"),
    ("create a FIFO", "mkfifo $P"),
    ("bind a socket", "perl -MSocket -e 'socket(S, 1, 1, 0); bind(S, pack_sockaddr_un(shift))' $P"),
    ("rename a folder to it", "mkdir $W/x; echo evil > $W/x/y; mv -T $W/x $P"),
    ("create a device", "mknod $P c 1 3"),
    ("use upper case", "echo evil > $(dirname $P)/$(basename $P | tr a-z A-Z)"),
];

pub fn all() -> Vec<Attempt> {
    let mut all = Vec::new();
    let mut add = |name: String, about, script: String| {
        all.push(Attempt { name, script, about });
    };
    for (target, path) in [
        ("file outside", "$O/victim"),
        ("git config", "$W/.git/config"),
        ("runner.toml", "$W/runner.toml"),
        ("prompt", "$W/prompts/wake.md"),
    ] {
        for (way, about, script) in WAYS {
            add(format!("{target}: {way}"), *about, format!("P={path}; D=$(dirname $P); {script}"));
        }
    }
    for (target, path) in [
        ("new file outside", "$O/new"),
        ("new hook", "$W/.git/hooks/post-commit"),
        ("agent settings", "$W/.claude/settings.json"),
        ("agent folder", "$W/.claude"),
        ("other settings", "$W/.ctxrc"),
        ("new prompt", "$W/prompts/plan.md"),
        ("git commondir", "$W/.git/commondir"),
    ] {
        for (way, script) in MAKES {
            // On a case-sensitive file system, the upper-case name is a different file that the
            // script may create.
            if *way == "use upper case" && target != "new file outside" && target != "new hook" {
                continue;
            }
            let about = if *way == "create a device" { Kernel } else { Files };
            let parent = if target == "agent settings" { "mkdir -p $(dirname $P);" } else { "" };
            add(format!("{target}: {way}"), about, format!("P={path}; {parent} {script}"));
        }
    }
    for (name, about, script) in SINGLE.iter().chain(ON_KERNEL) {
        add((*name).to_owned(), *about, (*script).to_owned());
    }
    all
}

const SINGLE: &[(&str, About, &str)] = &[
    // Attempts to bypass a protected path.
    (
        "swap the git folder",
        Files,
        "mv $W/.git $W/.git2 && mkdir -p $W/.git/hooks && echo evil > $W/.git/hooks/post-commit",
    ),
    (
        "swap the git folder by exchange",
        Files,
        "mkdir -p $W/g/hooks; echo evil > $W/g/config; perl -e 'syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2)' $W/g $W/.git",
    ),
    (
        "swap the whole tree",
        Files,
        "mv $W $O/gone || mv $W $R/gone && mkdir -p $W/.git/hooks && echo evil > $W/.git/hooks/x",
    ),
    (
        "swap the folder of a prompt",
        Files,
        "mv $W/prompts $W/old && mkdir $W/prompts && echo evil > $W/prompts/wake.md",
    ),
    (
        "swap the folder of a prompt by exchange",
        Files,
        "mkdir $W/p; echo evil > $W/p/wake.md; perl -e 'syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2)' $W/p $W/prompts",
    ),
    ("remove the git folder", Files, "rm -rf $W/.git/hooks $W/.git/config"),
    ("replace the hooks with a link", Files, "rm -rf $W/.git/hooks; ln -s $W/evil $W/.git/hooks"),
    ("change the git config with git", Files, "cd $W; git config core.hooksPath $W/evil"),
    (
        "rename a lock over the git config",
        Files,
        "cd $W/.git; echo evil > config.lock; mv config.lock config",
    ),
    (
        "unmount the protection",
        Kernel,
        "umount $W/.git/config && echo THROUGH; umount -l $W/.git && echo THROUGH",
    ),
    // Reading hidden files.
    ("read a hidden file", Files, "cat $S/token"),
    ("read a hidden file through a link", Files, "ln -s $S/token $W/l; cat $W/l"),
    ("read a hidden file through a hard link", Files, "ln $S/token $W/l; cat $W/l"),
    ("read a hidden file through proc", Files, "cat /proc/self/root$S/token"),
    (
        "read a hidden file through the parent's root",
        Files,
        "cat /proc/$PPID/root$S/token || cat $S/token",
    ),
    ("copy a hidden folder", Files, "cp -r $S $W/copy; cat $W/copy/token"),
    ("rename a hidden folder", Files, "mv $S $W/copy; cat $W/copy/token; mv $W/copy $S"),
    ("run a hidden program", Files, "$S/tool"),
    // Attacks on other processes.
    ("kill another process", Files, "kill -9 $V"),
    ("signal all processes", Kernel, "kill -CONT -1"),
    (
        "kill the launcher",
        Files,
        "kill -9 $PPID; echo evil > $O/victim; (sleep 1000.$T) & sleep 0.1; echo evil > $O/victim",
    ),
    ("stop the launcher", Kernel, "kill -STOP $PPID; echo evil > $O/victim"),
    (
        "kill through a process handle",
        Files,
        "perl -e 'my $f = syscall(434, $ARGV[0]+0, 0); syscall(424, $f, 9, 0, 0)' $V",
    ),
    (
        "trace another process",
        Files,
        "perl -e 'print \"THROUGH\\n\" if syscall(101, 16, $ARGV[0]+0, 0, 0) == 0' $V",
    ),
    (
        "trace the launcher",
        Kernel,
        "perl -e 'print \"THROUGH\\n\" if syscall(101, 16, $ARGV[0]+0, 0, 0) == 0' $PPID",
    ),
    (
        "write another process's memory",
        Kernel,
        "perl -e 'open(F, \"+<\", \"/proc/$ARGV[0]/mem\") and print \"THROUGH\\n\"' $V",
    ),
    (
        "write the launcher's memory",
        Kernel,
        "perl -e 'open(F, \"+<\", \"/proc/$ARGV[0]/mem\") and print \"THROUGH\\n\"' $PPID",
    ),
    (
        "call process_vm_writev",
        Kernel,
        "perl -e '$!=0; syscall(311, getppid(), 0, 0, 0, 0, 0) == 0 and print \"THROUGH\\n\"'",
    ),
    (
        "take a descriptor of the launcher",
        Kernel,
        "perl -e 'my $p = syscall(434, getppid(), 0); print \"THROUGH\\n\" if syscall(438, $p, 0, 0) >= 0'",
    ),
    ("write to another's descriptors", Files, "for f in /proc/$V/fd/*; do echo evil > $f; done"),
    (
        "write to the launcher's descriptors",
        Kernel,
        "for f in /proc/$PPID/fd/*; do echo evil > $f && echo THROUGH; done",
    ),
    ("read another's environment", Files, "tr '\\0' ' ' < /proc/$V/environ"),
    ("avoid the memory killer", Kernel, "echo -1000 > /proc/self/oom_score_adj && echo THROUGH"),
    (
        "join another's namespaces",
        Kernel,
        "perl -e 'open(F, \"<\", \"/proc/$ARGV[0]/ns/mnt\") and syscall(308, fileno(F), 0) == 0 and print \"THROUGH\\n\"' $V",
    ),
    (
        "join the launcher's namespaces",
        Kernel,
        "perl -e 'open(F, \"<\", \"/proc/$ARGV[0]/ns/mnt\") and syscall(308, fileno(F), 0) == 0 and print \"THROUGH\\n\"' $PPID",
    ),
    // Descriptors that were left open.
    ("write to an inherited descriptor", Files, "eval \"echo evil >&$FD\""),
    ("reopen an inherited descriptor", Files, "echo evil > /proc/self/fd/$FD"),
    ("reopen a descriptor of the launcher", Files, "echo evil > /proc/$PPID/fd/$FD"),
    (
        "write to all descriptors",
        Files,
        "for f in 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do eval \"echo evil >&$f\"; done; eval \"echo evil >&$FD\"",
    ),
    // The terminal.
    (
        "type for the user",
        Kernel,
        "perl -e 'for my $f (0..2) { print \"THROUGH\\n\" if defined ioctl(STDIN, 0x5412, my $c = \"x\") }'",
    ),
    (
        "open the terminal",
        Kernel,
        "perl -e 'open(T, \"+<\", \"/dev/tty\") and print \"THROUGH\\n\"'",
    ),
    (
        "write to terminals",
        Kernel,
        "for t in /dev/pts/[0-9]* /dev/tty[0-9]; do [ -c $t ] && { echo evil > $t; } && echo THROUGH; done",
    ),
    // Sockets.
    (
        "connect to a socket",
        Files,
        "perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack_sockaddr_un(shift)) and print \"THROUGH\\n\"' $R/run/sock",
    ),
    (
        "connect through a link to a socket",
        Files,
        "ln -s $R/run/sock $W/s; perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack_sockaddr_un(shift)) and print \"THROUGH\\n\"' $W/s",
    ),
    (
        "send to a datagram socket",
        Files,
        "perl -MSocket -e 'socket(S, 1, 2, 0); send(S, \"evil\", 0, pack_sockaddr_un(shift))' $R/run/datagram",
    ),
    (
        "send from a socket pair",
        Files,
        "perl -MSocket -e 'socketpair(A, B, 1, 2, 0); send(A, \"evil\", 0, pack_sockaddr_un(shift)); connect(A, pack_sockaddr_un($ARGV[0]))' $R/run/datagram",
    ),
    (
        "connect to the system bus",
        Kernel,
        "perl -MSocket -e 'for (qw(/run/dbus/system_bus_socket /var/run/dbus/system_bus_socket)) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "connect to a container service",
        Kernel,
        "perl -MSocket -e 'for (qw(/var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock)) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "connect to the service manager",
        Kernel,
        "perl -MSocket -e 'for (glob(\"/run/systemd/private /run/user/*/systemd/private /run/user/*/bus\")) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'; systemd-run --user true && echo THROUGH",
    ),
    (
        "connect to the key agent",
        Files,
        "perl -MSocket -e 'for (glob(\"/tmp/ssh-escape-$ENV{T}/agent.*\")) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "connect to the display",
        Kernel,
        "perl -MSocket -e 'for (glob(\"/tmp/.X11-unix/*\")) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "connect to an abstract socket",
        Files,
        "perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack(\"S\", 1) . \"\\0\" . shift) and print \"THROUGH\\n\"' $ABSTRACT",
    ),
    (
        "connect to an abstract socket with network",
        Abstract,
        "perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack(\"S\", 1) . \"\\0\" . shift) and print \"THROUGH\\n\"' $ABSTRACT",
    ),
    (
        "connect to loopback",
        Files,
        "perl -MSocket -e 'socket(S, 2, 1, 0); connect(S, pack_sockaddr_in(shift, inet_aton(\"127.0.0.1\"))) and print \"THROUGH\\n\"' $PORT",
    ),
    (
        "create an IPv6 socket",
        Kernel,
        "perl -MSocket -e 'print \"THROUGH\\n\" if socket(S, 10, 1, 0)'",
    ),
    (
        "send a datagram",
        Files,
        "perl -MSocket -e 'socket(S, 2, 2, 0) and send(S, \"x\", 0, pack_sockaddr_in(9, inet_aton(\"127.0.0.1\"))) and print \"THROUGH\\n\"'",
    ),
    (
        "create a raw socket",
        Kernel,
        "perl -e 'for my $f (17, 40, 38, 31) { print \"THROUGH\\n\" if syscall(41, $f, 3, 0) >= 0 }'",
    ),
    // Commands that other programs would start.
    (
        "change cron's files",
        Kernel,
        "for f in /etc/cron.d/escape /etc/crontab /var/spool/cron/crontabs/escape /etc/cron.daily/escape; do { : >> $f; } && echo THROUGH; done",
    ),
    ("schedule a job with at", Kernel, "echo true | at now && echo THROUGH"),
    (
        "add a user service",
        Files,
        "mkdir -p $HOME/.config/systemd/user; echo evil > $HOME/.config/systemd/user/evil.service",
    ),
    ("change the shell's startup", Files, "echo evil >> $HOME/.bashrc"),
    (
        "change an agent's settings",
        Files,
        "mkdir -p $HOME/.claude; echo evil > $HOME/.claude/settings.json",
    ),
    ("change the loader's settings", Kernel, ": >> /etc/ld.so.preload && echo THROUGH"),
    // The host's temporary files, and runner itself.
    ("write to the host's shared memory", Files, "echo evil > /dev/shm/escape-$T"),
    ("write to the host's temporary folder", Files, "echo evil > /tmp/escape-$T"),
    ("write to the host's lasting temporary folder", Files, "echo evil > /var/tmp/escape-$T"),
    (
        "change runner's environment",
        Files,
        "RUNNER_RUN= RUNNER_TEST_CLOCK=/x LD_PRELOAD=$W/x.so PATH=$W sh -c ':' ; echo evil > $O/victim",
    ),
    (
        "start the launcher again",
        Files,
        "printf 'x' | $RUNNER __launch; $RUNNER __launch < /dev/null; echo evil > $O/victim",
    ),
    // Escaping from the process tree.
    ("leave the process group", Files, "(setsid sleep 1000.$T &) ; true"),
    (
        "fork twice with a cleared environment",
        Files,
        "(env -i setsid sh -c \"sleep 1000.$T & \" &) ; true",
    ),
    ("trap signals", Files, "(trap '' TERM INT HUP; sleep 1000.$T) & true"),
    (
        "ignore the parent's death",
        Kernel,
        "perl -e 'syscall(157, 1, 0); fork and exit; sleep 1; exec(\"sleep\", \"1000.$ARGV[0]\")' $T",
    ),
    (
        "adopt orphans",
        Kernel,
        "perl -e 'syscall(157, 36, 1); unless (fork) { unless (fork) { exec(\"sleep\", \"1000.$ARGV[0]\") } exit }' $T",
    ),
    (
        "start many processes",
        Kernel,
        "i=0; while [ $i -lt 40 ]; do (setsid sleep 1000.$T &) ; i=$((i+1)); done",
    ),
    (
        "move to another control group",
        Kernel,
        "for g in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/user.slice; do { echo 0 > $g/cgroup.procs; } && echo THROUGH; done; (setsid sleep 1000.$T &)",
    ),
    (
        "create a control group",
        Kernel,
        "for g in /sys/fs/cgroup /sys/fs/cgroup/unified; do mkdir $g/escape-$T && echo THROUGH; done",
    ),
    (
        "kill another control group",
        Kernel,
        "for g in /sys/fs/cgroup/unified/*/ /sys/fs/cgroup/*/; do { : >> $g/cgroup.kill; } && echo THROUGH; done",
    ),
    ("allow core files", Kernel, "ulimit -c unlimited && [ $(ulimit -c) != 0 ] && echo THROUGH"),
    (
        "write too large a file",
        Kernel,
        "ulimit -f unlimited; dd if=/dev/zero of=$W/big bs=1M count=40 2>/dev/null; [ $(stat -c %s $W/big) -gt 33554432 ] && echo THROUGH",
    ),
    ("raise the descriptor limit", Kernel, "ulimit -n 1000000 && echo THROUGH"),
];
