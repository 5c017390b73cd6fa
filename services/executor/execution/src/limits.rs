//! The changes of the limits over executions that follow from the events of one execution. The store has who waits for a limit and who holds it, and changes
//! it in the same step in which it stores the events.

use crate::{Body, Event, ExecutionEvent, LimitState};

/// A change of the limits of one execution, all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitMove {
    /// It waits for its turn from now on.
    Request,
    /// It holds them from now on.
    Acquire,
    /// It neither waits for them nor holds them any more.
    Release,
}

/// The changes that follow from the next events of an execution that was in this state.
pub fn limit_moves(before: LimitState, events: &[Event]) -> Vec<LimitMove> {
    let (mut is_in, mut moves) = (before, Vec::new());
    for event in events {
        let Body::Execution(event) = &event.body else { continue };
        let (next, made) = match (event, is_in) {
            (ExecutionEvent::LimitsRequested, _) => {
                (LimitState::Waiting(crate::Timestamp::default()), LimitMove::Request)
            }
            (ExecutionEvent::LimitsAcquired, _) => (LimitState::Held, LimitMove::Acquire),
            (ExecutionEvent::Paused { .. }, LimitState::Waiting(_))
            | (ExecutionEvent::Finished(_), LimitState::Waiting(_) | LimitState::Held) => {
                (LimitState::None, LimitMove::Release)
            }
            _ => continue,
        };
        is_in = next;
        moves.push(made);
    }
    moves
}
