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

/// Ways to change the file `$P` in the folder `$D`.
const WAYS: &[(&str, About, &str)] = &[
    ("write", Files, "echo evil > $P"),
    ("append", Files, "echo evil >> $P"),
    ("truncate", Files, "perl -e 'syscall(76, shift, 0)' $P"),
    ("unlink", Files, "rm -rf $P"),
    ("rename-over", Files, "echo evil > $W/x; mv -f -T $W/x $P"),
    ("rename-away", Files, "mv -T $P $W/stolen"),
    (
        "exchange",
        Files,
        "echo evil > $W/x; perl -e 'syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2)' $W/x $P",
    ),
    ("link-over", Files, "echo evil > $W/x; rm -f $P; ln $W/x $P"),
    ("link-in", Files, "ln $P $W/hard && echo evil > $W/hard"),
    ("symlink-through", Files, "ln -s $P $W/soft; echo evil > $W/soft"),
    ("symlink-parent", Files, "ln -s $D $W/dir; echo evil > $W/dir/$(basename $P)"),
    ("proc-root", Files, "echo evil > /proc/self/root$P"),
    ("proc-root-of-parent", Files, "echo evil > /proc/$PPID/root$P"),
    ("proc-root-of-another", Files, "echo evil > /proc/$V/root$P || echo evil > $P"),
    ("proc-cwd", Files, "cd $W; echo evil > /proc/self/cwd/../${P#$R/}"),
    ("dot-dot", Files, "cd $W; echo evil > ../${P#$R/}"),
    ("double-slash", Files, "echo evil > //$(echo $P | sed 's,/,//,g')"),
    ("read-write-handle", Files, "exec 9<>$P && echo evil >&9"),
    ("through-own-fd", Files, "exec 9<$P; echo evil > /proc/self/fd/9"),
    (
        "tmpfile-link",
        Files,
        "rm -f $P; perl -e 'my $f = syscall(257, -100, $ARGV[0], 020200002, 0644); syscall(1, $f, \"evil\", 4) ; syscall(265, -100, \"/proc/self/fd/$f\", -100, $ARGV[1], 0x400)' $D $P",
    ),
    (
        "map",
        Files,
        "perl -e 'my $f = syscall(2, $ARGV[0], 2, 0); exit if $f < 0; my $a = syscall(9, 0, 4096, 3, 1, $f, 0); syscall(0, 9, $a, 4) if 0; syscall(76, $ARGV[0], 1)' $P",
    ),
    (
        "allocate",
        Files,
        "perl -e 'my $f = syscall(2, $ARGV[0], 1, 0); syscall(285, $f, 0, 0, 9999)' $P",
    ),
    (
        "copy-range",
        Files,
        "echo evil > $W/x; perl -e 'my $i = syscall(2, $ARGV[0], 0, 0); my $o = syscall(2, $ARGV[1], 1, 0); syscall(326, $i, 0, $o, 0, 5, 0)' $W/x $P",
    ),
    ("dd", Files, "echo evil | dd of=$P conv=notrunc"),
    ("background", Files, "(sleep 0.02; echo evil > $P) & wait"),
    ("setsid", Files, "setsid -w sh -c \"echo evil > $P\""),
    ("env-cleared", Files, "env -i /bin/sh -c \"echo evil > $P\""),
    ("chmod", Attributes, "chmod 0777 $P"),
    ("chmod-by-handle", Attributes, "exec 9<$P; perl -e 'open(F, \"<&=9\"); chmod(0777, *F)'"),
    ("touch", Attributes, "touch -d 2001-01-01 $P"),
    ("attribute", Attributes, "perl -e 'syscall(188, $ARGV[0], \"user.evil\", \"1\", 1, 0)' $P"),
];

/// Ways to create something at `$P`, where nothing exists.
const MAKES: &[(&str, &str)] = &[
    ("file", "echo evil > $P"),
    ("exclusive", "set -C; echo evil > $P"),
    ("folder", "mkdir -p $P"),
    ("symlink", "ln -s $W/x $P"),
    ("hard-link", "echo evil > $W/x; ln $W/x $P"),
    ("pipe", "mkfifo $P"),
    ("socket", "perl -MSocket -e 'socket(S, 1, 1, 0); bind(S, pack_sockaddr_un(shift))' $P"),
    ("rename", "mkdir $W/x; echo evil > $W/x/y; mv -T $W/x $P"),
    ("device", "mknod $P c 1 3"),
    ("upper-case", "echo evil > $(dirname $P)/$(basename $P | tr a-z A-Z)"),
];

pub fn all() -> Vec<Attempt> {
    let mut all = Vec::new();
    let mut add = |name: String, about, script: String| {
        all.push(Attempt { name, script, about });
    };
    for (target, path) in [
        ("outside", "$O/victim"),
        ("git-config", "$W/.git/config"),
        ("settings", "$W/runner.toml"),
        ("prompt", "$W/prompts/wake.md"),
    ] {
        for (way, about, script) in WAYS {
            add(format!("{target}: {way}"), *about, format!("P={path}; D=$(dirname $P); {script}"));
        }
    }
    for (target, path) in [
        ("new outside", "$O/new"),
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
            if *way == "upper-case" && target != "new outside" && target != "new hook" {
                continue;
            }
            let about = if *way == "device" { Kernel } else { Files };
            let parent = if target == "agent settings" { "mkdir -p $(dirname $P);" } else { "" };
            add(format!("{target}: {way}"), about, format!("P={path}; {parent} {script}"));
        }
    }
    for (name, about, script) in SINGLE {
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
    ("hooks by a link", Files, "rm -rf $W/.git/hooks; ln -s $W/evil $W/.git/hooks"),
    ("git config by git", Files, "cd $W; git config core.hooksPath $W/evil"),
    (
        "git config by lock and rename",
        Files,
        "cd $W/.git; echo evil > config.lock; mv config.lock config",
    ),
    (
        "unmount what is laid over",
        Kernel,
        "umount $W/.git/config && echo THROUGH; umount -l $W/.git && echo THROUGH",
    ),
    // Reading hidden files.
    ("hidden: read", Files, "cat $S/token"),
    ("hidden: by a link", Files, "ln -s $S/token $W/l; cat $W/l"),
    ("hidden: by a hard link", Files, "ln $S/token $W/l; cat $W/l"),
    ("hidden: by proc root", Files, "cat /proc/self/root$S/token"),
    ("hidden: by the parent's root", Files, "cat /proc/$PPID/root$S/token || cat $S/token"),
    ("hidden: copy", Files, "cp -r $S $W/copy; cat $W/copy/token"),
    ("hidden: rename in", Files, "mv $S $W/copy; cat $W/copy/token; mv $W/copy $S"),
    ("hidden: run it", Files, "$S/tool"),
    // Attacks on other processes.
    ("kill another", Files, "kill -9 $V"),
    ("kill all", Kernel, "kill -CONT -1"),
    (
        "kill the launcher",
        Files,
        "kill -9 $PPID; echo evil > $O/victim; (sleep 1000.$T) & sleep 0.1; echo evil > $O/victim",
    ),
    ("stop the launcher", Kernel, "kill -STOP $PPID; echo evil > $O/victim"),
    (
        "kill by a process handle",
        Files,
        "perl -e 'my $f = syscall(434, $ARGV[0]+0, 0); syscall(424, $f, 9, 0, 0)' $V",
    ),
    (
        "trace another",
        Files,
        "perl -e 'print \"THROUGH\\n\" if syscall(101, 16, $ARGV[0]+0, 0, 0) == 0' $V",
    ),
    (
        "trace the launcher",
        Kernel,
        "perl -e 'print \"THROUGH\\n\" if syscall(101, 16, $ARGV[0]+0, 0, 0) == 0' $PPID",
    ),
    (
        "write another's memory",
        Kernel,
        "perl -e 'open(F, \"+<\", \"/proc/$ARGV[0]/mem\") and print \"THROUGH\\n\"' $V",
    ),
    (
        "write the launcher's memory",
        Kernel,
        "perl -e 'open(F, \"+<\", \"/proc/$ARGV[0]/mem\") and print \"THROUGH\\n\"' $PPID",
    ),
    (
        "process_vm_writev",
        Kernel,
        "perl -e '$!=0; syscall(311, getppid(), 0, 0, 0, 0, 0) == 0 and print \"THROUGH\\n\"'",
    ),
    (
        "take another's descriptor",
        Kernel,
        "perl -e 'my $p = syscall(434, getppid(), 0); print \"THROUGH\\n\" if syscall(438, $p, 0, 0) >= 0'",
    ),
    ("another's descriptors by proc", Files, "for f in /proc/$V/fd/*; do echo evil > $f; done"),
    (
        "the launcher's socket by proc",
        Kernel,
        "for f in /proc/$PPID/fd/*; do echo evil > $f && echo THROUGH; done",
    ),
    ("another's environment", Files, "tr '\\0' ' ' < /proc/$V/environ"),
    (
        "raise the priority of memory",
        Kernel,
        "echo -1000 > /proc/self/oom_score_adj && echo THROUGH",
    ),
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
    ("inherited descriptor", Files, "eval \"echo evil >&$FD\""),
    ("inherited descriptor by proc", Files, "echo evil > /proc/self/fd/$FD"),
    ("inherited descriptor of the launcher", Files, "echo evil > /proc/$PPID/fd/$FD"),
    (
        "all descriptors",
        Files,
        "for f in 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do eval \"echo evil >&$f\"; done; eval \"echo evil >&$FD\"",
    ),
    // Namespaces, mounts, roots.
    ("user namespace", Files, "unshare -Ur true && echo THROUGH"),
    (
        "user namespace by clone",
        Kernel,
        "perl -e 'my $p = syscall(56, 0x10000011, 0, 0, 0, 0); if ($p == 0) { syscall(231, 0) } print \"THROUGH\\n\" if $p > 0'",
    ),
    (
        "user namespace by clone3",
        Kernel,
        "perl -e 'my $a = pack(\"Q11\", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0); my $p = syscall(435, $a, 88); if ($p == 0) { syscall(231, 0) } print \"THROUGH\\n\" if $p > 0'",
    ),
    ("mount namespace", Kernel, "unshare -m true && echo THROUGH"),
    ("process namespace", Kernel, "unshare -p true && echo THROUGH"),
    ("network namespace", Kernel, "unshare -n true && echo THROUGH"),
    (
        "remount writable",
        Kernel,
        "mount -o remount,bind,rw / && echo THROUGH; mount -o remount,rw $O && echo THROUGH",
    ),
    ("bind over", Kernel, "mount --bind $W $O && echo THROUGH"),
    ("bind in", Kernel, "mkdir $W/m; mount --bind $O $W/m && echo evil > $W/m/victim"),
    ("tmpfs over", Kernel, "mount -t tmpfs none $O && echo THROUGH"),
    ("proc again", Kernel, "mkdir $W/p; mount -t proc none $W/p && echo THROUGH"),
    ("open a tree", Kernel, "perl -e 'print \"THROUGH\\n\" if syscall(428, -100, \"/\", 1) >= 0'"),
    (
        "open a file system",
        Kernel,
        "perl -e 'print \"THROUGH\\n\" if syscall(430, \"tmpfs\", 0) >= 0'",
    ),
    (
        "move a mount",
        Kernel,
        "perl -e 'print \"THROUGH\\n\" if syscall(429, -100, \"/proc\", -100, $ARGV[0], 0) == 0' $W",
    ),
    (
        "change attributes of a mount",
        Kernel,
        "perl -e 'my $a = pack(\"Q4\", 0, 1, 0, 0); print \"THROUGH\\n\" if syscall(442, -100, \"/\", 0x8000, $a, 32) == 0'",
    ),
    ("change the root", Kernel, "perl -e 'print \"THROUGH\\n\" if chroot(shift)' $W"),
    (
        "change the root and leave",
        Kernel,
        "mkdir $W/r; perl -e 'chdir \"/\"; chroot($ARGV[0]) and chdir \"../../../../..\" and print \"THROUGH\\n\"' $W/r",
    ),
    ("pivot the root", Kernel, "perl -e 'print \"THROUGH\\n\" if syscall(155, \".\", \".\") == 0'"),
    (
        "bubblewrap inside",
        Kernel,
        "bwrap --bind / / --dev /dev -- sh -c \"echo evil > $O/victim; echo THROUGH\"",
    ),
    // File handles, io_uring and memfd.
    (
        "open by handle",
        Kernel,
        "perl -e 'my $h = pack(\"Ll\", 128, 0) . \"\\0\" x 128; my $m = pack(\"l\", 0); syscall(303, -100, $ARGV[0], $h, $m, 0); my $f = syscall(304, -100, $h, 1); syscall(1, $f, \"evil\", 4) if $f >= 0; print \"THROUGH\\n\" if $f >= 0' $O/victim",
    ),
    (
        "io_uring",
        Files,
        "perl -e 'my $p = \"\\0\" x 120; print \"THROUGH\\n\" if syscall(425, 8, $p) >= 0'",
    ),
    (
        "memory file as a program",
        Kernel,
        "perl -e 'my $f = syscall(319, \"x\", 0); open(I, \"<\", \"/bin/sh\"); open(O, \">&=\", $f); local $/; print O <I>; close(I); O->flush if O->can(\"flush\"); exec(\"/proc/self/fd/$f\", \"-c\", \"echo evil > $ARGV[0]\")' $O/victim",
    ),
    // Privileges.
    (
        "a setuid program",
        Kernel,
        "cp /bin/sh $W/sh; chmod 4755 $W/sh; $W/sh -p -c \"echo evil > $O/victim\"",
    ),
    ("su", Kernel, "su -c \"echo evil > $O/victim\" </dev/null"),
    ("mount by its setuid bit", Kernel, "/bin/mount -t tmpfs x $W && echo THROUGH"),
    ("new privileges", Files, "grep -q 'NoNewPrivs:.0' /proc/self/status && echo THROUGH"),
    (
        "capabilities",
        Kernel,
        "grep -q 'CapEff:.0000000000000000' /proc/self/status || echo THROUGH",
    ),
    (
        "capabilities after exec",
        Kernel,
        "sh -c \"grep -q 'CapPrm:.0000000000000000' /proc/self/status\" || echo THROUGH",
    ),
    ("no filter of calls", Files, "grep -q 'Seccomp:.2' /proc/self/status || echo THROUGH"),
    // The kernel itself.
    (
        "kernel settings",
        Kernel,
        "p=$(cat /proc/sys/kernel/core_pattern); echo \"$p\" > /proc/sys/kernel/core_pattern && echo THROUGH",
    ),
    ("sysrq", Kernel, "echo h > /proc/sysrq-trigger && echo THROUGH"),
    ("sysfs", Kernel, ": >> /sys/kernel/mm/ksm/run && echo THROUGH"),
    (
        "load a module",
        Kernel,
        "perl -e 'print \"THROUGH\\n\" if syscall(175, \"\", 0, \"\") == 0; print \"THROUGH\\n\" if $! != 1' ",
    ),
    (
        "load a new kernel",
        Kernel,
        "perl -e 'syscall(246, 0, 0, 0, 0); print \"THROUGH\\n\" if $! != 1'",
    ),
    (
        "bpf",
        Kernel,
        "perl -e 'my $a = pack(\"L4\", 2, 4, 4, 1) . \"\\0\" x 64; print \"THROUGH\\n\" if syscall(321, 0, $a, 64) >= 0'",
    ),
    (
        "performance events",
        Kernel,
        "perl -e 'my $a = pack(\"LL\", 1, 112) . \"\\0\" x 104; print \"THROUGH\\n\" if syscall(298, $a, 0, -1, -1, 0) >= 0'",
    ),
    ("faults to user space", Kernel, "perl -e 'print \"THROUGH\\n\" if syscall(323, 1) >= 0'"),
    (
        "the keyring",
        Files,
        "perl -e 'print \"THROUGH\\n\" if syscall(248, \"user\", \"evil\", \"x\", 1, -3) >= 0'",
    ),
    (
        "the clock",
        Kernel,
        "perl -e 'my $t = pack(\"qq\", 1, -1); syscall(164, $t, 0); print \"THROUGH\\n\" if $! != 1'",
    ),
    (
        "the host's name",
        Kernel,
        "perl -e 'syscall(170, \"evil\", 999); print \"THROUGH\\n\" if $! != 1'",
    ),
    (
        "accounting",
        Kernel,
        "perl -e 'syscall(163, $ARGV[0]); print \"THROUGH\\n\" if $! != 1' $W/x",
    ),
    ("swap", Kernel, "perl -e 'syscall(167, \"/x\", 0); print \"THROUGH\\n\" if $! != 1'"),
    ("restart", Kernel, "perl -e 'syscall(169, 1, 2, 3, 0); print \"THROUGH\\n\" if $! != 1'"),
    (
        "kernel messages",
        Kernel,
        "perl -e 'my $b = \" \" x 100; print \"THROUGH\\n\" if syscall(103, 3, $b, 100) >= 0'",
    ),
    ("x32 calls", Kernel, "perl -e 'print \"THROUGH\\n\" if syscall(0x40000000 + 39) > 0'"),
    (
        "raw disk",
        Kernel,
        "for d in /dev/sda /dev/vda /dev/nvme0n1 /dev/mem /dev/kmsg; do [ -e $d ] && { : >> $d; } && echo THROUGH; done",
    ),
    ("make a disk", Kernel, "mknod $W/disk b 8 0 && echo THROUGH"),
    ("make memory", Kernel, "mknod $W/mem c 1 1 && echo THROUGH"),
    // The terminal.
    (
        "type for the user",
        Kernel,
        "perl -e 'for my $f (0..2) { print \"THROUGH\\n\" if defined ioctl(STDIN, 0x5412, my $c = \"x\") }'",
    ),
    ("get a terminal", Kernel, "perl -e 'open(T, \"+<\", \"/dev/tty\") and print \"THROUGH\\n\"'"),
    (
        "write to terminals",
        Kernel,
        "for t in /dev/pts/[0-9]* /dev/tty[0-9]; do [ -c $t ] && { echo evil > $t; } && echo THROUGH; done",
    ),
    // Sockets.
    (
        "a socket with a path",
        Files,
        "perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack_sockaddr_un(shift)) and print \"THROUGH\\n\"' $R/run/sock",
    ),
    (
        "a socket by a link to it",
        Files,
        "ln -s $R/run/sock $W/s; perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack_sockaddr_un(shift)) and print \"THROUGH\\n\"' $W/s",
    ),
    (
        "a datagram socket",
        Files,
        "perl -MSocket -e 'socket(S, 1, 2, 0); send(S, \"evil\", 0, pack_sockaddr_un(shift))' $R/run/datagram",
    ),
    (
        "one of a pair, sent elsewhere",
        Files,
        "perl -MSocket -e 'socketpair(A, B, 1, 2, 0); send(A, \"evil\", 0, pack_sockaddr_un(shift)); connect(A, pack_sockaddr_un($ARGV[0]))' $R/run/datagram",
    ),
    (
        "system bus",
        Kernel,
        "perl -MSocket -e 'for (qw(/run/dbus/system_bus_socket /var/run/dbus/system_bus_socket)) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "containers",
        Kernel,
        "perl -MSocket -e 'for (qw(/var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock)) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "the service manager",
        Kernel,
        "perl -MSocket -e 'for (glob(\"/run/systemd/private /run/user/*/systemd/private /run/user/*/bus\")) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'; systemd-run --user true && echo THROUGH",
    ),
    (
        "the key agent",
        Files,
        "perl -MSocket -e 'for (glob(\"/tmp/ssh-escape-$ENV{T}/agent.*\")) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "the display",
        Kernel,
        "perl -MSocket -e 'for (glob(\"/tmp/.X11-unix/*\")) { socket(S, 1, 1, 0); connect(S, pack_sockaddr_un($_)) and print \"THROUGH\\n\" }'",
    ),
    (
        "an abstract socket",
        Files,
        "perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack(\"S\", 1) . \"\\0\" . shift) and print \"THROUGH\\n\"' $ABSTRACT",
    ),
    (
        "an abstract socket, network open",
        Abstract,
        "perl -MSocket -e 'socket(S, 1, 1, 0); connect(S, pack(\"S\", 1) . \"\\0\" . shift) and print \"THROUGH\\n\"' $ABSTRACT",
    ),
    (
        "loopback",
        Files,
        "perl -MSocket -e 'socket(S, 2, 1, 0); connect(S, pack_sockaddr_in(shift, inet_aton(\"127.0.0.1\"))) and print \"THROUGH\\n\"' $PORT",
    ),
    ("loopback, six", Kernel, "perl -MSocket -e 'print \"THROUGH\\n\" if socket(S, 10, 1, 0)'"),
    (
        "a datagram out",
        Files,
        "perl -MSocket -e 'socket(S, 2, 2, 0) and send(S, \"x\", 0, pack_sockaddr_in(9, inet_aton(\"127.0.0.1\"))) and print \"THROUGH\\n\"'",
    ),
    (
        "a raw socket",
        Kernel,
        "perl -e 'for my $f (17, 40, 38, 31) { print \"THROUGH\\n\" if syscall(41, $f, 3, 0) >= 0 }'",
    ),
    // Commands that other programs would start.
    (
        "cron",
        Kernel,
        "for f in /etc/cron.d/escape /etc/crontab /var/spool/cron/crontabs/escape /etc/cron.daily/escape; do { : >> $f; } && echo THROUGH; done",
    ),
    ("at", Kernel, "echo true | at now && echo THROUGH"),
    (
        "a user's own service",
        Files,
        "mkdir -p $HOME/.config/systemd/user; echo evil > $HOME/.config/systemd/user/evil.service",
    ),
    ("a shell's start", Files, "echo evil >> $HOME/.bashrc"),
    (
        "an agent's own settings",
        Files,
        "mkdir -p $HOME/.claude; echo evil > $HOME/.claude/settings.json",
    ),
    ("the loader", Kernel, ": >> /etc/ld.so.preload && echo THROUGH"),
    // The host's temporary files, and runner itself.
    ("shared memory of the host", Files, "echo evil > /dev/shm/escape-$T"),
    ("temporary files of the host", Files, "echo evil > /tmp/escape-$T"),
    ("lasting temporary files of the host", Files, "echo evil > /var/tmp/escape-$T"),
    (
        "runner's environment",
        Files,
        "RUNNER_RUN= RUNNER_TEST_CLOCK=/x LD_PRELOAD=$W/x.so PATH=$W sh -c ':' ; echo evil > $O/victim",
    ),
    (
        "runner's launcher again",
        Files,
        "printf 'x' | $RUNNER __launch; $RUNNER __launch < /dev/null; echo evil > $O/victim",
    ),
    // Escaping from the process tree.
    ("leave the group of processes", Files, "(setsid sleep 1000.$T &) ; true"),
    ("fork twice, cleared", Files, "(env -i setsid sh -c \"sleep 1000.$T & \" &) ; true"),
    ("trap all signals", Files, "(trap '' TERM INT HUP; sleep 1000.$T) & true"),
    (
        "forget its parent's death",
        Kernel,
        "perl -e 'syscall(157, 1, 0); fork and exit; sleep 1; exec(\"sleep\", \"1000.$ARGV[0]\")' $T",
    ),
    (
        "adopt its own",
        Kernel,
        "perl -e 'syscall(157, 36, 1); unless (fork) { unless (fork) { exec(\"sleep\", \"1000.$ARGV[0]\") } exit }' $T",
    ),
    (
        "fork and fork",
        Kernel,
        "i=0; while [ $i -lt 40 ]; do (setsid sleep 1000.$T &) ; i=$((i+1)); done",
    ),
    (
        "another control group",
        Kernel,
        "for g in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/user.slice; do { echo 0 > $g/cgroup.procs; } && echo THROUGH; done; (setsid sleep 1000.$T &)",
    ),
    (
        "a new control group",
        Kernel,
        "for g in /sys/fs/cgroup /sys/fs/cgroup/unified; do mkdir $g/escape-$T && echo THROUGH; done",
    ),
    (
        "thaw and kill others",
        Kernel,
        "for g in /sys/fs/cgroup/unified/*/ /sys/fs/cgroup/*/; do { : >> $g/cgroup.kill; } && echo THROUGH; done",
    ),
    ("a core", Kernel, "ulimit -c unlimited && [ $(ulimit -c) != 0 ] && echo THROUGH"),
    (
        "a larger file than allowed",
        Kernel,
        "ulimit -f unlimited; dd if=/dev/zero of=$W/big bs=1M count=40 2>/dev/null; [ $(stat -c %s $W/big) -gt 33554432 ] && echo THROUGH",
    ),
    ("more descriptors than allowed", Kernel, "ulimit -n 1000000 && echo THROUGH"),
];
