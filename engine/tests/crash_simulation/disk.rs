//! A disk with a page cache. It stores the state that programs see, the state that survives a power
//! cut, and the changes between the two.
//!
//! Content is durable once its file is synced, and a name is durable once its folder is synced. A
//! power cut may keep or drop any other change, subject to two rules of journaled file systems.
//! First, an exchange survives as a whole or not at all. Second, a rename never survives only as
//! the loss of the old name. `Order::Unjournaled` drops the second rule. Unsynced content may be
//! kept, lost, truncated or read as zeros.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use runner_engine::digest::Digest;

/// File content with its digest.
#[derive(Debug)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub digest: Digest,
}

pub type Blob = Rc<Content>;

pub fn blob(bytes: &[u8]) -> Blob {
    Rc::new(Content { bytes: bytes.to_vec(), digest: Digest::of(bytes) })
}

type Names = BTreeMap<Rc<str>, usize>;

#[derive(Clone, Debug)]
enum Node {
    File { live: Blob, durable: Blob },
    Dir { live: Names, durable: Names },
}

/// A change to one name that may not be durable yet.
#[derive(Clone, Debug)]
struct Change {
    id: u32,
    dir: usize,
    name: Rc<str>,
    /// The new node of the name, or `None` if the name is removed.
    to: Option<usize>,
    /// In the second half of an exchange, the first half. Both survive or neither does.
    with: Option<u32>,
    /// In the second half of a rename, the first half. With a journal, the second half survives
    /// only if the first half does.
    after: Option<u32>,
}

/// The reason for an operation's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Missing,
    Exists,
    Unsupported,
    NotEmpty,
}

/// Whether the disk has a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Journaled,
    Unjournaled,
}

#[derive(Clone, Debug)]
pub struct Disk {
    nodes: Vec<Node>,
    pending: Vec<Change>,
    next: u32,
    /// Whether the disk supports exchanges and no-replace renames.
    pub modern: bool,
}

const ROOT: usize = 0;

impl Disk {
    pub fn new(modern: bool) -> Self {
        let root = Node::Dir { live: Names::new(), durable: Names::new() };
        Self { nodes: vec![root], pending: Vec::new(), next: 0, modern }
    }

    // Reads return the state that programs see, durable or not.

    pub fn read(&self, path: &str) -> Option<&Blob> {
        match &self.nodes[self.node(path)?] {
            Node::File { live, .. } => Some(live),
            Node::Dir { .. } => None,
        }
    }

    pub fn list(&self, path: &str) -> Option<Vec<String>> {
        match &self.nodes[self.node(path)?] {
            Node::Dir { live, .. } => Some(live.keys().map(|name| name.to_string()).collect()),
            Node::File { .. } => None,
        }
    }

    // The following functions are the operations of publications.

    pub fn write_new(&mut self, path: &str, bytes: &[u8]) -> Result<(), Refusal> {
        let (dir, name) = self.place(path)?;
        if self.entry(dir, name).is_some() {
            return Err(Refusal::Exists);
        }
        self.nodes.push(Node::File { live: blob(bytes), durable: blob(b"") });
        self.set(dir, name, Some(self.nodes.len() - 1), None, None);
        Ok(())
    }

    pub fn sync_file(&mut self, path: &str) -> Result<(), Refusal> {
        let at = self.node(path).ok_or(Refusal::Missing)?;
        if let Node::File { live, durable } = &mut self.nodes[at] {
            *durable = live.clone();
        }
        Ok(())
    }

    pub fn create_dir(&mut self, path: &str) -> Result<(), Refusal> {
        let (dir, name) = self.place(path)?;
        match self.entry(dir, name).map(|at| &self.nodes[at]) {
            Some(Node::Dir { .. }) => return Ok(()),
            Some(Node::File { .. }) => return Err(Refusal::Exists),
            None => {}
        }
        self.nodes.push(Node::Dir { live: Names::new(), durable: Names::new() });
        self.set(dir, name, Some(self.nodes.len() - 1), None, None);
        Ok(())
    }

    pub fn sync_dir(&mut self, path: Option<&str>) -> Result<(), Refusal> {
        let dir = path.map_or(Some(ROOT), |path| self.node(path)).ok_or(Refusal::Missing)?;
        let here: Vec<u32> = self
            .pending
            .iter()
            .filter(|change| change.dir == dir)
            .map(|change| change.id)
            .collect();
        if !here.is_empty() {
            let kept = self.closure(here);
            self.persist(&kept);
        }
        Ok(())
    }

    pub fn rename(&mut self, from: &str, to: &str, replace: bool) -> Result<(), Refusal> {
        if !replace && !self.modern {
            return Err(Refusal::Unsupported);
        }
        let ((from_dir, from_name), (to_dir, to_name)) = (self.place(from)?, self.place(to)?);
        let at = self.entry(from_dir, from_name).ok_or(Refusal::Missing)?;
        match self.entry(to_dir, to_name) {
            Some(_) if !replace => return Err(Refusal::Exists),
            // POSIX requires a rename between two names of the same file to do nothing.
            Some(same) if same == at => return Ok(()),
            _ => {}
        }
        let added = self.set(to_dir, to_name, Some(at), None, None);
        self.set(from_dir, from_name, None, None, Some(added));
        Ok(())
    }

    pub fn exchange(&mut self, one: &str, other: &str) -> Result<(), Refusal> {
        if !self.modern {
            return Err(Refusal::Unsupported);
        }
        let ((one_dir, one_name), (other_dir, other_name)) = (self.place(one)?, self.place(other)?);
        let first = self.entry(one_dir, one_name).ok_or(Refusal::Missing)?;
        let second = self.entry(other_dir, other_name).ok_or(Refusal::Missing)?;
        let half = self.set(one_dir, one_name, Some(second), None, None);
        self.set(other_dir, other_name, Some(first), Some(half), None);
        Ok(())
    }

    pub fn remove_file(&mut self, path: &str) -> Result<(), Refusal> {
        let (dir, name) = self.place(path)?;
        self.entry(dir, name).ok_or(Refusal::Missing)?;
        self.set(dir, name, None, None, None);
        Ok(())
    }

    pub fn remove_dir(&mut self, path: &str) -> Result<(), Refusal> {
        let (dir, name) = self.place(path)?;
        let at = self.entry(dir, name).ok_or(Refusal::Missing)?;
        if matches!(&self.nodes[at], Node::Dir { live, .. } if !live.is_empty()) {
            return Err(Refusal::NotEmpty);
        }
        self.set(dir, name, None, None, None);
        Ok(())
    }

    // The following functions make the changes of other programs. These changes are durable
    // immediately, except those made by `scribble`.

    pub fn put_durably(&mut self, path: &str, bytes: &[u8]) {
        let mut at = 0;
        while let Some(slash) = path[at..].find('/') {
            let _ = self.create_dir(&path[..at + slash]);
            at += slash + 1;
        }
        let (dir, name) = self.place(path).expect("its folders were just created");
        let content = blob(bytes);
        self.nodes.push(Node::File { live: content.clone(), durable: content });
        self.set(dir, name, Some(self.nodes.len() - 1), None, None);
        self.sync_above(path);
    }

    /// Rewrites a file in place, as some editors do. Returns `false` if the file does not exist.
    pub fn rewrite_durably(&mut self, path: &str, bytes: &[u8]) -> bool {
        let Some(at) = self.node(path) else {
            return false;
        };
        let content = blob(bytes);
        self.nodes[at] = Node::File { live: content.clone(), durable: content };
        self.sync_above(path);
        true
    }

    /// Rewrites or creates a file without a sync.
    pub fn scribble(&mut self, path: &str, bytes: &[u8]) -> bool {
        match self.node(path) {
            None => self.write_new(path, bytes).is_ok(),
            Some(at) => {
                if let Node::File { live, .. } = &mut self.nodes[at]
                    && live.bytes != bytes
                {
                    *live = blob(bytes);
                }
                true
            }
        }
    }

    pub fn delete_durably(&mut self, path: &str) -> bool {
        let deleted = self.remove_file(path).is_ok();
        if deleted {
            self.sync_above(path);
        }
        deleted
    }

    fn sync_above(&mut self, path: &str) {
        let mut folder = path.rsplit_once('/').map(|(folder, _)| folder);
        loop {
            self.sync_dir(folder).expect("the folder exists");
            match folder {
                Some(inner) => folder = inner.rsplit_once('/').map(|(outer, _)| outer),
                None => return,
            }
        }
    }

    // The following functions simulate power cuts.

    /// Returns the units of changes that a power cut keeps or drops as a whole. An exchange is one
    /// unit, and a rename is two.
    pub fn units(&self) -> Vec<Vec<u32>> {
        let mut units: Vec<Vec<u32>> = Vec::new();
        for change in &self.pending {
            match change.with.and_then(|with| units.iter_mut().find(|unit| unit.contains(&with))) {
                Some(unit) => unit.push(change.id),
                None => units.push(vec![change.id]),
            }
        }
        units
    }

    /// Returns the files with unsynced content, along with that content.
    pub fn unsynced(&self) -> Vec<(usize, Blob)> {
        self.nodes
            .iter()
            .enumerate()
            .filter_map(|(at, node)| match node {
                Node::File { live, durable } if live.digest != durable.digest => {
                    Some((at, live.clone()))
                }
                _ => None,
            })
            .collect()
    }

    /// Returns whether a power cut could keep exactly these changes.
    pub fn allows(&self, kept: &[u32], order: Order) -> bool {
        let pending = |id: u32| self.pending.iter().any(|change| change.id == id);
        order == Order::Unjournaled
            || self.pending.iter().filter(|change| kept.contains(&change.id)).all(|change| {
                change.after.is_none_or(|first| kept.contains(&first) || !pending(first))
            })
    }

    /// Returns the disk after a power cut that kept these changes and this unsynced content.
    pub fn cut(&self, kept: &[u32], content: &[(usize, Blob)]) -> Self {
        let mut disk = self.clone();
        disk.persist(kept);
        disk.pending.clear();
        for (at, node) in disk.nodes.iter_mut().enumerate() {
            match node {
                Node::Dir { live, durable } => live.clone_from(durable),
                Node::File { live, durable } => {
                    if let Some((_, kept)) = content.iter().find(|(file, _)| *file == at) {
                        durable.clone_from(kept);
                    }
                    live.clone_from(durable);
                }
            }
        }
        disk
    }

    /// Returns a hash of the state that programs can see and of the changes that a power cut can
    /// drop. Disks that do not differ in these respects have the same hash.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut seen = vec![0_u32; self.nodes.len()];
        let mut count = 0;
        self.hash_node(ROOT, &mut seen, &mut count, &mut hasher);
        for change in &self.pending {
            (change.with.is_some(), change.after.is_some(), &change.name).hash(&mut hasher);
            self.hash_node(change.dir, &mut seen, &mut count, &mut hasher);
            match change.to {
                Some(to) => self.hash_node(to, &mut seen, &mut count, &mut hasher),
                None => u32::MAX.hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    fn hash_node(&self, at: usize, seen: &mut [u32], count: &mut u32, hasher: &mut DefaultHasher) {
        if seen[at] > 0 {
            seen[at].hash(hasher);
            return;
        }
        *count += 1;
        seen[at] = *count;
        0_u32.hash(hasher);
        match &self.nodes[at] {
            Node::File { live, durable } => (live.digest, durable.digest).hash(hasher),
            Node::Dir { live, .. } => {
                live.len().hash(hasher);
                for (name, to) in live {
                    name.hash(hasher);
                    self.hash_node(*to, seen, count, hasher);
                }
            }
        }
    }

    fn node(&self, path: &str) -> Option<usize> {
        path.split('/').try_fold(ROOT, |dir, name| self.entry(dir, name))
    }

    fn entry(&self, dir: usize, name: &str) -> Option<usize> {
        match &self.nodes[dir] {
            Node::Dir { live, .. } => live.get(name).copied(),
            Node::File { .. } => None,
        }
    }

    /// Returns the parent folder of `path` and its last component.
    fn place<'p>(&self, path: &'p str) -> Result<(usize, &'p str), Refusal> {
        match path.rsplit_once('/') {
            None => Ok((ROOT, path)),
            Some((folder, name)) => Ok((self.node(folder).ok_or(Refusal::Missing)?, name)),
        }
    }

    fn set(
        &mut self,
        dir: usize,
        name: &str,
        to: Option<usize>,
        with: Option<u32>,
        after: Option<u32>,
    ) -> u32 {
        let name: Rc<str> = name.into();
        if let Node::Dir { live, .. } = &mut self.nodes[dir] {
            match to {
                Some(to) => live.insert(name.clone(), to),
                None => live.remove(&name),
            };
        }
        self.next += 1;
        self.pending.push(Change { id: self.next, dir, name, to, with, after });
        self.next
    }

    /// Returns these changes and all changes that become durable with them.
    pub fn closure(&self, mut kept: Vec<u32>) -> Vec<u32> {
        let mut next = 0;
        while next < kept.len() {
            let id = kept[next];
            next += 1;
            for change in &self.pending {
                let linked = change.id == id && (change.after.is_some() || change.with.is_some());
                let partners = if linked { [change.after, change.with] } else { [None, None] };
                let partner_of = (change.with == Some(id)).then_some(change.id);
                for more in partners.into_iter().chain([partner_of]).flatten() {
                    if !kept.contains(&more) {
                        kept.push(more);
                    }
                }
            }
        }
        kept
    }

    /// Makes these changes durable in order, and drops the changes that they replace.
    fn persist(&mut self, kept: &[u32]) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest: Vec<Change> = Vec::with_capacity(pending.len());
        for change in pending {
            if !kept.contains(&change.id) {
                rest.push(change);
                continue;
            }
            rest.retain(|older| older.dir != change.dir || older.name != change.name);
            if let Node::Dir { durable, .. } = &mut self.nodes[change.dir] {
                match change.to {
                    Some(to) => durable.insert(change.name, to),
                    None => durable.remove(&change.name),
                };
            }
        }
        self.pending = rest;
    }
}
