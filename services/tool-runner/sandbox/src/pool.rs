//! Sandboxes that are set up before their commands are known.
//!
//! A sandbox of the pool has seen nothing of a workspace or a call, so no commit makes it stale, and each is used once. A thread makes them when a command has
//! ended, which is when the machine has time for it, and ends them when no command has come for a while.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use crate::{
    command_table::CommandTable,
    fork_server::ForkServer,
    protocol::Armed,
    running::{AwaitsEnds, EndOfCommand},
    settings::Settings,
    slot::Slot,
};

/// The sandboxes that wait. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: Settings,
    server: Arc<ForkServer>,
    table: Arc<CommandTable>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Slot>,
    /// The sandboxes that have to be ended.
    unusable: Vec<Slot>,
    /// The kind of the last command: that of the next is probably the same.
    last: Option<Kind>,
    /// Whether a command has ended since the thread looked.
    has_ended: bool,
    has_thread: bool,
    is_closed: bool,
}

/// The kind of a sandbox: what it needs to know, and the likely owner of its workspace.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) armed: Armed,
    pub(crate) owner: Option<(u32, u32)>,
}

impl Pool {
    pub(crate) fn new(settings: &Settings, server: &Arc<ForkServer>, table: &Arc<CommandTable>) -> Self {
        let (server, table) = (Arc::clone(server), Arc::clone(table));
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { settings: settings.clone(), server, table, state, changed }))
    }

    /// A sandbox for a command of this kind, unless none waits.
    pub(crate) fn take(&self, kind: &Kind) -> Option<Slot> {
        let mut state = self.0.state();
        state.last = Some(kind.clone());
        while let Some(place) = state.waiting.iter().position(|slot| *slot.armed() == kind.armed) {
            let slot = state.waiting.remove(place);
            if slot.is_usable() {
                return Some(slot);
            }
            state.unusable.push(slot);
            self.0.changed.notify_all();
        }
        None
    }

    /// A handle that a command drops when it has ended.
    pub(crate) fn end_of_command(&self) -> EndOfCommand {
        let told: Arc<dyn AwaitsEnds> = Arc::<Shared>::clone(&self.0);
        EndOfCommand(Arc::downgrade(&told))
    }

    /// How many sandboxes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.state().waiting.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_closed = true;
        let ended = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.unusable));
        drop(state);
        self.0.changed.notify_all();
        drop(ended);
    }
}

impl AwaitsEnds for Shared {
    fn command_has_ended(self: Arc<Self>) {
        let mut state = self.state();
        state.has_ended = true;
        if !state.has_thread && self.settings.armed_sandboxes > 0 {
            let of_thread = Arc::clone(&self);
            let thread = thread::Builder::new().name("belay-sandboxes".to_owned()).spawn(move || of_thread.work());
            // Without it commands start as from an empty pool; the next end tries again.
            state.has_thread = thread.is_ok();
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// The next work of the thread.
enum Work {
    Make(Kind),
    End(Vec<Slot>),
    /// No command has come for a while, or the pool is closed: these are the last.
    Stop(Vec<Slot>),
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes and ends sandboxes until the pool is closed or has been idle.
    fn work(&self) {
        loop {
            match self.next() {
                Work::Make(Kind { armed, owner }) => match Slot::set_up(&self.server, armed, owner, &self.table) {
                    Ok(slot) => {
                        let mut state = self.state();
                        if state.is_closed { state.unusable.push(slot) } else { state.waiting.push(slot) }
                    }
                    // The next command says what is wrong.
                    Err(_) => self.state().has_ended = false,
                },
                Work::End(slots) => slots.into_iter().for_each(Slot::end),
                Work::Stop(slots) => {
                    slots.into_iter().for_each(Slot::end);
                    self.server.stop();
                    return;
                }
            }
        }
    }

    fn next(&self) -> Work {
        let mut state = self.state();
        loop {
            if !state.unusable.is_empty() {
                return Work::End(std::mem::take(&mut state.unusable));
            }
            if state.is_closed {
                return Work::Stop(Vec::new());
            }
            if let Some(kind) = state.last.clone().filter(|_| state.has_ended) {
                if state.waiting.iter().any(|slot| *slot.armed() != kind.armed) {
                    // For settings of another call: they make room.
                    let (keep, end) =
                        std::mem::take(&mut state.waiting).into_iter().partition(|slot| *slot.armed() == kind.armed);
                    (state.waiting, state.unusable) = (keep, end);
                    continue;
                }
                if state.waiting.len() < self.settings.armed_sandboxes {
                    return Work::Make(kind);
                }
                state.has_ended = false;
            }
            let (now, waited) =
                self.changed.wait_timeout(state, self.settings.armed_for).unwrap_or_else(PoisonError::into_inner);
            state = now;
            if waited.timed_out() && !state.has_ended {
                state.has_thread = false;
                let State { waiting, unusable, .. } = &mut *state;
                return Work::Stop(waiting.drain(..).chain(unusable.drain(..)).collect());
            }
        }
    }
}
