//! How much a command may write, and how much disk space it must leave free.

use crate::wire::{wire_enum, wire_struct};

/// How much a command may write to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBudget {
    /// Bytes.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

wire_struct!(WriteBudget { bytes, inodes });

impl WriteBudget {
    /// The part of it that is too small, and the least that it may be.
    pub(crate) fn too_small(&self) -> Option<(&'static str, &'static str)> {
        // A tmpfs treats 0 as unlimited, and rounds up to a page.
        match self {
            Self { bytes: ..4096, .. } => Some(("bytes", "must be at least 4096")),
            Self { inodes: ..16, .. } => Some(("inodes", "must be at least 16")),
            _ => None,
        }
    }
}

/// How much must stay free on each file system that a command writes to. `None`: relative to the size of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Bytes; by default a tenth of the file system, and at most 1 GiB.
    pub bytes: Option<u64>,
    /// Inodes; by default a fiftieth of the file system's, and at most 10,000. File systems that allocate inodes dynamically, such as
    /// btrfs, have no limit and no reserve of them.
    pub inodes: Option<u64>,
}

wire_struct!(Reserve { bytes, inodes });

impl Reserve {
    /// The reserve of a file system of this size.
    pub(crate) fn of(self, size: WriteBudget) -> WriteBudget {
        WriteBudget {
            bytes: self.bytes.unwrap_or((size.bytes / 10).min(1 << 30)),
            inodes: match size.inodes {
                0 => 0,
                all => self.inodes.unwrap_or((all / 50).min(10_000)),
            },
        }
    }
}

/// A bound on what a command writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBound {
    /// The changes in its view of the workspace.
    View,
    /// `/tmp`.
    Tmp,
    /// HOME, including changes in [`crate::MountKind::Scratch`] mounts.
    Home,
    /// The space that must stay free: [`Reserve`].
    Reserve,
}

wire_enum!(WriteBound { 0 = View, 1 = Tmp, 2 = Home, 3 = Reserve });

/// The unit of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes on disk. Holes of sparse files do not count.
    Bytes,
    /// Files, directories and links.
    Inodes,
}

wire_enum!(Unit { 0 = Bytes, 1 = Inodes });

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Inodes => "inodes",
        }
    }
}

/// The bound that a command exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimit {
    /// The bound.
    pub bound: WriteBound,
    /// Its unit.
    pub unit: Unit,
    /// The maximum for a place; the minimum that stays free for [`WriteBound::Reserve`].
    pub limit: u64,
    /// The measured amount: in the place, or free.
    pub found: u64,
}

wire_struct!(DiskLimit { bound, unit, limit, found });

impl DiskLimit {
    /// The budget that a place exceeds, if any.
    pub(crate) fn of_place(bound: WriteBound, budget: WriteBudget, held: WriteBudget) -> Option<Self> {
        let over = |unit, limit, found| (found > limit).then_some(Self { bound, unit, limit, found });
        over(Unit::Bytes, budget.bytes, held.bytes).or_else(|| over(Unit::Inodes, budget.inodes, held.inodes))
    }

    /// The reserve that a file system has fallen below, if any.
    pub(crate) fn of_reserve(reserve: WriteBudget, free: WriteBudget) -> Option<Self> {
        let below =
            |unit, limit, found| (found < limit).then_some(Self { bound: WriteBound::Reserve, unit, limit, found });
        below(Unit::Bytes, reserve.bytes, free.bytes).or_else(|| below(Unit::Inodes, reserve.inodes, free.inodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes: u64, inodes: u64) -> WriteBudget {
        WriteBudget { bytes, inodes }
    }

    #[test]
    fn the_default_reserve_is_relative_to_the_disk() {
        let by_default = Reserve::default();
        assert_eq!(by_default.of(budget(1 << 40, 60_000_000)), budget(1 << 30, 10_000));
        assert_eq!(by_default.of(budget(600 << 20, 5_000)), budget(60 << 20, 100));
        // btrfs counts no inodes.
        assert_eq!(by_default.of(budget(2000, 0)), budget(200, 0));
        let explicit = Reserve { bytes: Some(7), inodes: Some(9) };
        assert_eq!((explicit.of(budget(100, 100)), explicit.of(budget(100, 0))), (budget(7, 9), budget(7, 0)));
    }

    #[test]
    fn the_exceeded_unit_is_reported() {
        let over =
            |held| DiskLimit::of_place(WriteBound::Tmp, budget(100, 10), held).map(|over| (over.unit, over.found));
        assert_eq!(over(budget(100, 10)), None);
        assert_eq!(over(budget(101, 11)), Some((Unit::Bytes, 101)));
        assert_eq!(over(budget(0, 11)), Some((Unit::Inodes, 11)));
        let below = |free| DiskLimit::of_reserve(budget(100, 10), free).map(|below| (below.unit, below.found));
        assert_eq!((below(budget(100, 10)), below(budget(99, 10))), (None, Some((Unit::Bytes, 99))));
        assert_eq!(below(budget(100, 9)), Some((Unit::Inodes, 9)));
    }
}
