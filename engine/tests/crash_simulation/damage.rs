//! The kinds of disk damage that a crash can cause: all combinations of a few changes, or random
//! samples of many.

use super::disk::{Blob, Order, blob};
use super::world::CrashPoint;

/// Maximum number of unsynced changes for which every subset is tried.
const EXHAUSTIVE: usize = 8;
/// Number of random subsets to try at scale 1 if there are more changes.
const SAMPLES: f64 = 64.0;

/// The damage caused by one crash. It is printed if a case fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Only the process died, so nothing was lost.
    Killed,
    /// A power cut lost all unsynced changes.
    AllLost,
    /// A power cut lost nothing.
    AllKept,
    /// A power cut kept everything except the content of one unsynced file. The file has only its
    /// first `length` bytes or, if `zeros` is set, `length` zeros.
    Torn { file: usize, length: usize, zeros: bool },
    /// A power cut kept these changes and the content of these files.
    Subset { units: Vec<usize>, files: Vec<usize> },
    /// A power cut kept a random subset, with content that may be torn.
    Drawn(u64),
}

/// The SplitMix64 random number generator.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

/// Returns all crashes to try at this point.
pub fn damages(
    point: &CrashPoint,
    order: Order,
    random: &mut Random,
    scale: f64,
) -> Vec<(Damage, CrashPoint)> {
    let disk = &point.disk;
    let (units, files) = (disk.units(), disk.unsynced());
    let mut all = vec![(Damage::Killed, point.clone())];
    if units.is_empty() && files.is_empty() {
        return all;
    }
    let after = |kept: &[u32], content: &[(usize, Blob)]| CrashPoint {
        disk: disk.cut(kept, content),
        log: point.log.clone(),
    };
    let every: Vec<u32> = units.iter().flatten().copied().collect();
    all.push((Damage::AllLost, after(&[], &[])));
    all.push((Damage::AllKept, after(&every, &files)));
    for (at, (file, content)) in files.iter().enumerate() {
        let full = content.bytes.len();
        let mut lengths = vec![(0, false), (1, false), (full / 2, false), (full, true)];
        lengths.push((full.saturating_sub(1), false));
        lengths.retain(|(length, _)| *length <= full);
        for (length, zeros) in lengths {
            let mut contents = files.clone();
            contents[at] = (*file, torn(content, length, zeros));
            all.push((Damage::Torn { file: at, length, zeros }, after(&every, &contents)));
        }
    }
    let items = units.len() + files.len();
    if items <= EXHAUSTIVE {
        for mask in 1..(1_usize << items) - 1 {
            let chosen = |from: usize, count: usize| -> Vec<usize> {
                (0..count).filter(|index| mask & (1 << (from + index)) != 0).collect()
            };
            let (kept, full) = (chosen(0, units.len()), chosen(units.len(), files.len()));
            let ids: Vec<u32> = kept.iter().flat_map(|unit| &units[*unit]).copied().collect();
            if disk.allows(&ids, order) {
                let contents: Vec<_> = full.iter().map(|file| files[*file].clone()).collect();
                let point = after(&ids, &contents);
                all.push((Damage::Subset { units: kept, files: full }, point));
            }
        }
        return all;
    }
    for _ in 0..(SAMPLES * scale).ceil() as usize {
        let seed = random.next();
        let mut random = Random(seed);
        let mut ids: Vec<u32> = units.iter().filter(|_| random.flip()).flatten().copied().collect();
        if order == Order::Journaled {
            ids = disk.closure(ids);
        }
        let mut contents = Vec::new();
        for (file, content) in &files {
            let length = random.below(content.bytes.len() + 1);
            match random.below(4) {
                0 => {}
                1 => contents.push((*file, torn(content, length, false))),
                2 => contents.push((*file, torn(content, content.bytes.len(), true))),
                _ => contents.push((*file, content.clone())),
            }
        }
        all.push((Damage::Drawn(seed), after(&ids, &contents)));
    }
    all
}

/// Returns at most twelve of the crashes from [`damages`], for tests that also enumerate other
/// cases.
pub fn few(point: &CrashPoint, random: &mut Random) -> Vec<(Damage, CrashPoint)> {
    let mut all = damages(point, Order::Journaled, random, 0.25);
    all.truncate(12);
    all
}

fn torn(content: &Blob, length: usize, zeros: bool) -> Blob {
    match zeros {
        true => blob(&vec![0; length]),
        false => blob(&content.bytes[..length]),
    }
}
