//! Use of a namespace's budget by its executions in a window of time.

/// An amount of everything that a budget limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageAmounts {
    /// Calls.
    pub calls: u64,
    /// Bytes of output.
    pub output_bytes: u64,
}

impl UsageAmounts {
    /// These and the others together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            output_bytes: self.output_bytes.saturating_add(other.output_bytes),
        }
    }

    /// The amounts without the others; zero where the others are more.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            output_bytes: self.output_bytes.saturating_sub(other.output_bytes),
        }
    }
}

/// The most that may be used and held in a window together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageLimit {
    /// Calls; `None` means no limit.
    pub calls: Option<u64>,
    /// Bytes of output; `None` means no limit.
    pub output_bytes: Option<u64>,
}

impl UsageLimit {
    /// Whether these amounts are within it.
    pub fn allows(&self, amounts: UsageAmounts) -> bool {
        self.calls.is_none_or(|limit| amounts.calls <= limit)
            && self.output_bytes.is_none_or(|limit| amounts.output_bytes <= limit)
    }
}

/// The amounts of a namespace in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// When the window begins, in microseconds since the Unix epoch.
    pub start: i64,
    /// When it has ended.
    pub end: i64,
    /// Used by calls that have ended.
    pub used: UsageAmounts,
    /// Held by calls in flight.
    pub held: UsageAmounts,
}

impl UsageRow {
    /// A window in which nothing is used.
    pub fn new(start: i64, end: i64) -> Self {
        Self { start, end, used: UsageAmounts::default(), held: UsageAmounts::default() }
    }

    /// The row after a change of it; `None` when the change holds more than the limit allows. A change that holds nothing is always made: what has happened is
    /// counted.
    #[must_use]
    pub fn after(self, change: &UsageChange) -> Option<Self> {
        let used = self.used.plus(change.used);
        let held = self.held.minus(change.released).plus(change.held);
        let is_allowed = !change.holds() || change.limit.allows(used.plus(held));
        is_allowed.then_some(Self { used, held, ..self })
    }
}

/// A change of the amounts of a namespace in one window. A store adds it to what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageChange {
    /// The namespace's id.
    pub namespace: String,
    /// When the window begins, in microseconds since the Unix epoch.
    pub start: i64,
    /// When it has ended.
    pub end: i64,
    /// Held by calls that have begun.
    pub held: UsageAmounts,
    /// Held until now by calls that have ended.
    pub released: UsageAmounts,
    /// Used by calls that have ended.
    pub used: UsageAmounts,
    /// The most that may be used and held, for a change that holds something.
    pub limit: UsageLimit,
}

impl UsageChange {
    /// Whether calls begin with it.
    pub fn holds(&self) -> bool {
        self.held != UsageAmounts::default()
    }
}

/// The start of the latest window whose rows are removed when one that begins at `start` gets its row, and all earlier ones' with it; `None` when none is.
/// `kept` are the windows of the namespace that have rows. Of those that have ended by `start`, the last one is kept.
pub fn removed_up_to(start: i64, kept: impl Iterator<Item = UsageRow>) -> Option<i64> {
    let mut ended: Vec<i64> = kept.filter(|row| row.end <= start).map(|row| row.start).collect();
    ended.sort_unstable();
    ended.pop();
    ended.pop()
}
