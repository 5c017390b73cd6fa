//! Requests of people and planners about a running execution.

mod fork;
mod retry;
mod update;

pub use fork::CarriedOver;

use belay_plan::Plan;
use thiserror::Error;

use crate::{
    Actor, Body, Event, Execution, ExecutionEvent, ExecutionState, ForbiddenChange, IllegalEvent, Json, MAX_SIGNALS,
    PauseCause, Resolution, RetryChange, RetryRequest, SignalReceived, StepEvent, StepId, StepKey, StepState,
    Timestamp, ToolFacts, Violation, digest,
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
        /// When it resumes automatically.
        resume_at: Option<Timestamp>,
    },
    /// Go on after a pause. From the step whose plan this is, only after a pause by that step.
    Resume,
    /// End it.
    Cancel {
        /// The principal's reason.
        reason: String,
        /// Kill what runs at once, and undo nothing.
        kill: bool,
    },
    /// Take a signal, now or when a step waits for it.
    Signal {
        /// The signal's name.
        signal: String,
        /// The payload.
        payload: Json,
    },
    /// Go on with a step of whose call the outcome is unknown.
    ResolveStep {
        /// The step.
        step: StepId,
        /// The outcome of its call.
        resolution: Resolution,
        /// How the principal knows.
        reason: String,
    },
    /// Run steps again that have ended; the execution resumes if it has ended.
    Retry {
        /// The steps, and how they run again.
        request: RetryRequest,
        /// The plan with which it continues; `None` for the one that it has. The request has its digest.
        plan: Option<NewPlan>,
    },
    /// Carry out another version of the plan. What has started or ended stays as it is.
    UpdatePlan {
        /// The plan.
        plan: NewPlan,
        /// The revision of the plan that it was made from; `None` when any will do.
        revision: Option<u32>,
        /// The principal's reason.
        reason: String,
    },
    /// Do not run a step; run those that depend on it.
    SkipStep {
        /// The step.
        step: StepId,
        /// The principal's reason.
        reason: String,
    },
    /// Complete a step with this output, without running it.
    SetStepOutput {
        /// The step.
        step: StepId,
        /// The output.
        output: Json,
        /// The principal's reason.
        reason: String,
    },
    /// Change the next attempt of a step that waits for it.
    ChangeRetry {
        /// The step.
        step: StepId,
        /// The change.
        change: RetryChange,
        /// The principal's reason.
        reason: String,
    },
}

/// A plan that takes the place of the one that an execution has.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPlan {
    /// The plan.
    pub plan: Box<Plan>,
    /// The facts about every tool that it names.
    pub tools: Vec<ToolFacts>,
}

impl NewPlan {
    /// The digest of the plan.
    ///
    /// # Panics
    /// Never: a plan is text, numbers, lists and objects.
    pub fn digest(&self) -> String {
        digest(&serde_json::to_vec(&self.plan.to_draft()).expect("a plan has an encoding"))
    }
}

/// Why a request was not carried out. Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// The execution has ended.
    #[error("the execution has ended")]
    Ended,
    /// The execution has ended, and carried out the plan of this step, which has been told of its end and takes no other.
    #[error("the execution has ended for step `{0}`")]
    EndedForStep(String),
    /// It cannot be done in the execution's current state.
    #[error("this cannot be done in the state {0:?}")]
    WrongState(ExecutionState),
    /// Another request had the same id.
    #[error("another request had this id")]
    RequestIdReused,
    /// A pause is to end at a time that has passed.
    #[error("the time at which it resumes has passed")]
    ResumeTimePassed,
    /// The execution keeps as many signals as it can that no step has taken.
    #[error("the execution keeps {MAX_SIGNALS} signals that no step has taken")]
    TooManySignals,
    /// There is no such step.
    #[error("there is no step `{0}`")]
    NoStep(StepId),
    /// It cannot be done with a step in this state.
    #[error("this cannot be done with a step in the state {0:?}")]
    WrongStepState(StepState),
    /// The step has no call left that could take the place of the one that failed.
    #[error("step `{0}` has no `fallback` left")]
    NoFallback(StepId),
    /// Every step has completed, or was skipped by its condition or by a person.
    #[error("no step has failed or was stopped")]
    NothingToRetry,
    /// A step runs that depends on one that is to run again.
    #[error("step `{0}` runs, which depends on a step that is to run again")]
    DependentRuns(StepId),
    /// A new version of the plan changes what it may not change.
    #[error(transparent)]
    PlanChange(#[from] ForbiddenChange),
    /// A new version of the plan has an input without a default that the execution was not started with.
    #[error("the plan has the input `{0}`, which the execution was not started with and which has no default")]
    NoInput(String),
    /// The plan was changed meanwhile.
    #[error("the plan has revision {0}")]
    OtherRevision(u32),
}

impl Refused {
    /// The refusal of a request to an execution in this state, whose event violates a rule. `from` is the step from which steps are to run again.
    fn by(violation: Violation, state: ExecutionState, from: Option<&StepId>) -> Self {
        use Violation as V;
        match violation {
            V::Ended => Self::Ended,
            V::TooManySignals => Self::TooManySignals,
            V::NoStep(step) | V::NotPlanned(step) => Self::NoStep(step),
            V::StepMove { from: state, .. } | V::NotWaiting { state, .. } | V::NoNextAttempt { state, .. } => {
                Self::WrongStepState(state)
            }
            V::NothingToRetry => Self::NothingToRetry,
            V::NotEnded { step, state } if from == Some(&step) => Self::WrongStepState(state),
            V::NotEnded { step, .. } | V::DependentStarted(step) => Self::DependentRuns(step),
            V::Change(change) => Self::PlanChange(change),
            V::NoInput(name) => Self::NoInput(name),
            // The others are about the execution as a whole, or about events that no request records.
            _ => Self::WrongState(state),
        }
    }
}

impl Control {
    /// The request that this event records; `None` for events that nobody asked for.
    pub(crate) fn of(event: &Body) -> Option<Self> {
        use ExecutionEvent as E;
        let event = match event {
            Body::Execution(event) => event,
            Body::Step { step, event, .. } => return Self::of_step(step, event),
            Body::Operation { .. } => return None,
        };
        match event {
            E::Paused { reason, discard_calls, resume_at, cause: _ } => {
                let (reason, discard_calls, resume_at) = (reason.clone(), *discard_calls, *resume_at);
                Some(Self::Pause { reason, discard_calls, resume_at })
            }
            E::Resumed => Some(Self::Resume),
            E::CancelRequested { reason, kill } => Some(Self::Cancel { reason: reason.clone(), kill: *kill }),
            E::SignalReceived(SignalReceived { signal, payload }) => {
                Some(Self::Signal { signal: signal.clone(), payload: payload.clone() })
            }
            E::Retried(retried) => Some(Self::Retry { request: retried.request.clone(), plan: None }),
            E::PlanUpdated(updated) => Some(Self::UpdatePlan {
                plan: NewPlan { plan: Box::new(updated.plan.clone()), tools: updated.tools.clone() },
                revision: None,
                reason: updated.reason.clone(),
            }),
            E::Created(_)
            | E::LimitsRequested
            | E::LimitsAcquired
            | E::Started
            | E::BudgetReported(_)
            | E::Recovered { .. }
            | E::CompensationStarted { .. }
            | E::DeadlineExceeded
            | E::AwaitingApproval
            | E::Finished(_) => None,
        }
    }

    fn of_step(step: &StepId, event: &StepEvent) -> Option<Self> {
        let step = step.clone();
        match event {
            StepEvent::Resolved { resolution, reason } => {
                Some(Self::ResolveStep { step, resolution: resolution.clone(), reason: reason.clone() })
            }
            StepEvent::SkipRequested { reason } => Some(Self::SkipStep { step, reason: reason.clone() }),
            StepEvent::OutputSet { output, reason } => {
                Some(Self::SetStepOutput { step, output: output.clone(), reason: reason.clone() })
            }
            StepEvent::RetryAdvanced { reason } => {
                Some(Self::ChangeRetry { step, change: RetryChange::Now, reason: reason.clone() })
            }
            StepEvent::FallbackSwitched { reason, .. } => {
                Some(Self::ChangeRetry { step, change: RetryChange::Fallback, reason: reason.clone() })
            }
            StepEvent::RetryCancelled { reason } => {
                Some(Self::ChangeRetry { step, change: RetryChange::Cancel, reason: reason.clone() })
            }
            StepEvent::Started
            | StepEvent::RetryScheduled { .. }
            | StepEvent::CachedResultUsed { .. }
            | StepEvent::ItemsListed { .. }
            | StepEvent::ItemsCollected { .. }
            | StepEvent::ConversationCarriedOver { .. }
            | StepEvent::Completed { .. }
            | StepEvent::Failed { .. }
            | StepEvent::Skipped { .. }
            | StepEvent::Cancelled { .. }
            | StepEvent::OutcomeUnknown { .. } => None,
        }
    }

    /// The digest of the request, by which a repetition is told from another request with the same id.
    pub fn digest(&self, principal: &str) -> String {
        let (plan, until);
        let parts: Vec<&str> = match self {
            Self::Pause { reason, discard_calls, resume_at } => {
                let discard = if *discard_calls { "discard_calls" } else { "" };
                until = resume_at.map(|at| at.as_micros().to_string()).unwrap_or_default();
                vec!["pause", reason, discard, &until, principal]
            }
            Self::Resume => vec!["resume", "", "", principal],
            Self::Cancel { reason, kill } => vec!["cancel", reason, if *kill { "kill" } else { "" }, principal],
            Self::Signal { signal, payload } => vec!["signal", signal, payload.as_str(), principal],
            Self::ResolveStep { step, resolution, reason } => {
                let (how, result) = match resolution {
                    Resolution::Completed(result) => ("completed", result.as_str()),
                    Resolution::Failed => ("failed", ""),
                    Resolution::Again => ("again", ""),
                };
                vec!["resolve", step, how, result, reason, principal]
            }
            Self::Retry { request: RetryRequest { from, skip_failed, start_paused, plan_digest, reason }, plan: _ } => {
                let from = from.as_deref().unwrap_or_default();
                let skip = if *skip_failed { "skip_failed" } else { "" };
                vec![
                    "retry",
                    from,
                    skip,
                    if *start_paused { "start_paused" } else { "" },
                    plan_digest,
                    reason,
                    principal,
                ]
            }
            Self::UpdatePlan { plan: updated, revision: _, reason } => {
                plan = updated.digest();
                vec!["update_plan", &plan, reason, principal]
            }
            Self::SkipStep { step, reason } => vec!["skip_step", step, reason, principal],
            Self::SetStepOutput { step, output, reason } => {
                vec!["set_step_output", step, output.as_str(), reason, principal]
            }
            Self::ChangeRetry { step, change: RetryChange::Now, reason } => vec!["retry_now", step, reason, principal],
            Self::ChangeRetry { step, change: RetryChange::Fallback, reason } => {
                vec!["force_fallback", step, reason, principal]
            }
            Self::ChangeRetry { step, change: RetryChange::Cancel, reason } => {
                vec!["cancel_retry", step, reason, principal]
            }
        };
        digest(serde_json::Value::from(parts).to_string().as_bytes())
    }
}

impl Execution {
    /// Carries out a request. A repetition of one of the last 1,000 requests changes nothing, whatever the execution's state, and returns no
    /// event.
    ///
    /// # Errors
    /// [`Refused`]: why it cannot be carried out; the execution is unchanged then.
    pub fn control(&mut self, now: Timestamp, actor: Actor, control: Control) -> Result<Vec<Event>, Refused> {
        if let Some(known) = self.requests.digest(&actor) {
            return if known == control.digest(&actor.principal) {
                Ok(Vec::new())
            } else {
                Err(Refused::RequestIdReused)
            };
        }
        if self.state.is_terminal() && !matches!(control, Control::Retry { .. }) {
            return Err(Refused::Ended);
        }
        if self.state.is_terminal() && !self.created.parent_step.is_empty() {
            return Err(Refused::EndedForStep(self.created.parent_step.clone()));
        }
        let from = match &control {
            Control::Retry { request, .. } => request.from.clone(),
            _ => None,
        };
        let bodies: Vec<Body> = match control {
            Control::Pause { resume_at: Some(at), .. } if at <= now => return Err(Refused::ResumeTimePassed),
            Control::Pause { reason, discard_calls, resume_at } => {
                vec![ExecutionEvent::Paused { reason, discard_calls, resume_at, cause: PauseCause::Request }.into()]
            }
            // A step ends its own pause alone: what a person has paused stays paused.
            Control::Resume
                if !self.created.parent_step.is_empty()
                    && actor.principal == self.created.parent_step
                    && self.paused_by() != Some(&actor.principal) =>
            {
                Vec::new()
            }
            Control::Resume => vec![ExecutionEvent::Resumed.into()],
            Control::Cancel { reason, kill } => vec![ExecutionEvent::CancelRequested { reason, kill }.into()],
            Control::Signal { signal, payload } => {
                vec![ExecutionEvent::SignalReceived(SignalReceived { signal, payload }).into()]
            }
            Control::ResolveStep { step, resolution, reason } => {
                let key = self.step_named(&step)?;
                vec![self.about_step(key, StepEvent::Resolved { resolution, reason })]
            }
            Control::Retry { request, plan } => self.retried(now, &actor, request, plan)?,
            Control::UpdatePlan { revision: Some(of), .. } if of != self.revision => {
                return Err(Refused::OtherRevision(self.revision));
            }
            Control::UpdatePlan { plan, revision: _, reason } => vec![self.updated(now, plan, reason)],
            Control::SkipStep { step, reason } => {
                let key = self.step_named(&step)?;
                vec![self.about_step(key, StepEvent::SkipRequested { reason })]
            }
            Control::SetStepOutput { step, output, reason } => {
                let key = self.step_named(&step)?;
                vec![self.about_step(key, StepEvent::OutputSet { output, reason })]
            }
            Control::ChangeRetry { step, change, reason } => {
                let key = self.step_named(&step)?;
                vec![self.about_step(
                    key,
                    match change {
                        RetryChange::Now => StepEvent::RetryAdvanced { reason },
                        RetryChange::Cancel => StepEvent::RetryCancelled { reason },
                        RetryChange::Fallback => self.forced_fallback(key, reason)?,
                    },
                )]
            }
        };
        // The first event is that of the request; those that follow from it have its principal, and no id.
        let rest = Actor { request_id: String::new(), ..actor.clone() };
        let actors = std::iter::once(actor).chain(std::iter::repeat(rest));
        self.record_all(now, bodies.into_iter().zip(actors).collect(), from.as_ref())
    }

    /// Records the events of a request, all of them or none. Nothing but [`Execution::apply`] judges whether they can be.
    fn record_all(
        &mut self,
        now: Timestamp,
        bodies: Vec<(Body, Actor)>,
        from: Option<&StepId>,
    ) -> Result<Vec<Event>, Refused> {
        let state = self.state;
        let before = (bodies.len() > 1).then(|| self.clone());
        let recorded: Result<Vec<Event>, IllegalEvent> =
            bodies.into_iter().map(|(body, actor)| self.record(now, Some(actor), body)).collect();
        recorded.map_err(|illegal| {
            if let Some(before) = before {
                *self = before;
            }
            Refused::by(illegal.violation, state, from)
        })
    }

    fn step_named(&self, step: &StepId) -> Result<StepKey, Refused> {
        self.step_key(step).ok_or_else(|| Refused::NoStep(step.clone()))
    }

    /// The event with which a step that waits for its next attempt goes to its next call.
    fn forced_fallback(&self, step: StepKey, reason: String) -> Result<StepEvent, Refused> {
        let record = &self.steps[step];
        let calls = record.current_call().zip(record.next_call()).zip(record.failure.as_deref());
        let ((from, to), failure) = calls.ok_or_else(|| Refused::NoFallback(record.id.clone()))?;
        let (from, to) = (from.tool.clone(), to.tool.clone());
        Ok(StepEvent::FallbackSwitched { failure: failure.clone(), from, to, reason })
    }

    fn about_step(&self, step: StepKey, event: StepEvent) -> Body {
        let view = self.step(step);
        Body::Step { step: view.id().clone(), attempt: view.attempt(), event }
    }
}
