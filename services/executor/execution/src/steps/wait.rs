//! Steps that wait for a time, a signal or a person's answer to a form. A waiting step holds no slot, and its execution can leave memory.

use std::sync::Arc;

use belay_plan::{
    AuditLevel, FormSpec, StepKind, UnresolvedReference, WaitFor, WaitStep,
    limits::{MAX_FORM_DESCRIPTION_CHARS, MAX_FORM_TITLE_CHARS},
};
use belay_reasons as reasons;
use serde_json::{Value, json};

use crate::{
    Actor, ApprovalMode, Blobs, Body, DecideContext, Decision, ErrorClass, Execution, Failure, Form, Json, Operation,
    OperationEnd, OperationEvent, OperationId, OperationKey, OperationKind, Phase, RequiredAction, StepKey, StepOutput,
    StepTrigger, Timestamp, Violation, Wait, WaitCondition, WaitEnd, Waiting, Work,
    state::AttemptEnd,
    steps::outputs::{Values, values},
    words::{self, Activity, Severity, Words},
};

/// A wait begins.
pub(super) fn started(
    execution: &mut Execution,
    id: &OperationId,
    condition: &WaitCondition,
    time: Timestamp,
) -> Result<(), Violation> {
    let step = execution.named(&id.step)?;
    let key = OperationKey { step, attempt: id.attempt, number: id.number };
    execution.check_is_next(key)?;
    let record = &execution.steps[step];
    if !matches!(record.spec.kind(), StepKind::Wait(_)) || record.has_entries() {
        return Err(Violation::NoWait(id.step.clone()));
    }
    execution.update_step(step, |record| record.operations = key.number);
    insert(execution, key, condition, time);
    execution.transition_step(step, StepTrigger::WaitStarted, time)
}

impl Operation {
    /// The reason why it waits, when it is a wait.
    pub fn waiting(&self) -> Option<Waiting> {
        let since = self.since;
        match &self.kind {
            OperationKind::ToolCall(_) | OperationKind::Child { .. } => None,
            OperationKind::Wait(wait) => Some(match wait.condition {
                WaitCondition::Time { until } => Waiting::Time { since, until },
                WaitCondition::Signal { until, .. } => Waiting::Signal { since, until, wait: self.key },
                WaitCondition::Form { until, .. } | WaitCondition::Question { until, .. } => {
                    Waiting::Form { since, until, wait: self.key }
                }
            }),
        }
    }
}

/// Puts a wait in flight.
pub(super) fn insert(execution: &mut Execution, key: OperationKey, condition: &WaitCondition, time: Timestamp) {
    let kind = OperationKind::Wait(Wait { condition: condition.clone(), approval: None });
    execution.insert_operation(Operation::new(key, time, kind, Phase::Waiting));
}

/// A wait has ended.
pub(super) fn ended(
    execution: &mut Execution,
    id: &OperationId,
    end: &WaitEnd,
    actor: Option<&Actor>,
    time: Timestamp,
) -> Result<(), Violation> {
    let operation = execution.in_flight(id)?;
    let key = operation.key;
    let OperationKind::Wait(Wait { condition, approval }) = &operation.kind else {
        return Err(Violation::NotAWait(id.clone()));
    };
    let (output, end) = match (end, condition) {
        (WaitEnd::Elapsed, WaitCondition::Time { until }) if *until <= time => {
            (Some(Json::from_text("null").into()), AttemptEnd::Completed)
        }
        (WaitEnd::Signalled { sequence }, WaitCondition::Signal { signal, .. }) => {
            let signal = signal.clone();
            let payload = execution.progress.signals.take(&signal, *sequence);
            let payload = payload.ok_or(Violation::NotOldestSignal { sequence: *sequence, signal })?;
            (Some(payload.into()), AttemptEnd::Completed)
        }
        (WaitEnd::TimedOut, WaitCondition::Signal { signal, until: Some(until) }) if *until <= time => {
            let message = format!("The signal `{signal}` did not come within the step's time limit.");
            (None, AttemptEnd::Failed(Failure::new(ErrorClass::Timeout, reasons::STEP_TIMEOUT, message)))
        }
        (WaitEnd::TimedOut, WaitCondition::Form { until: Some(until), .. }) if *until <= time => {
            let message = "Nobody answered the form within the step's time limit.";
            (None, AttemptEnd::Failed(Failure::new(ErrorClass::Timeout, reasons::STEP_TIMEOUT, message)))
        }
        (WaitEnd::Answered { answer }, WaitCondition::Form { .. })
            if actor.is_some() && approval.is_some() && execution.stop.is_none() =>
        {
            (Some(answer.clone().into()), AttemptEnd::Completed)
        }
        (WaitEnd::Declined { decision, reason }, WaitCondition::Form { form, .. })
            if may_decline(execution, actor, approval.as_deref(), *decision) =>
        {
            (None, declined(form, actor, *decision, reason))
        }
        (WaitEnd::Refused { message }, WaitCondition::Form { form, .. })
            if actor.is_none() && execution.stop.is_none() =>
        {
            let message = format!("The approval gate refuses to ask the form `{}`: {message}", form.title);
            (None, AttemptEnd::Failed(Failure::new(ErrorClass::Internal, reasons::FORM_REFUSED, message)))
        }
        (WaitEnd::Cancelled, _) if execution.stop.is_some() => (None, AttemptEnd::Cancelled),
        (end, _) => return Err(Violation::OtherEnd { operation: id.clone(), end: end.word() }),
    };
    execution.remove_operation(key);
    execution.transition_step(key.step, StepTrigger::WaitEnded, time)?;
    execution.update_step(key.step, |record| {
        (record.end, record.output) = (Some(end), output);
    });
    Ok(())
}

/// The gate asks a form.
pub(crate) fn asked(
    execution: &mut Execution,
    id: &OperationId,
    approval: &str,
    digest: &str,
) -> Result<(), Violation> {
    let operation = execution.in_flight(id)?;
    let key = operation.key;
    let OperationKind::Wait(wait) = &operation.kind else { return Err(Violation::NotAWait(id.clone())) };
    let form = wait.condition.form().ok_or_else(|| Violation::NotAForm(id.clone()))?;
    if form.subject_digest != digest {
        let (subject, asked) = (form.subject_digest.clone(), digest.to_owned());
        return Err(Violation::OtherSubject { operation: id.clone(), subject, asked });
    }
    if approval.is_empty() || wait.approval.is_some() {
        return Err(Violation::NothingToAsk(id.clone()));
    }
    let kind = OperationKind::Wait(Wait { approval: Some(approval.to_owned()), ..wait.clone() });
    execution.update_operation(key, |operation| operation.kind = kind);
    Ok(())
}

/// A person may deny or skip a form that the gate asks about; an execution that asks no person declines each by its mode.
pub(super) fn may_decline(
    execution: &Execution,
    actor: Option<&Actor>,
    approval: Option<&str>,
    decision: Decision,
) -> bool {
    if execution.stop.is_some() || !matches!(decision, Decision::Denied | Decision::Skipped) {
        return false;
    }
    match actor {
        Some(_) => approval.is_some(),
        None => declined_by_mode(execution) == Some(decision),
    }
}

/// How the execution's approval mode declines a form; `None` when it asks a person. A policy that decides without a person knows no answer.
fn declined_by_mode(execution: &Execution) -> Option<Decision> {
    match execution.created.approval_mode {
        ApprovalMode::Wait => None,
        ApprovalMode::Fail | ApprovalMode::Auto => Some(Decision::Denied),
        ApprovalMode::Skip => Some(Decision::Skipped),
    }
}

/// Returns the end of the step's attempt when nobody will answer its form.
fn declined(form: &Form, actor: Option<&Actor>, decision: Decision, reason: &str) -> AttemptEnd {
    if decision == Decision::Skipped {
        return AttemptEnd::Skipped;
    }
    let said = if reason.is_empty() { "no reason given" } else { reason };
    let (reason, message) = match actor {
        Some(actor) => (reasons::APPROVAL_DENIED, format!("{} denied the form: {said}", actor.principal)),
        None => {
            let title = &form.title;
            let message = format!(
                "A person has to answer the form `{title}`, but this run cannot ask. Use `--approve prompt`, and answer it on the \
                 terminal or with `belay approvals answer`."
            );
            (reasons::NON_INTERACTIVE, message)
        }
    };
    AttemptEnd::Denied(Failure::new(ErrorClass::ApprovalDenied, reason, message))
}

/// The form with its templates resolved.
fn resolved(execution: &Execution, step: StepKey, spec: &FormSpec, values: &Values<'_>) -> Result<Form, String> {
    let output = |id: &str, what| values.get(id, what);
    let texts = spec.texts.resolve(&output).map_err(|unresolved: UnresolvedReference| unresolved.to_string())?;
    let text = |field: &str, most: usize| {
        let text = match &texts[field] {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        match text.chars().count() {
            length if length > most => Err(format!(
                "wait.form.{field}: has {length} characters with its references resolved, and the limit is {most}"
            )),
            _ => Ok(text),
        }
    };
    let title = text("title", MAX_FORM_TITLE_CHARS)?;
    // A value that a reference brings in may have several lines.
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let title = if title.is_empty() { execution.step(step).title().to_owned() } else { title };
    Ok(Form::new(title, text("description", MAX_FORM_DESCRIPTION_CHARS)?, &spec.schema))
}

/// Starts the wait.
pub(crate) fn next(
    execution: &Execution,
    step: StepKey,
    wait: &WaitStep,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Body> {
    let condition = match &wait.wait_for {
        WaitFor::Duration(duration) => WaitCondition::Time { until: context.now.saturating_add(*duration) },
        WaitFor::Time(micros) => WaitCondition::Time { until: Timestamp::from_micros(*micros) },
        WaitFor::Signal(signal) => {
            WaitCondition::Signal { signal: signal.clone(), until: execution.step_deadline(step) }
        }
        WaitFor::Form(spec) => {
            let values = match values(execution, step, spec.texts.values(), blobs) {
                Ok(values) => values?,
                Err(failure) => return Some(execution.fail(step, failure)),
            };
            match resolved(execution, step, spec, &values) {
                Ok(form) => WaitCondition::Form { form: Arc::new(form), until: execution.step_deadline(step) },
                Err(message) => {
                    let failure = Failure::new(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, message);
                    return Some(execution.fail(step, failure));
                }
            }
        }
    };
    // Of its own it has no limit: it would end after its group, whatever happens.
    if let (WaitCondition::Time { until }, Some((deadline, group))) = (&condition, execution.group_deadline(step))
        && *until > deadline
    {
        let message = format!("The step waits for longer than the time limit of the group `{group}` leaves.");
        return Some(execution.fail(step, Failure::new(ErrorClass::Timeout, reasons::STEP_TIMEOUT, message)));
    }
    let wait = execution.operation_id(execution.next_operation(step));
    Some(Body::Operation { id: wait, event: OperationEvent::Requested(Work::Wait(condition)) })
}

/// A form is to be asked at the gate; other waits need nothing of a service. The call that asks a question runs also while the execution is paused.
pub(crate) fn action(execution: &Execution, wait: &Wait) -> Option<RequiredAction> {
    let is_held_up = execution.paused.is_some() && wait.condition.question().is_none();
    let continues = !is_held_up && execution.stop.is_none() && declined_by_mode(execution).is_none();
    let is_to_ask = wait.condition.form().is_some() && wait.approval.is_none();
    (continues && is_to_ask).then_some(RequiredAction::RequestApproval)
}

/// The end of the first wait that can end now: a form by a mode that asks no person, else a wait by its signal, else by its time.
pub(crate) fn due(execution: &Execution, now: Timestamp) -> Option<Body> {
    let ended = |key, end| Body::Operation {
        id: execution.operation_id(key),
        event: OperationEvent::Ended(OperationEnd::Wait(end)),
    };
    let signalled = |&key: &OperationKey| {
        let sequence = execution.signals.first(execution.operations.get(key)?.wait()?.signal()?)?;
        Some(ended(key, WaitEnd::Signalled { sequence }))
    };
    let has_turn = |wait: &&OperationKey| has_turn(execution, **wait);
    if let Some(decision) = declined_by_mode(execution)
        && let Some(&form) = execution.index.waits_for_answer.iter().find(has_turn)
    {
        return Some(ended(form, WaitEnd::Declined { decision, reason: reasons::NON_INTERACTIVE.to_owned() }));
    }
    if !execution.signals.is_empty()
        && let Some(end) = execution.index.waits_for_signal.iter().filter(has_turn).find_map(signalled)
    {
        return Some(end);
    }
    let (_, key) = next_timer(execution).filter(|(until, _)| *until <= now)?;
    let end = match execution.operations.get(key)?.wait()? {
        WaitCondition::Time { .. } => WaitEnd::Elapsed,
        WaitCondition::Signal { .. } | WaitCondition::Form { .. } | WaitCondition::Question { .. } => WaitEnd::TimedOut,
    };
    Some(ended(key, end))
}

/// The first wait that ends by its time, and when, as long as nothing else happens.
pub(crate) fn next_timer(execution: &Execution) -> Option<(Timestamp, OperationKey)> {
    execution.index.timers.iter().copied().find(|(_, wait)| has_turn(execution, *wait))
}

/// Whether a wait may end: not while the execution is paused, except for a question, because the call that asks runs on.
fn has_turn(execution: &Execution, wait: OperationKey) -> bool {
    execution.paused.is_none() || execution.index.questions.contains(&wait)
}

/// The end of the first wait of an execution that is being stopped.
pub(crate) fn cancelled(execution: &Execution) -> Option<Body> {
    let wait = execution.operations.iter().find(|operation| matches!(operation.kind, OperationKind::Wait(_)))?;
    let event = OperationEvent::Ended(OperationEnd::Wait(WaitEnd::Cancelled));
    Some(Body::Operation { id: execution.operation_id(wait.key), event })
}

/// The words of a wait that begins.
pub(super) fn words_started(wait: &OperationId, condition: &WaitCondition) -> Words {
    let (what, kind) = match condition {
        WaitCondition::Time { .. } => ("a time".to_owned(), "TIME"),
        WaitCondition::Signal { signal, .. } => (format!("the signal `{signal}`"), "SIGNAL"),
        WaitCondition::Form { form, .. } | WaitCondition::Question { form, .. } => {
            (format!("an answer to `{}`", form.title), "FORM")
        }
    };
    let until = condition.until().map(|until| until.as_micros() / 1_000);
    let details = json!({"waitsFor": kind, "signal": condition.signal(), "untilUnixMs": until});
    Words::new(AuditLevel::Standard, Severity::Info, format!("Step `{}` waits for {what}", wait.step), details)
}

/// The words of a wait's end. `has_actor`: a person has ended it.
pub(super) fn words_ended(wait: &OperationId, end: &WaitEnd, has_actor: bool) -> Words {
    use AuditLevel::{Minimal, Standard};
    use Severity::{Error, Info, Warn};
    let ended = |level, severity, what: &str, cause: &str| {
        let message = format!("The wait of step `{}` ended: {what}", wait.step);
        Words::new(level, severity, message, json!({"cause": cause}))
    };
    match end {
        WaitEnd::Elapsed => ended(Standard, Info, "its time has come", "ELAPSED"),
        WaitEnd::Signalled { .. } => ended(Standard, Info, "its signal came", "SIGNALLED"),
        WaitEnd::Answered { .. } => ended(Minimal, Info, "a principal answered the form", "ANSWERED"),
        WaitEnd::Held { sequence } => {
            let what = format!("a principal has answered the same form for the execution, with event {sequence}");
            ended(Minimal, Info, &what, "HELD")
        }
        WaitEnd::Declined { decision, reason } => {
            let who = if has_actor { "a principal" } else { "the execution's approval mode" };
            let said = ended(Minimal, Warn, &words::because(&format!("{who} declined the form"), reason), "DECLINED");
            Words {
                details: json!({"cause": "DECLINED", "decision": words::decided(*decision), "reason": reason}),
                ..said
            }
        }
        WaitEnd::Refused { message } => {
            ended(Standard, Error, &format!("the approval gate refuses its form: {message}"), "REFUSED")
        }
        WaitEnd::TimedOut => ended(Standard, Warn, "the step's time limit ran out", "TIMED_OUT"),
        WaitEnd::Cancelled => ended(Standard, Warn, "the execution is being stopped", belay_reasons::CANCELLED),
    }
}

/// The activity of a step whose wait begins.
pub(super) fn activity(condition: &WaitCondition) -> Activity {
    match condition {
        WaitCondition::Time { .. } | WaitCondition::Signal { .. } => Activity::Waits,
        WaitCondition::Form { .. } | WaitCondition::Question { .. } => Activity::AwaitsPerson,
    }
}

/// The activity of a step from the end of its wait on. With one that is cancelled, its call or its step has ended.
pub(super) fn activity_after(end: &WaitEnd) -> Option<Activity> {
    (*end != WaitEnd::Cancelled).then_some(Activity::Runs)
}

/// The output that a wait's end gives its step.
pub(super) fn output(end: &WaitEnd) -> Option<StepOutput> {
    match end {
        WaitEnd::Elapsed => Some(StepOutput::Value(Json::from_text("null").into())),
        WaitEnd::Answered { answer } => Some(StepOutput::Value(answer.clone().into())),
        WaitEnd::Signalled { sequence } => Some(StepOutput::OfSignal { sequence: *sequence }),
        WaitEnd::Held { .. }
        | WaitEnd::Declined { .. }
        | WaitEnd::Refused { .. }
        | WaitEnd::TimedOut
        | WaitEnd::Cancelled => None,
    }
}
