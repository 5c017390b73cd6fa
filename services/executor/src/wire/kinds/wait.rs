//! Waits as messages.

use std::sync::Arc;

use belay_execution::{Form, Json, StepView, WaitCondition, WaitEnd, Waiting};
use belay_plan::{FormDraft, Violation, WaitDraft, WaitFor, WaitStep};
use belay_proto::v1::{self, wait_ended::Cause, wait_step::Condition};

use super::super::{
    approval::{decided_from, decision_to},
    inline, json, known,
    plan::values::{duration_from, violation},
    time, timestamp,
    unread::Unread,
};

pub(super) fn started_message(condition: &WaitCondition) -> v1::WaitStarted {
    let form = condition.form();
    v1::WaitStarted {
        signal: condition.signal().unwrap_or_default().to_owned(),
        until_time: condition.until().map(time),
        form: form.map(|form| form_message(form)),
        subject_digest: form.map(|form| form.subject_digest.clone()).unwrap_or_default(),
        asking_call: i32::try_from(condition.question().map_or(0, |(call, _)| call)).unwrap_or(i32::MAX),
        question: condition.question().map(|(_, question)| question.to_string()).unwrap_or_default(),
        may_hold_for_execution: matches!(condition, WaitCondition::Question { may_hold: true, .. }),
    }
}

pub(in crate::wire) fn started_from(message: v1::WaitStarted) -> Result<WaitCondition, Unread> {
    let v1::WaitStarted { signal, until_time, form, subject_digest, asking_call, question, may_hold_for_execution } =
        message;
    let until = until_time.as_ref().map(timestamp);
    Ok(match (form, signal.is_empty()) {
        (Some(v1::Form { title, description, schema }), _) => {
            let form = Arc::new(Form { title, description, schema: Json::from_text(schema), subject_digest });
            match (u32::try_from(asking_call), question.is_empty()) {
                (Ok(0), true) => WaitCondition::Form { form, until },
                (Ok(call @ 1..), false) => {
                    let (question, may_hold) = (question.into(), may_hold_for_execution);
                    WaitCondition::Question { call, question, form, until, may_hold }
                }
                _ => return Err(Unread::Lacks("the call that asks, or its question")),
            }
        }
        (None, true) => WaitCondition::Time { until: until.ok_or(Unread::Lacks("its time"))? },
        (None, false) => WaitCondition::Signal { signal, until },
    })
}

pub(super) fn ended_message(end: &WaitEnd) -> v1::WaitEnded {
    let by = |cause: Cause| v1::WaitEnded { cause: cause.into(), ..v1::WaitEnded::default() };
    match end {
        WaitEnd::Elapsed => by(Cause::Elapsed),
        WaitEnd::Signalled { sequence } => {
            let signal_sequence = i64::try_from(*sequence).unwrap_or(i64::MAX);
            v1::WaitEnded { signal_sequence, ..by(Cause::Signalled) }
        }
        WaitEnd::Answered { answer } => v1::WaitEnded { answer: Some(inline(answer)), ..by(Cause::Answered) },
        WaitEnd::Held { sequence } => {
            let answer_sequence = i64::try_from(*sequence).unwrap_or(i64::MAX);
            v1::WaitEnded { answer_sequence, ..by(Cause::Held) }
        }
        WaitEnd::Declined { decision, reason } => {
            v1::WaitEnded { decision: decision_to(*decision).into(), reason: reason.clone(), ..by(Cause::Declined) }
        }
        WaitEnd::Refused { message } => v1::WaitEnded { reason: message.clone(), ..by(Cause::Refused) },
        WaitEnd::TimedOut => by(Cause::TimedOut),
        WaitEnd::Cancelled => by(Cause::Cancelled),
    }
}

pub(in crate::wire) fn ended_from(message: v1::WaitEnded) -> Result<WaitEnd, Unread> {
    let sequence = u64::try_from(message.signal_sequence).map_err(|_| Unread::Lacks("the number of its signal"))?;
    Ok(match known(message.cause, "the cause of a wait's end")? {
        Cause::Unspecified => return Err(Unread::Lacks("its cause")),
        Cause::Elapsed => WaitEnd::Elapsed,
        Cause::Signalled => WaitEnd::Signalled { sequence },
        Cause::Answered => WaitEnd::Answered { answer: json(message.answer, "the answer to a form")? },
        Cause::Held => {
            let sequence = u64::try_from(message.answer_sequence).ok().filter(|sequence| *sequence > 0);
            WaitEnd::Held { sequence: sequence.ok_or(Unread::Lacks("the number of its answer"))? }
        }
        Cause::Declined => {
            let decision = decided_from(known(message.decision, "the decision about a form")?);
            WaitEnd::Declined { decision: decision.ok_or(Unread::Lacks("its decision"))?, reason: message.reason }
        }
        Cause::Refused => WaitEnd::Refused { message: message.reason },
        Cause::TimedOut => WaitEnd::TimedOut,
        Cause::Cancelled => WaitEnd::Cancelled,
    })
}

/// The wait of a step, for readers.
pub(super) fn detail(wait: &WaitStep, view: StepView<'_>) -> v1::WaitStepDetail {
    let until = view.operations().find_map(|operation| match operation.waiting()? {
        Waiting::Time { until, .. } => Some(until),
        Waiting::Signal { until, .. } | Waiting::Form { until, .. } => until,
        Waiting::Timer { .. }
        | Waiting::Limits { .. }
        | Waiting::NamespaceBudget { .. }
        | Waiting::Resume { .. }
        | Waiting::Outcome { .. }
        | Waiting::Call { .. }
        | Waiting::Child { .. }
        | Waiting::Approval { .. } => None,
    });
    let (signal, form) = match &wait.wait_for {
        WaitFor::Signal(signal) => (signal.clone(), String::new()),
        WaitFor::Form(form) if form.title().is_empty() => (String::new(), view.title().to_owned()),
        WaitFor::Form(form) => (String::new(), form.title().to_owned()),
        WaitFor::Duration(_) | WaitFor::Time(_) => Default::default(),
    };
    v1::WaitStepDetail { signal, until_time: until.map(time), form }
}

pub(super) fn spec_message(WaitDraft { duration, until, signal, form }: WaitDraft) -> v1::WaitStep {
    let duration = duration.map(|duration| Condition::Duration(belay_proto::duration(duration)));
    let until = until.map(|until| Condition::UntilTime(belay_proto::timestamp(until)));
    let form = form.map(|FormDraft { title, description, schema }| {
        Condition::Form(v1::Form { title, description, schema: schema.to_string() })
    });
    v1::WaitStep { condition: duration.or(until).or(form).or(Some(Condition::Signal(signal))) }
}

pub(super) fn draft_from(
    message: v1::WaitStep,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
) -> WaitDraft {
    let unset = WaitDraft::default();
    match message.condition {
        Some(Condition::Duration(duration)) => {
            let duration = duration_from(Some(&duration), || at("wait.duration"), violations);
            WaitDraft { duration: Some(duration.unwrap_or_default()), ..unset }
        }
        Some(Condition::UntilTime(until)) => WaitDraft { until: Some(belay_proto::micros(&until)), ..unset },
        Some(Condition::Signal(signal)) => WaitDraft { signal, ..unset },
        Some(Condition::Form(v1::Form { title, description, schema })) => {
            let schema = serde_json::from_str(&schema).unwrap_or_else(|error| {
                violations.push(violation(at("wait.form.schema"), format!("is not JSON: {error}")));
                serde_json::Value::Null
            });
            WaitDraft { form: Some(FormDraft { title, description, schema }), ..unset }
        }
        None => unset,
    }
}

fn form_message(form: &Form) -> v1::Form {
    let Form { title, description, schema, .. } = form;
    v1::Form { title: title.clone(), description: description.clone(), schema: schema.as_str().to_owned() }
}
