//! The system call filter (seccomp), which refuses calls that neither Landlock nor a mount view can
//! refuse.
//!
//! The filter decides by call number and by numeric arguments; it cannot see paths. It refuses the
//! following:
//!
//! - inspecting and controlling other processes;
//! - new namespaces and mounts, because an unprivileged user namespace would restore the right to
//!   mount;
//! - loading code into the kernel;
//! - handles and rings that bypass checks (`open_by_handle_at`, `io_uring`);
//! - feeding input to a terminal;
//! - changing the machine's clock and power state;
//! - the kernel's keyring;
//! - setting the setuid bit of a file, through which another user could act as this one;
//! - sockets of all but the common families.
//!
//! Without a mount view, which would hide the sockets of other programs, the filter refuses all
//! Unix sockets except stream and sequenced-packet pairs. It then also refuses System V shared
//! memory, queues and semaphores, which are shared with other programs and outlive a run. Under a
//! mount view, the child has its own, and the filter refuses only large segments, whose memory a
//! sample does not count.
//!
//! A call for another architecture kills the caller. Every other refused call returns an error, so
//! that a program that merely tries the call can continue.
//!
//! The filter must only be installed on a thread that is about to start the program.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

use super::SandboxError;

/// The calls that the filter allows.
#[derive(Clone, Copy, Debug)]
pub struct SyscallRules {
    /// Whether internet sockets are allowed.
    pub network: bool,
    /// Whether all Unix sockets and System V IPC are allowed. They are safe only under a mount
    /// view, which hides the sockets of other programs and has its own IPC namespace.
    pub sockets: bool,
    /// Whether new processes may be started. Threads are always allowed.
    pub processes: bool,
}

/// System calls that no job's program needs. They are refused with EPERM.
const REFUSED: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
];

/// System calls that are refused with ENOSYS, so that programs fall back to another call.
const ABSENT: &[i64] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // The flags of `clone3` are in memory, which a filter cannot read; those of `clone` are in a
    // register.
    libc::SYS_clone3,
    // The mode of `openat2` is also in memory.
    libc::SYS_openat2,
];

/// Calls that set a file's mode, with the number of the argument that contains the mode.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
];
/// Calls that set a file's mode only if they create the file, with the number of the argument that
/// contains the flags. The mode is the next argument.
const OPENS: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];
/// The largest System V segment in bytes. The 4096 segments that the kernel allows then use at most
/// 256 MiB.
const SEGMENT: u64 = 64 << 10;
/// The number of `fchmodat2`, which is the same on every architecture.
const FCHMODAT2: i64 = 452;
const SETUID: u64 = 0o4000;
/// `O_CREAT`, and the part of `O_TMPFILE` that is not `O_DIRECTORY`.
const CREATES: [u64; 2] = [0o100, 0o20_000_000];

/// All `CLONE_NEW*` flags.
const NAMESPACES: [u64; 8] = [
    0x0000_0080,
    0x0002_0000,
    0x0200_0000,
    0x0400_0000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
];

const CLONE_THREAD: u64 = 0x0001_0000;
const CLONE_VFORK: u64 = 0x0000_4000;
const CLONE_FILES: u64 = 0x0000_0400;

/// The requests `TIOCSTI`, `TIOCLINUX`, `TIOCCONS` and `TIOCSCTTY`, which can fake terminal input,
/// redirect the console or take over a terminal.
const TERMINAL: [u64; 4] = [0x5412, 0x541c, 0x541d, 0x540e];

/// Installs the filter on this thread. The filter also applies to every process that the thread
/// starts.
///
/// # Errors
/// Returns [`SandboxError::Kernel`] if the filter cannot be installed.
pub fn refuse(wanted: SyscallRules) -> Result<(), SandboxError> {
    let kernel = |error: seccompiler::Error| SandboxError::Kernel(format!("seccomp: {error}"));
    for program in programs(wanted).map_err(kernel)? {
        apply_filter(&program).map_err(kernel)?;
    }
    Ok(())
}

fn programs(wanted: SyscallRules) -> Result<Vec<BpfProgram>, seccompiler::Error> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let compile = |rules, error: i32| -> Result<BpfProgram, seccompiler::Error> {
        let refusal = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch)?;
        Ok(filter.try_into()?)
    };
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let flags = NAMESPACES.iter().map(|flag| when(0, SeccompCmpOp::MaskedEq(*flag), *flag));
    let mut clones: Vec<SeccompRule> = flags.collect::<Result<_, _>>()?;
    // A thread with its own table of open files could hide files from the memory and disk space
    // checks.
    clones.push(when(0, SeccompCmpOp::MaskedEq(CLONE_THREAD | CLONE_FILES), CLONE_THREAD)?);
    if !wanted.processes {
        // `CLONE_VFORK` must be allowed, because starting the program itself uses it.
        let either = CLONE_THREAD | CLONE_VFORK;
        clones.push(when(0, SeccompCmpOp::MaskedEq(either), 0)?);
        #[cfg(target_arch = "x86_64")]
        refused.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
    }
    refused.insert(libc::SYS_clone, clones);
    let requests = TERMINAL.iter().map(|request| when(1, SeccompCmpOp::Eq, *request));
    refused.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    if wanted.sockets {
        let large = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Gt, SEGMENT)?;
        refused.insert(libc::SYS_shmget, vec![SeccompRule::new(vec![large])?]);
    } else {
        let calls = [libc::SYS_shmget, libc::SYS_msgget, libc::SYS_semget];
        refused.extend(calls.map(|call| (call, Vec::new())));
    }
    let set = |mode| condition(mode, SeccompCmpOp::MaskedEq(SETUID), SETUID);
    for (call, mode) in MODES {
        refused.insert(*call, vec![SeccompRule::new(vec![set(*mode)?])?]);
    }
    for (call, flags) in OPENS {
        let creates = CREATES.iter().map(|flag| {
            let creates = condition(*flags, SeccompCmpOp::MaskedEq(*flag), *flag)?;
            Ok::<_, seccompiler::Error>(SeccompRule::new(vec![creates, set(flags + 1)?])?)
        });
        refused.insert(*call, creates.collect::<Result<_, _>>()?);
    }
    let absent = ABSENT.iter().map(|call| (*call, Vec::new())).collect();
    let mut all = vec![
        compile(refused, libc::EPERM)?,
        compile(absent, libc::ENOSYS)?,
        compile(families(wanted)?, libc::EACCES)?,
    ];
    if cfg!(target_arch = "x86_64") {
        all.push(only_64_bit());
    }
    Ok(all)
}

/// Returns the rules that refuse sockets of every family that is not allowed.
fn families(wanted: SyscallRules) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::Error> {
    let mut open = vec![libc::AF_NETLINK];
    if wanted.sockets {
        open.push(libc::AF_UNIX);
    }
    if wanted.network {
        open.extend([libc::AF_INET, libc::AF_INET6]);
    }
    let not =
        open.iter().map(|family| condition(0, SeccompCmpOp::Ne, family.unsigned_abs().into()));
    let closed = SeccompRule::new(not.collect::<Result<_, _>>()?)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = [(libc::SYS_socket, vec![closed])].into();
    if !wanted.sockets {
        // A socket in a datagram pair can be connected to another address, so datagram pairs are
        // refused.
        let datagram = u64::from(libc::SOCK_DGRAM.unsigned_abs());
        let datagram = when(1, SeccompCmpOp::MaskedEq(0xf), datagram)?;
        rules.insert(libc::SYS_socketpair, vec![datagram]);
    }
    Ok(rules)
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::Error> {
    // The kernel reads these arguments as 32-bit values and ignores the upper half.
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value);
    Ok(condition?)
}

fn when(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![condition(argument, operator, value)?])?)
}

/// Builds a filter that refuses x32 calls. The kernel reports the same architecture for them as for
/// 64-bit calls, and the other filters do not list their numbers. The filter loads the call number,
/// refuses any number of at least 2^30 with ENOSYS, and allows the rest.
fn only_64_bit() -> BpfProgram {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(0x20, 0, 0, 0),
        step(0x35, 0, 1, 0x4000_0000),
        step(0x06, 0, 0, 0x0005_0000 | libc::ENOSYS.unsigned_abs()),
        step(0x06, 0, 0, 0x7fff_0000),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syscall_filter_compiles() {
        for bits in 0..8 {
            let wanted = SyscallRules {
                network: bits & 1 != 0,
                sockets: bits & 2 != 0,
                processes: bits & 4 != 0,
            };
            let all = programs(wanted).unwrap();
            assert!(all.iter().all(|program| program.len() < 4096));
        }
    }
}
