//! The Landlock part of the sandbox: paths, ports and scopes.
//!
//! Rights are granted and never revoked. The ruleset handles every right that the running kernel
//! supports, so an access that no rule grants is refused. A rule that cannot be created is an
//! error. ABI 3 is the minimum, because earlier ABIs cannot refuse file truncation.
//!
//! Under a mount view (`held`), mounts protect the kept and hidden paths, and a rule may grant
//! access to a whole folder. Without a mount view, each existing sibling of a kept or hidden path
//! gets its own rule. An entry that does not exist yet has no rule, so it cannot be created later
//! next to a kept path.
//!
//! This module must only be used on a thread that is about to start the program, because it
//! restricts the thread permanently.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};

use super::SandboxError;
use super::resolve::ResolvedSandbox;

/// Devices that every program needs and that store no data.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Additional devices for a child that has a private `/dev`.
const OWN_DEVICES: [&str; 5] = ["/dev/shm", "/dev/pts", "/dev/ptmx", "/dev/tty", "/dev/mqueue"];

/// The first ABI that restricts signals and abstract sockets.
pub const SCOPES: u32 = 6;

/// The restrictions to enforce.
#[derive(Clone, Copy, Debug)]
pub struct LandlockRules<'a> {
    pub real: &'a ResolvedSandbox,
    /// Whether the program may use TCP.
    pub network: bool,
    /// Whether mounts already protect the kept and hidden paths.
    pub held: bool,
}

/// Returns whether this kernel supports the minimum ABI.
pub fn is_there() -> bool {
    known().is_some()
}

fn known() -> Option<ABI> {
    let all = [ABI::V9, ABI::V8, ABI::V7, ABI::V6, ABI::V5, ABI::V4, ABI::V3];
    all.into_iter().find(|abi| ruleset(*abi, BitFlags::EMPTY).is_ok())
}

fn number(abi: ABI) -> u32 {
    match abi {
        ABI::V3 => 3,
        ABI::V4 => 4,
        ABI::V5 => 5,
        ABI::V6 => 6,
        ABI::V7 => 7,
        ABI::V8 => 8,
        ABI::V9 => 9,
        _ => 0,
    }
}

/// Creates a ruleset that handles the file rights and scopes of `abi`, and the port rights in
/// `ports`.
fn ruleset(abi: ABI, ports: BitFlags<AccessNet>) -> Result<RulesetCreated, landlock::RulesetError> {
    let mut set = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if !ports.is_empty() {
        set = set.handle_access(ports)?;
    }
    let scopes = Scope::from_all(abi);
    if !scopes.is_empty() {
        set = set.scope(scopes)?;
    }
    set.create()
}

fn kernel(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::Kernel(format!("landlock: {error}"))
}

fn required() -> Result<ABI, SandboxError> {
    known().ok_or_else(|| SandboxError::Nothing {
        why: "Landlock with ABI 3 or later is not available".to_owned(),
    })
}

/// Grants `rights` beneath an open path.
fn grant(
    set: RulesetCreated,
    abi: ABI,
    (path, handle): (&Path, PathFd),
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, SandboxError> {
    let rights = if path.is_dir() { rights } else { rights & AccessFs::from_file(abi) };
    match rights.is_empty() {
        true => Ok(set),
        false => set.add_rule(PathBeneath::new(handle, rights)).map_err(kernel),
    }
}

/// Restricts this thread and every process that it starts. Returns the number of the ABI that
/// enforces the restrictions.
fn enforce(set: RulesetCreated, abi: ABI) -> Result<u32, SandboxError> {
    let status = set.restrict_self().map_err(kernel)?;
    if status.ruleset != RulesetStatus::FullyEnforced || !status.no_new_privs {
        return Err(kernel("it is not fully enforced"));
    }
    // Two ABIs may have the same rights, so the number comes from the kernel's own report.
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => number(effective_abi),
        _ => number(abi),
    })
}

/// Restricts this thread and every process that it starts. Returns the number of the ABI that
/// enforces the restrictions.
///
/// # Errors
/// Returns [`SandboxError::Nothing`] if the kernel does not support ABI 3, and
/// [`SandboxError::Kernel`] if the restrictions cannot be created or are not fully enforced.
pub fn restrict(wanted: &LandlockRules<'_>) -> Result<u32, SandboxError> {
    let abi = required()?;
    let ports = if wanted.network { BitFlags::EMPTY } else { AccessNet::from_all(abi) };
    let mut set = ruleset(abi, ports).map_err(kernel)?;
    for (path, rights) in rules(wanted, abi) {
        // A path that no longer exists needs no rule.
        if let Ok(handle) = PathFd::new(&path) {
            set = grant(set, abi, (&path, handle), rights)?;
        }
    }
    enforce(set, abi)
}

/// Restricts this thread and every process that it starts: they may read, execute `executables` and
/// write beneath `write`, and may not use TCP. If `executables` is empty, execution is not
/// restricted.
///
/// # Errors
/// Returns the errors of [`restrict`], and an error if a path does not exist.
pub(super) fn restrict_to(executables: &[PathBuf], write: &[PathBuf]) -> Result<(), SandboxError> {
    let abi = required()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let everywhere = match executables {
        [] => read | AccessFs::Execute,
        _ => read,
    };
    let changes = AccessFs::from_write(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let null = read | AccessFs::WriteFile;
    let run = AccessFs::ReadFile | AccessFs::Execute;
    let fixed = [(Path::new("/"), everywhere), (Path::new("/dev/null"), null)];
    let executables = executables.iter().map(|path| (path.as_path(), run));
    let write = write.iter().map(|path| (path.as_path(), changes | read));
    let mut set = ruleset(abi, AccessNet::from_all(abi)).map_err(kernel)?;
    for (path, rights) in fixed.into_iter().chain(executables).chain(write) {
        let handle = PathFd::new(path).map_err(kernel)?;
        set = grant(set, abi, (path, handle), rights)?;
    }
    enforce(set, abi).map(drop)
}

/// Returns each path with the rights granted to it.
fn rules(wanted: &LandlockRules<'_>, abi: ABI) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let real = wanted.real;
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    // No program needs to create device nodes.
    let write = all & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let mut rules = Vec::new();
    if wanted.held || real.hide.is_empty() {
        rules.push((PathBuf::from("/"), read));
    } else {
        rules.push((PathBuf::from("/"), AccessFs::ReadDir.into()));
        let hidden: Vec<&Path> = real.hide.iter().map(|place| place.path.as_path()).collect();
        for path in around(Path::new("/"), &hidden) {
            rules.push((path, read));
        }
        rules.extend(real.show.iter().map(|place| (place.path.clone(), read)));
    }
    let devices: &[&[&str]] = if wanted.held { &[&DEVICES, &OWN_DEVICES] } else { &[&DEVICES] };
    for device in devices.iter().copied().flatten() {
        rules.push((PathBuf::from(device), write | read));
    }
    for place in &real.write {
        let protected: Vec<&Path> = real
            .keep
            .iter()
            .map(|keep| keep.path.as_path())
            .chain(real.missing.iter().map(PathBuf::as_path))
            .chain(real.hide.iter().map(|hidden| hidden.path.as_path()))
            .filter(|path| path.starts_with(&place.path) && *path != place.path)
            .collect();
        if wanted.held || protected.is_empty() {
            rules.push((place.path.clone(), write | read));
            continue;
        }
        // No entry can be added to or removed from the folder itself. Its current entries can be
        // read and, except for the kept paths, written. A hidden path can be neither read nor
        // written.
        let hidden = real.hide.iter().map(|hidden| hidden.path.as_path());
        let hidden: Vec<&Path> = hidden.filter(|path| protected.contains(path)).collect();
        rules.push((
            place.path.clone(),
            if hidden.is_empty() { read } else { AccessFs::ReadDir.into() },
        ));
        for path in around(&place.path, &hidden) {
            rules.push((path, read));
        }
        for path in around(&place.path, &protected) {
            rules.push((path, write | read));
        }
    }
    rules
}

/// Returns the topmost existing paths at or beneath `root` that neither are nor contain a path in
/// `avoid`. Symbolic links are omitted.
fn around(root: &Path, avoid: &[&Path]) -> BTreeSet<PathBuf> {
    if avoid.contains(&root) {
        return BTreeSet::new();
    }
    if !avoid.iter().any(|path| path.starts_with(root)) {
        return [root.to_owned()].into();
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
        .flat_map(|entry| around(&entry.path(), avoid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_of_kept_paths_get_own_rules() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in ["a/b/keep", "a/b/free", "a/c", "d"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink("/etc", root.join("a/link")).unwrap();
        let (keep, gone) = (root.join("a/b/keep"), root.join("a/b/gone"));
        let found = around(root, &[&keep, &gone]);
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a/b/free", "a/c", "d"]);
        assert_eq!(around(&keep, &[&keep]), BTreeSet::new());
    }
}
