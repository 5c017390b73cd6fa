//! What people and planners ask of a running execution.

use thiserror::Error;

use crate::{
    Actor, Body, Event, Execution, ExecutionEvent, ExecutionState, ExecutionTrigger, Json, MAX_SIGNALS, Resolution,
    SignalReceived, StepEvent, StepId, StepState, Timestamp, digest, transitions::execution_transition,
};

/// A request of a principal.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// Start nothing new. With `discard_calls`, running calls are cancelled and run again after the execution is resumed.
    Pause {
        /// The principal's reason.
        reason: String,
        /// Cancel what runs.
        discard_calls: bool,
    },
    /// Go on after a pause.
    Resume,
    /// End it.
    Cancel {
        /// The principal's reason.
        reason: String,
    },
    /// Take a signal, now or when a step waits for it.
    Signal {
        /// The signal's name.
        signal: String,
        /// What it carries.
        payload: Json,
    },
    /// Go on with a step of whose call the outcome is unknown.
    ResolveStep {
        /// The step.
        step: StepId,
        /// What its call did.
        resolution: Resolution,
        /// How the principal knows.
        reason: String,
    },
}

/// Why a request was not carried out. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// The execution has ended.
    #[error("the execution has ended")]
    Ended,
    /// It cannot be done in the execution's current state.
    #[error("this cannot be done in the state {0:?}")]
    WrongState(ExecutionState),
    /// Another request had the same id.
    #[error("another request had this id")]
    RequestIdReused,
    /// The execution keeps as many signals as it can that no step has taken.
    #[error("the execution keeps {MAX_SIGNALS} signals that no step has taken")]
    TooManySignals,
    /// There is no such step.
    #[error("there is no step `{0}`")]
    NoStep(StepId),
    /// It cannot be done with a step in this state.
    #[error("this cannot be done with a step in the state {0:?}")]
    WrongStepState(StepState),
}

impl Control {
    /// The request that this event records; `None` for events that nobody asked for.
    pub(crate) fn of(event: &Body) -> Option<Self> {
        use ExecutionEvent as E;
        let event = match event {
            Body::Execution(event) => event,
            Body::Step { step, event: StepEvent::Resolved { resolution, reason }, .. } => {
                let (resolution, reason) = (resolution.clone(), reason.clone());
                return Some(Self::ResolveStep { step: step.clone(), resolution, reason });
            }
            Body::Step { .. } | Body::ToolCall { .. } | Body::Approval { .. } | Body::Wait { .. } => return None,
        };
        match event {
            E::Paused { reason, discard_calls } => {
                Some(Self::Pause { reason: reason.clone(), discard_calls: *discard_calls })
            }
            E::Resumed => Some(Self::Resume),
            E::CancelRequested { reason } => Some(Self::Cancel { reason: reason.clone() }),
            E::SignalReceived(SignalReceived { signal, payload }) => {
                Some(Self::Signal { signal: signal.clone(), payload: payload.clone() })
            }
            E::Created(_)
            | E::Started
            | E::Recovered { .. }
            | E::DeadlineExceeded
            | E::AwaitingApproval
            | E::Finished(_) => None,
        }
    }

    /// The digest of the request, by which a repetition is told from another request with the same id.
    pub fn digest(&self, principal: &str) -> String {
        let parts: Vec<&str> = match self {
            Self::Pause { reason, discard_calls: false } => vec!["pause", reason, "", principal],
            Self::Pause { reason, discard_calls: true } => vec!["pause", reason, "discard_calls", principal],
            Self::Resume => vec!["resume", "", "", principal],
            Self::Cancel { reason } => vec!["cancel", reason, "", principal],
            Self::Signal { signal, payload } => vec!["signal", signal, payload.as_str(), principal],
            Self::ResolveStep { step, resolution, reason } => {
                let (how, result) = match resolution {
                    Resolution::Completed(result) => ("completed", result.as_str()),
                    Resolution::Failed => ("failed", ""),
                    Resolution::Again => ("again", ""),
                };
                vec!["resolve", step, how, result, reason, principal]
            }
        };
        digest(serde_json::Value::from(parts).to_string().as_bytes())
    }

    /// The state transition that it makes; `None` for a request that makes none.
    fn trigger(&self) -> Option<ExecutionTrigger> {
        match self {
            Self::Pause { .. } => Some(ExecutionTrigger::Paused),
            Self::Resume => Some(ExecutionTrigger::Resumed),
            Self::Cancel { .. } => Some(ExecutionTrigger::CancelRequested),
            Self::Signal { .. } | Self::ResolveStep { .. } => None,
        }
    }
}

impl Execution {
    /// Carries out a request. A repetition of one of the last 1,000 requests changes nothing, whatever the execution's state, and returns no
    /// event.
    ///
    /// # Errors
    /// [`Refused`]: why it cannot be carried out; the execution is unchanged then.
    pub fn control(&mut self, now: Timestamp, actor: Actor, control: Control) -> Result<Vec<Event>, Refused> {
        if let Some(known) = self.requests.digest(&actor.request_id) {
            return if known == control.digest(&actor.principal) {
                Ok(Vec::new())
            } else {
                Err(Refused::RequestIdReused)
            };
        }
        if self.state.is_terminal() {
            return Err(Refused::Ended);
        }
        match control.trigger() {
            Some(by) if execution_transition(self.state, by, None).is_none() => {
                return Err(Refused::WrongState(self.state));
            }
            Some(_) | None => {}
        }
        let body = match control {
            Control::Pause { reason, discard_calls } => ExecutionEvent::Paused { reason, discard_calls }.into(),
            Control::Resume => ExecutionEvent::Resumed.into(),
            Control::Cancel { reason } => ExecutionEvent::CancelRequested { reason }.into(),
            Control::Signal { .. } if self.signals.len() >= MAX_SIGNALS => return Err(Refused::TooManySignals),
            Control::Signal { signal, payload } => {
                ExecutionEvent::SignalReceived(SignalReceived { signal, payload }).into()
            }
            Control::ResolveStep { step, resolution, reason } => {
                let Some(key) = self.step_key(&step) else { return Err(Refused::NoStep(step)) };
                let view = self.step(key);
                if view.state() != StepState::OutcomeUnknown {
                    return Err(Refused::WrongStepState(view.state()));
                }
                if self.stop.is_some() {
                    return Err(Refused::WrongState(self.state));
                }
                let attempt = view.attempt();
                Body::Step { step, attempt, event: StepEvent::Resolved { resolution, reason } }
            }
        };
        let event = self.record(now, Some(actor), body);
        Ok(vec![event.expect("the checks above are those of `apply`")])
    }
}
