//! Use of a namespace's budget by its executions in a window of time.

/// An amount of everything that a budget limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageAmounts {
    /// Calls.
    pub calls: u64,
    /// Bytes of output.
    pub output_bytes: u64,
    /// Tokens of models.
    pub tokens: u64,
    /// Millionths of a US dollar that models cost.
    pub cost_micros: u64,
}

impl UsageAmounts {
    /// Amounts of all units, in the order of the fields.
    pub fn of(amounts: [u64; 4]) -> Self {
        let [calls, output_bytes, tokens, cost_micros] = amounts;
        Self { calls, output_bytes, tokens, cost_micros }
    }

    /// The amounts of all units, in the order of the fields.
    pub fn all(self) -> [u64; 4] {
        [self.calls, self.output_bytes, self.tokens, self.cost_micros]
    }

    fn with(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        let (one, other) = (self.all(), other.all());
        Self::of(std::array::from_fn(|unit| both(one[unit], other[unit])))
    }

    /// These and the others together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The amounts without the others; zero where the others are more.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }
}

/// The most that may be used and held in a window together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageLimit {
    /// Calls; `None` means no limit.
    pub calls: Option<u64>,
    /// Bytes of output; `None` means no limit.
    pub output_bytes: Option<u64>,
    /// Tokens of models; `None` means no limit.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar that models cost; `None` means no limit.
    pub cost_micros: Option<u64>,
}

impl UsageLimit {
    /// Whether a window that comes to these amounts is within it, as far as one that holds `held` more of a unit is judged by that unit: what takes nothing of a unit is not refused for it.
    pub fn allows(&self, amounts: UsageAmounts, held: UsageAmounts) -> bool {
        let limits = [self.calls, self.output_bytes, self.tokens, self.cost_micros].into_iter();
        let judged = limits.zip(amounts.all()).zip(held.all());
        let mut judged = judged.filter(|(_, held)| *held > 0);
        judged.all(|((limit, amount), _)| limit.is_none_or(|limit| amount <= limit))
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
        let is_allowed = !change.holds() || change.limit.allows(used.plus(held), change.held);
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
