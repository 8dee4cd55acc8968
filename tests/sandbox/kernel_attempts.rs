//! The attempts on the kernel: namespaces, mounts, file handles, privileges and devices. They get
//! the variables that `attempts.rs` describes.

use super::attempts::About::{self, Files, Kernel};

pub const ON_KERNEL: &[(&str, About, &str)] = &[
    // Namespaces, mounts, roots.
    ("create a user namespace", Files, "unshare -Ur true && echo THROUGH"),
    (
        "create a user namespace with clone",
        Kernel,
        "perl -e 'my $p = syscall(56, 0x10000011, 0, 0, 0, 0); if ($p == 0) { syscall(231, 0) } print \"THROUGH\\n\" if $p > 0'",
    ),
    (
        "create a user namespace with clone3",
        Kernel,
        "perl -e 'my $a = pack(\"Q11\", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0); my $p = syscall(435, $a, 88); if ($p == 0) { syscall(231, 0) } print \"THROUGH\\n\" if $p > 0'",
    ),
    ("create a mount namespace", Kernel, "unshare -m true && echo THROUGH"),
    ("create a process namespace", Kernel, "unshare -p true && echo THROUGH"),
    ("create a network namespace", Kernel, "unshare -n true && echo THROUGH"),
    (
        "remount folders writable",
        Kernel,
        "mount -o remount,bind,rw / && echo THROUGH; mount -o remount,rw $O && echo THROUGH",
    ),
    ("mount over a read-only folder", Kernel, "mount --bind $W $O && echo THROUGH"),
    (
        "mount a read-only folder elsewhere",
        Kernel,
        "mkdir $W/m; mount --bind $O $W/m && echo evil > $W/m/victim",
    ),
    ("mount tmpfs over a folder", Kernel, "mount -t tmpfs none $O && echo THROUGH"),
    ("mount proc again", Kernel, "mkdir $W/p; mount -t proc none $W/p && echo THROUGH"),
    (
        "open a mount tree",
        Kernel,
        "perl -e 'print \"THROUGH\\n\" if syscall(428, -100, \"/\", 1) >= 0'",
    ),
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
        "start bubblewrap",
        Kernel,
        "bwrap --bind / / --dev /dev -- sh -c \"echo evil > $O/victim; echo THROUGH\"",
    ),
    // File handles, io_uring and memfd.
    (
        "open a file by handle",
        Kernel,
        "perl -e 'my $h = pack(\"Ll\", 128, 0) . \"\\0\" x 128; my $m = pack(\"l\", 0); syscall(303, -100, $ARGV[0], $h, $m, 0); my $f = syscall(304, -100, $h, 1); syscall(1, $f, \"evil\", 4) if $f >= 0; print \"THROUGH\\n\" if $f >= 0' $O/victim",
    ),
    (
        "set up io_uring",
        Files,
        "perl -e 'my $p = \"\\0\" x 120; print \"THROUGH\\n\" if syscall(425, 8, $p) >= 0'",
    ),
    (
        "run a program from memory",
        Kernel,
        "perl -e 'my $f = syscall(319, \"x\", 0); open(I, \"<\", \"/bin/sh\"); open(O, \">&=\", $f); local $/; print O <I>; close(I); O->flush if O->can(\"flush\"); exec(\"/proc/self/fd/$f\", \"-c\", \"echo evil > $ARGV[0]\")' $O/victim",
    ),
    // Privileges.
    (
        "run a setuid program",
        Kernel,
        "cp /bin/sh $W/sh; chmod 4755 $W/sh; $W/sh -p -c \"echo evil > $O/victim\"",
    ),
    ("run su", Kernel, "su -c \"echo evil > $O/victim\" </dev/null"),
    ("mount with a setuid program", Kernel, "/bin/mount -t tmpfs x $W && echo THROUGH"),
    ("gain new privileges", Files, "grep -q 'NoNewPrivs:.0' /proc/self/status && echo THROUGH"),
    (
        "use capabilities",
        Kernel,
        "grep -q 'CapEff:.0000000000000000' /proc/self/status || echo THROUGH",
    ),
    (
        "use capabilities after exec",
        Kernel,
        "sh -c \"grep -q 'CapPrm:.0000000000000000' /proc/self/status\" || echo THROUGH",
    ),
    ("run without a call filter", Files, "grep -q 'Seccomp:.2' /proc/self/status || echo THROUGH"),
    // The kernel itself.
    (
        "change a kernel setting",
        Kernel,
        "p=$(cat /proc/sys/kernel/core_pattern); echo \"$p\" > /proc/sys/kernel/core_pattern && echo THROUGH",
    ),
    ("trigger sysrq", Kernel, "echo h > /proc/sysrq-trigger && echo THROUGH"),
    ("write to sysfs", Kernel, ": >> /sys/kernel/mm/ksm/run && echo THROUGH"),
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
        "create a BPF map",
        Kernel,
        "perl -e 'my $a = pack(\"L4\", 2, 4, 4, 1) . \"\\0\" x 64; print \"THROUGH\\n\" if syscall(321, 0, $a, 64) >= 0'",
    ),
    (
        "open a performance event",
        Kernel,
        "perl -e 'my $a = pack(\"LL\", 1, 112) . \"\\0\" x 104; print \"THROUGH\\n\" if syscall(298, $a, 0, -1, -1, 0) >= 0'",
    ),
    ("handle page faults", Kernel, "perl -e 'print \"THROUGH\\n\" if syscall(323, 1) >= 0'"),
    (
        "add a key",
        Files,
        "perl -e 'print \"THROUGH\\n\" if syscall(248, \"user\", \"evil\", \"x\", 1, -3) >= 0'",
    ),
    (
        "set the clock",
        Kernel,
        "perl -e 'my $t = pack(\"qq\", 1, -1); syscall(164, $t, 0); print \"THROUGH\\n\" if $! != 1'",
    ),
    (
        "set the host name",
        Kernel,
        "perl -e 'syscall(170, \"evil\", 999); print \"THROUGH\\n\" if $! != 1'",
    ),
    (
        "turn on accounting",
        Kernel,
        "perl -e 'syscall(163, $ARGV[0]); print \"THROUGH\\n\" if $! != 1' $W/x",
    ),
    ("turn on swap", Kernel, "perl -e 'syscall(167, \"/x\", 0); print \"THROUGH\\n\" if $! != 1'"),
    (
        "restart the host",
        Kernel,
        "perl -e 'syscall(169, 1, 2, 3, 0); print \"THROUGH\\n\" if $! != 1'",
    ),
    (
        "read kernel messages",
        Kernel,
        "perl -e 'my $b = \" \" x 100; print \"THROUGH\\n\" if syscall(103, 3, $b, 100) >= 0'",
    ),
    ("make an x32 call", Kernel, "perl -e 'print \"THROUGH\\n\" if syscall(0x40000000 + 39) > 0'"),
    (
        "open a raw disk",
        Kernel,
        "for d in /dev/sda /dev/vda /dev/nvme0n1 /dev/mem /dev/kmsg; do [ -e $d ] && { : >> $d; } && echo THROUGH; done",
    ),
    ("create a disk device", Kernel, "mknod $W/disk b 8 0 && echo THROUGH"),
    ("create a memory device", Kernel, "mknod $W/mem c 1 1 && echo THROUGH"),
];
