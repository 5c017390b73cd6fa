//! The budgets of namespaces, as far as this process knows how far they are used.
//!
//! The store has what is used and held, and refuses what does not fit. This is a copy of it, so that a driver need not ask in vain, together with what
//! drivers have decided and not stored yet. The copy is read while no change of it is being committed, and follows the commits of this process after that.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use belay_execution::{
    Admission, Amounts, BudgetUnit, NamespaceBudget, NamespaceHold, Period, Timestamp, Window, WindowChange, WindowUse,
};
use belay_journal::{StoreError, UsageAmounts, UsageChange, UsageLimit, UsageRow};
use belay_settings::{BudgetWindow, NamespaceBudgets as Settings};
use tokio::sync::{RwLock, RwLockReadGuard, watch};

use crate::store::journal_reads::JournalReads;

/// The budgets of all namespaces.
pub(crate) struct NamespaceBudgets {
    settings: Settings,
    accounts: Mutex<HashMap<String, Arc<NamespaceAccount>>>,
}

impl NamespaceBudgets {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, accounts: Mutex::default() }
    }

    /// The account of a namespace; `None` when it has no budget.
    pub(crate) fn of(&self, namespace: &str) -> Option<Arc<NamespaceAccount>> {
        let budget = budget_of(&self.settings, namespace)?;
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(namespace) {
            return Some(Arc::clone(account));
        }
        let account = Arc::new(NamespaceAccount {
            namespace: namespace.to_owned(),
            budget,
            commits: RwLock::default(),
            state: Mutex::default(),
            changed: watch::Sender::default(),
        });
        accounts.insert(namespace.to_owned(), Arc::clone(&account));
        Some(account)
    }
}

/// The budget that the settings give a namespace; `None` when it has none.
pub(crate) fn budget_of(settings: &Settings, namespace: &str) -> Option<NamespaceBudget> {
    let budget = settings.of(namespace)?;
    Some(NamespaceBudget {
        period: match budget.window.value {
            BudgetWindow::Day => Period::Day,
            BudgetWindow::Month => Period::Month,
        },
        calls: budget.calls.as_ref().map(|limit| limit.value),
        output_bytes: budget.output_bytes.as_ref().map(|limit| limit.value),
        tokens: budget.tokens.as_ref().map(|limit| limit.value),
        cost_micros: budget.cost_micros.as_ref().map(|limit| limit.value),
    })
}

/// The window that calls begin in, and its amounts, by the rows of the store.
pub(crate) fn current_window(budget: &NamespaceBudget, rows: &[UsageRow], now: Timestamp) -> (Window, WindowUse) {
    let kept: Vec<Window> = rows.iter().map(window_of).collect();
    let window = budget.period.current(now, &kept);
    let row = rows.iter().find(|row| window_of(row) == window);
    (window, row.map(amounts_of).unwrap_or_default())
}

/// The account of a namespace: the use of its budget.
pub(crate) struct NamespaceAccount {
    namespace: String,
    pub(crate) budget: NamespaceBudget,
    /// Shared by those that commit a change; whoever reads the rows has it alone.
    commits: RwLock<()>,
    state: Mutex<State>,
    /// Changes when something may have become free.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    /// The rows of the store; `None` while they are not known.
    rows: Option<BTreeMap<Window, WindowUse>>,
    /// Amounts that drivers have decided and not stored: used by calls that have ended, and held by calls that are about to begin.
    pending: BTreeMap<Window, WindowUse>,
}

/// The window that calls begin in, and its amounts with those that are not stored yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Current {
    pub(crate) window: Window,
    pub(crate) amounts: WindowUse,
}

impl State {
    fn current(&self, period: Period, now: Timestamp) -> Option<Current> {
        let rows = self.rows.as_ref()?;
        let kept: Vec<Window> = rows.keys().copied().collect();
        let window = period.current(now, &kept);
        let row = rows.get(&window).copied().unwrap_or_default();
        let pending = self.pending.get(&window).copied().unwrap_or_default();
        let amounts = WindowUse { used: row.used.plus(pending.used), held: row.held.plus(pending.held) };
        Some(Current { window, amounts })
    }

    fn add_pending(&mut self, window: Window, more: WindowUse) {
        let pending = self.pending.entry(window).or_default();
        *pending = WindowUse { used: pending.used.plus(more.used), held: pending.held.plus(more.held) };
    }

    fn remove_pending(&mut self, pending: &mut BTreeMap<Window, WindowUse>) {
        for (window, less) in std::mem::take(pending) {
            if let Some(kept) = self.pending.get_mut(&window) {
                *kept = WindowUse { used: kept.used.minus(less.used), held: kept.held.minus(less.held) };
                if *kept == WindowUse::default() {
                    self.pending.remove(&window);
                }
            }
        }
    }

    /// Follows a change that the store has made. The first hold in a window removes rows of others there: they are read again.
    fn follow(&mut self, change: &WindowChange) {
        let Some(rows) = &mut self.rows else { return };
        match rows.get_mut(&change.window) {
            Some(row) => {
                row.used = row.used.plus(change.used);
                row.held = row.held.minus(change.released).plus(change.held);
            }
            None if change.held != Amounts::default() => self.rows = None,
            None => {}
        }
    }
}

impl NamespaceAccount {
    /// The window that calls begin in now; `None` while its amounts are not known.
    pub(crate) fn current(&self, now: Timestamp) -> Option<Current> {
        lock(&self.state).current(self.budget.period, now)
    }

    /// Whether the budget has room now: not everything is used. `None` while that is not known.
    pub(crate) fn has_room(&self, now: Timestamp) -> Option<bool> {
        self.current(now).map(|current| self.budget.exhausted(current.amounts.used).is_none())
    }

    /// Reads the rows again, unless they are known.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    pub(crate) async fn load(&self, reads: &JournalReads) -> Result<(), StoreError> {
        let _alone = self.commits.write().await;
        if lock(&self.state).rows.is_some() {
            return Ok(());
        }
        let rows = reads.read(|reader| reader.usage(&self.namespace)).await?;
        lock(&self.state).rows = Some(rows.iter().map(|row| (window_of(row), amounts_of(row))).collect());
        self.changed.send_replace(());
        Ok(())
    }

    /// Signals that something may have become free.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The changes as the store makes them.
    pub(crate) fn to_store(&self, changes: &[WindowChange]) -> Vec<UsageChange> {
        let NamespaceBudget { period: _, calls, output_bytes, tokens, cost_micros } = self.budget;
        let limit = UsageLimit { calls, output_bytes, tokens, cost_micros };
        usage_changes(&self.namespace, changes, limit)
    }
}

/// The changes of a namespace as the store makes them.
pub(crate) fn usage_changes(namespace: &str, changes: &[WindowChange], limit: UsageLimit) -> Vec<UsageChange> {
    let amounts = |amounts: Amounts| UsageAmounts::of(BudgetUnit::ALL.map(|unit| amounts.of(unit)));
    let change = |change: &WindowChange| UsageChange {
        namespace: namespace.to_owned(),
        start: change.window.start.as_micros(),
        end: change.window.end.as_micros(),
        held: amounts(change.held),
        released: amounts(change.released),
        used: amounts(change.used),
        limit,
    };
    changes.iter().map(change).collect()
}

fn window_of(row: &UsageRow) -> Window {
    Window { start: Timestamp::from_micros(row.start), end: Timestamp::from_micros(row.end) }
}

fn amounts_of(row: &UsageRow) -> WindowUse {
    let amounts = |UsageAmounts { calls, output_bytes, tokens, cost_micros }: UsageAmounts| Amounts {
        calls,
        output_bytes,
        tokens,
        cost_micros,
    };
    WindowUse { used: amounts(row.used), held: amounts(row.held) }
}

/// Amounts of a namespace's budget that one driver has decided and not stored. When it is dropped, the account forgets them.
pub(crate) struct PendingUsage {
    account: Arc<NamespaceAccount>,
    amounts: BTreeMap<Window, WindowUse>,
    /// A commit is in progress: when this is dropped meanwhile, nobody learns what the store has.
    is_committing: bool,
}

impl PendingUsage {
    pub(crate) fn new(account: Arc<NamespaceAccount>) -> Self {
        Self { account, amounts: BTreeMap::new(), is_committing: false }
    }

    pub(crate) fn account(&self) -> &Arc<NamespaceAccount> {
        &self.account
    }

    /// Whether a call may begin now; what it may use is held from here on. `None` while the amounts are not known.
    pub(crate) fn admit(&mut self, needed: Amounts, now: Timestamp) -> Option<Admission> {
        let account = Arc::clone(&self.account);
        let mut state = lock(&account.state);
        let Current { window, amounts } = state.current(account.budget.period, now)?;
        let admission = account.budget.admit(&account.namespace, needed, window, amounts);
        if let Admission::Held(NamespaceHold { window, amounts }) = admission {
            self.add(&mut state, window, WindowUse { held: amounts, ..WindowUse::default() });
        }
        Some(admission)
    }

    /// Calls have ended with what they have used, which nothing else may use from here on.
    pub(crate) fn charge(&mut self, changes: &[WindowChange]) {
        let account = Arc::clone(&self.account);
        let mut state = lock(&account.state);
        for change in changes.iter().filter(|change| change.used != Amounts::default()) {
            self.add(&mut state, change.window, WindowUse { used: change.used, ..WindowUse::default() });
        }
    }

    fn add(&mut self, state: &mut State, window: Window, more: WindowUse) {
        state.add_pending(window, more);
        let own = self.amounts.entry(window).or_default();
        *own = WindowUse { used: own.used.plus(more.used), held: own.held.plus(more.held) };
    }

    /// A commit begins. The rows are not read until the guard is dropped.
    pub(crate) async fn begin<'a>(&mut self, account: &'a NamespaceAccount) -> RwLockReadGuard<'a, ()> {
        let guard = account.commits.read().await;
        self.is_committing = true;
        guard
    }

    /// The store has made these changes, or refused them.
    pub(crate) fn end(&mut self, changes: &[WindowChange], is_stored: bool) {
        self.is_committing = false;
        let account = Arc::clone(&self.account);
        let mut state = lock(&account.state);
        state.remove_pending(&mut self.amounts);
        match is_stored {
            true => changes.iter().for_each(|change| state.follow(change)),
            // Somebody else has written.
            false => state.rows = None,
        }
        drop(state);
        account.changed.send_replace(());
    }
}

impl Drop for PendingUsage {
    fn drop(&mut self) {
        let mut state = lock(&self.account.state);
        state.remove_pending(&mut self.amounts);
        if self.is_committing {
            state.rows = None;
        }
        drop(state);
        self.account.changed.send_replace(());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
