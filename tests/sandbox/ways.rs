//! The ways around the limits on memory, processes, processor time and disk space, as shell
//! scripts.
//!
//! Most ways use 600 MiB of memory, 80 processes, four seconds of processor time, or 60 MB in the
//! folder `$Q`. A way prints `refused` if the sandbox refused it. Except for the ways to use disk
//! space, a way prints `through` if nothing ended it.

/// A way around a limit: its name and a shell script.
pub type Way = (&'static str, &'static str);

/// Ways to use more than 200 MiB of memory.
pub const MEMORY_WAYS: &[Way] = &[
    ("one process", "perl -e '$x = \"a\" x (600 << 20); sleep 3; print \"through\"'"),
    ("slowly", "perl -e 'for (1..600) { $x .= \"a\" x (1 << 20) } sleep 3; print \"through\"'"),
    (
        "children",
        "for i in 1 2 3 4 5 6; do perl -e '$x = \"a\" x (100 << 20); sleep 3' & done; wait; echo through",
    ),
    (
        "grandchildren in their own sessions",
        "for i in 1 2 3 4 5 6; do (setsid perl -e '$x = \"a\" x (100 << 20); sleep 4' &) ; done; sleep 4; echo through",
    ),
    (
        "many small processes",
        "perl -e 'for (1..300) { fork or do { $x = \"a\" x ((2 << 20) + $_); sleep 15; exit } } 1 while wait > 0; print \"through\"'",
    ),
    ("after exec", "exec perl -e '$x = \"a\" x (600 << 20); sleep 3; print \"through\"'"),
    (
        "written after fork",
        "perl -e '$x = \"a\" x (100 << 20); for (1..6) { fork or do { $x =~ tr/a/b/; sleep 6; exit } } 1 while wait > 0; print \"through\"'",
    ),
    (
        "cleared environment",
        "env -i /usr/bin/perl -e '$x = \"a\" x (600 << 20); sleep 3; print \"through\"'",
    ),
    (
        "hidden from other processes",
        "perl -e 'syscall(157, 4, 0, 0, 0, 0); $x = \"a\" x (600 << 20); sleep 3; print \"through\"'",
    ),
    ("stopped", "perl -e '$x = \"a\" x (600 << 20); kill STOP, $$' & sleep 3; echo through"),
    (
        "first thread ended",
        "perl -Mthreads -e 'threads->create(sub { $x = \"a\" x (600 << 20); sleep 3; print \"through\\n\"; syscall(231, 0) }); syscall(60, 0)'",
    ),
    (
        "shared mapping",
        "perl -e '$m = syscall(9, 0, 600 << 20, 3, 0x21, -1, 0); open(Z, \"<\", \"/dev/zero\"); syscall(0, fileno(Z), $m, 600 << 20); sleep 3; print \"through\"'",
    ),
    (
        "private mapping of a file",
        "perl -e 'open(F, \"+>\", \"$ENV{Q}/map\"); truncate(F, 600 << 20); $m = syscall(9, 0, 600 << 20, 3, 2, fileno(F), 0); open(Z, \"<\", \"/dev/zero\"); syscall(0, fileno(Z), $m, 600 << 20); sleep 3; print \"through\"'",
    ),
    (
        "anonymous file",
        "perl -e '$f = syscall(319, my $n = \"x\", 0); open(F, \">&=\", $f); for (1..600) { syswrite(F, \"a\" x (1 << 20)) } sleep 3; print \"through\"'",
    ),
    (
        "anonymous files of several processes",
        "for i in 1 2 3 4 5 6; do perl -e '$f = syscall(319, my $n = \"x\", 0); open(F, \">&=\", $f); for (1..100) { syswrite(F, \"a\" x (1 << 20)) } sleep 3' & done; wait; echo through",
    ),
    (
        "closed anonymous file with one mapped page",
        "perl -e '$f = syscall(319, my $n = \"x\", 0); open(F, \">&=\", $f); for (1..600) { syswrite(F, \"a\" x (1 << 20)) } syscall(9, 0, 4096, 1, 1, $f, 0); close(F); sleep 3; print \"through\"'",
    ),
    (
        "anonymous file of a process whose first thread ended",
        "perl -Mthreads -e '$f = syscall(319, my $n = \"x\", 0); open(F, \">&=\", $f); threads->create(sub { for (1..600) { syswrite(F, \"a\" x (1 << 20)) } sleep 3; print \"through\\n\"; syscall(231, 0) }); syscall(60, 0)'",
    ),
    (
        "thread with its own open files",
        "perl -e 'exit print \"through\" if syscall(56, 0x10900, 0, 0, 0, 0) >= 0; print \"refused\"'",
    ),
    (
        "System V segment",
        "perl -e '$i = shmget(0, 600 << 20, 01600); exit print \"refused\" unless defined $i; shmwrite($i, \"a\" x (1 << 20), $_ << 20, 1 << 20) for 0..599; sleep 3; print \"through\"; shmctl($i, 0, 0)'",
    ),
    (
        "own memory file system",
        "unshare -Urm sh -c \"mount -t tmpfs x $Q && head -c 600000000 /dev/zero > $Q/x && sleep 3 && echo through\" || echo refused",
    ),
    (
        "pipes",
        "perl -e 'for (1..2000) { pipe(my $r, my $w) or last; fcntl($w, 1031, 1 << 20); fcntl($w, 4, 04000); while ($n = syswrite($w, \"a\" x 65536)) { $t += $n } push @k, $r, $w } sleep 3; printf \"%s %d MB\", ($t > 200 << 20 ? \"through\" : \"refused\"), $t >> 20'",
    ),
    (
        "sockets",
        "perl -MSocket -e 'for (1..2000) { socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or last; for ($a, $b) { fcntl($_, 4, 04000); while ($n = syswrite($_, \"a\" x 32768)) { $t += $n } } push @k, $a, $b } sleep 3; printf \"%s %d MB\", ($t > 200 << 20 ? \"through\" : \"refused\"), $t >> 20'",
    ),
    (
        "anonymous file in a socket",
        "perl -MSocket -e '$f = syscall(319, my $n = \"x\", 0); open(F, \">&=\", $f); for (1..600) { syswrite(F, \"a\" x (1 << 20)) } socketpair(A, B, AF_UNIX, SOCK_STREAM, 0); $c = pack(\"Q l l l x4\", 20, 1, 1, $f); $d = \"x\"; $v = pack(\"P Q\", $d, 1); $m = pack(\"Q L x4 P Q P Q l x4\", 0, 0, $v, 1, $c, 24, 0); syscall(46, fileno(A), $m, 0) == 1 or exit print \"refused\"; close(F); sleep 3; print \"through\"'",
    ),
];

/// The ways that a sampling check may miss. The check estimates the size of unnamed files in
/// sockets from the file system's free space.
pub const NOT_SAMPLED: &[&str] = &[UNNAMED_IN_SOCKET];
const UNNAMED_IN_SOCKET: &str = "without a name in a socket";

/// Ways to start 80 processes or threads.
pub const PROCESS_WAYS: &[Way] = &[
    ("background", "for i in $(seq 80); do sleep 3 & done; wait; echo through"),
    ("daemons", "for i in $(seq 80); do (setsid sleep 4 &); done; sleep 4; echo through"),
    (
        "children",
        "perl -e 'for (1..80) { fork or do { sleep 3; exit } } sleep 3; print \"through\"'",
    ),
    ("chain", "perl -e 'for (1..80) { fork and do { sleep 4; exit } } sleep 3; print \"through\"'"),
    (
        "orphans",
        "perl -e 'for (1..80) { fork or do { fork or do { sleep 4 }; exit } } sleep 3; print \"through\"'",
    ),
    (
        "threads",
        "perl -Mthreads -e 'threads->create(sub { sleep 4 })->detach for 1..80; sleep 3; print \"through\"'",
    ),
    (
        "threads of a process whose first thread ended",
        "perl -Mthreads -e 'threads->create(sub { sleep 4; print \"through\\n\"; syscall(231, 0) })->detach for 1..80; syscall(60, 0)'",
    ),
    ("unreaped", "perl -e 'for (1..80) { fork or exit } sleep 3; print \"through\"'"),
    (
        "stopped",
        "perl -e 'for (1..80) { fork or do { kill STOP, $$ } } sleep 3; print \"through\"'",
    ),
    // On a busy machine, most bursts fall between two samples.
    (
        "bursts",
        "perl -e 'for (1..150) { for (1..80) { fork or do { select(undef, undef, undef, 0.1); exit } } 1 while wait > 0 } print \"through\"'",
    ),
    (
        "cleared environment, ignored signals",
        "for i in $(seq 80); do env -i sh -c 'trap \"\" TERM INT HUP; sleep 3; :' & done; wait; echo through",
    ),
];

/// Ways to use four seconds of processor time.
pub const CPU_WAYS: &[Way] = &[
    ("loop", "perl -e '1 while (times)[0] < 4; print \"through\"'"),
    (
        "children",
        "for i in 1 2 3 4; do perl -e '1 while (times)[0] < 1' & done; wait; echo through",
    ),
    (
        "daemons",
        "for i in 1 2 3 4; do (setsid env -i perl -e '1 while (times)[0] < 1' &); done; sleep 20; echo through",
    ),
    (
        "short processes",
        "for i in $(seq 80); do perl -e '1 while (times)[0] < 0.05'; done; echo through",
    ),
    (
        "short processes whose end is ignored",
        "perl -e '$SIG{CHLD} = \"IGNORE\"; for (1..80) { $p = fork or do { 1 while (times)[0] < 0.05; exit }; waitpid($p, 0) } print \"through\"'",
    ),
    (
        "short orphans",
        "perl -e 'for (1..80) { pipe(R, W); fork or do { fork or do { close(R); 1 while (times)[0] < 0.05; exit }; exit }; close(W); wait; <R> } print \"through\"'",
    ),
    (
        "threads",
        "perl -Mthreads -e '$_->join for map { threads->create(sub { for (1..30000000) {} }) } 1..8; print \"through\"'",
    ),
    (
        "first thread ended",
        "perl -Mthreads -e 'threads->create(sub { 1 while (times)[0] < 4; print \"through\\n\"; syscall(231, 0) }); syscall(60, 0)'",
    ),
    ("in the kernel", "head -c 200000000000 /dev/zero > /dev/null; echo through"),
    (
        "exec after exec",
        "echo '$n = shift; 1 while (times)[0] < $n; exec $^X, $0, $n + 0.2 if $n < 4; print \"through\"' > $Q/p; perl $Q/p 0",
    ),
];

/// Ways to use more than 30 MB of disk space.
pub const DISK_WAYS: &[Way] = &[
    ("one file", "head -c 60000000 /dev/zero > $Q/a; sleep 6"),
    ("small files", "for i in $(seq 600); do head -c 100000 /dev/zero > $Q/$i; done; sleep 6"),
    ("at the very end", "head -c 60000000 /dev/zero > $Q/a"),
    ("open without a name", "exec 9<>$Q/a; rm $Q/a; head -c 60000000 /dev/zero >&9; sleep 6"),
    (
        "opened by a child",
        "(exec 9<>$Q/a; rm $Q/a; head -c 60000000 /dev/zero >&9; exec sleep 6) & sleep 6",
    ),
    (
        "never named",
        "perl -e 'sysopen(F, \"$ENV{Q}\", 020200002, 0600); for (1..60) { syswrite(F, \"a\" x 1000000) } sleep 6'",
    ),
    (
        "mapped without a name",
        "perl -e 'open(F, \"+>\", \"$ENV{Q}/a\"); for (1..60) { syswrite(F, \"a\" x 1000000) } syscall(9, 0, 60000000, 1, 1, fileno(F), 0); unlink(\"$ENV{Q}/a\"); close(F); sleep 6'",
    ),
    (
        "open without a name, first thread ended",
        "perl -Mthreads -e 'open(F, \"+>\", \"$ENV{Q}/a\"); unlink(\"$ENV{Q}/a\"); threads->create(sub { for (1..60) { syswrite(F, \"a\" x 1000000) } sleep 6; syscall(231, 0) }); syscall(60, 0)'",
    ),
    (
        UNNAMED_IN_SOCKET,
        "perl -MSocket -e 'open(F, \"+>\", \"$ENV{Q}/a\"); unlink(\"$ENV{Q}/a\"); for (1..60) { syswrite(F, \"a\" x 1000000) } socketpair(A, B, AF_UNIX, SOCK_STREAM, 0); $c = pack(\"Q l l l x4\", 20, 1, 1, fileno(F)); $d = \"x\"; $v = pack(\"P Q\", $d, 1); $m = pack(\"Q L x4 P Q P Q l x4\", 0, 0, $v, 1, $c, 24, 0); syscall(46, fileno(A), $m, 0); close(F); sleep 6'",
    ),
    (
        "deep",
        "cd $Q; for i in $(seq 300); do mkdir ddddddddddddddddddddd; cd ddddddddddddddddddddd; done; head -c 60000000 /dev/zero > f; sleep 6",
    ),
    ("unreadable folder", "mkdir $Q/d; head -c 60000000 /dev/zero > $Q/d/f; chmod 0 $Q/d; sleep 1"),
    (
        "renamed through a hard link",
        "head -c 60000000 /dev/zero > $Q/a; ln $Q/a $Q/b; rm $Q/a; sleep 6",
    ),
    ("allocated beyond the end", ": > $Q/a; fallocate -n -l 60000000 $Q/a; sleep 6"),
    (
        "filled holes",
        "truncate -s 1G $Q/a; sleep 3; dd if=/dev/zero of=$Q/a bs=1M seek=500 count=60 conv=notrunc 2> /dev/null; fallocate -p -o 0 -l 400M $Q/a; sleep 4",
    ),
    (
        "empty files",
        "perl -e 'for (1..70000) { open(F, \">\", \"$ENV{Q}/$_\"); close(F) } sleep 6'",
    ),
    ("empty folders", "perl -e 'mkdir(\"$ENV{Q}/$_\") for 1..9000; sleep 6'"),
    (
        "links with long targets",
        "perl -e 'symlink(\"x\" x 4000, \"$ENV{Q}/$_\") for 1..9000; sleep 6'",
    ),
    (
        "renamed all the time",
        "mkdir $Q/a; for i in $(seq 60); do head -c 1000000 /dev/zero > $Q/a/$i; done; perl -e '$t = time; while (time < $t + 6) { rename(\"$ENV{Q}/a\", \"$ENV{Q}/b\"); rename(\"$ENV{Q}/b\", \"$ENV{Q}/a\") }'",
    ),
    (
        "temporary folder",
        "head -c 60000000 /dev/zero > /tmp/a 2> /dev/null || echo refused; sleep 3",
    ),
    (
        "shared memory",
        "head -c 60000000 /dev/zero > /dev/shm/a 2> /dev/null || echo refused; sleep 3",
    ),
];
