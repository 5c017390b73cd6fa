//! Writes plans as messages.

use std::{collections::BTreeMap, time::Duration};

use belay_plan::{
    AuditLevel, Backoff, Budget, CheckDraft, Dependency, Escalation, Input, OnError, OnExhausted, Outcome, Plan,
    PlanDraft, RateLimit, RecoveryStrategy, RepeatDraft, RetryPolicy, RunWhen, StepDraft, StepSpec, Then,
};
use belay_proto::v1::{self, step_spec::Kind};

use super::super::{
    class_to,
    kinds::{self, call::other_message},
    limit::limit_message,
};

fn on_error_message(on_error: OnError) -> Vec<v1::OnError> {
    let strategy = |strategy| match strategy {
        RecoveryStrategy::UseCache => v1::RecoveryStrategy::UseCache,
        RecoveryStrategy::QueueForLater => v1::RecoveryStrategy::QueueForLater,
        RecoveryStrategy::Compensate => v1::RecoveryStrategy::Compensate,
    };
    let entries = on_error.into_iter().map(|(class, follows)| v1::OnError {
        error_class: class_to(class).into(),
        strategy: strategy(follows).into(),
    });
    entries.collect()
}

fn budget_message(Budget { calls, output_bytes, tokens, cost_micros, on_exhausted }: Budget) -> v1::Budget {
    let amount = |amount: Option<u64>| amount.map(|amount| i64::try_from(amount).unwrap_or(i64::MAX));
    let on_exhausted = match on_exhausted {
        OnExhausted::Pause => v1::ExhaustedAction::Pause,
        OnExhausted::Fail => v1::ExhaustedAction::Fail,
        OnExhausted::NextFallback => v1::ExhaustedAction::NextFallback,
    };
    let [calls, output_bytes, tokens, cost_micros] = [calls, output_bytes, tokens, cost_micros].map(amount);
    v1::Budget { calls, output_bytes, tokens, cost_micros, on_exhausted: on_exhausted.into() }
}

fn check_message(CheckDraft { condition, file, command, judge, model }: CheckDraft) -> v1::Check {
    use v1::check::Check;
    let check = match (condition.is_empty(), file.is_empty(), judge.is_empty()) {
        (false, ..) => Check::Condition(condition),
        (true, false, _) => Check::File(file),
        (true, true, false) => Check::Judge(v1::Judge { criterion: judge, model }),
        (true, true, true) => Check::Command(v1::Command { arguments: command }),
    };
    v1::Check { check: Some(check) }
}

pub(crate) fn audit_level_to(level: Option<AuditLevel>) -> v1::AuditLevel {
    match level {
        None => v1::AuditLevel::Unspecified,
        Some(AuditLevel::Minimal) => v1::AuditLevel::Minimal,
        Some(AuditLevel::Standard) => v1::AuditLevel::Standard,
        Some(AuditLevel::Verbose) => v1::AuditLevel::Verbose,
    }
}

fn outcome_to(outcome: Outcome) -> v1::Outcome {
    match outcome {
        Outcome::Success => v1::Outcome::Success,
        Outcome::Failure => v1::Outcome::Failure,
        Outcome::Skipped => v1::Outcome::Skipped,
    }
}

/// A plan as a message.
pub(crate) fn plan_message(plan: &Plan) -> v1::Plan {
    draft_message(plan.to_draft())
}

/// A step of a plan as a message.
pub(crate) fn spec_message(step: &StepSpec) -> v1::StepSpec {
    step_message(step.to_draft())
}

fn draft_message(draft: PlanDraft) -> v1::Plan {
    v1::Plan {
        id: draft.id,
        description: draft.description,
        inputs: draft.inputs.into_iter().map(input_message).collect(),
        outputs: outputs_message(draft.outputs),
        steps: draft.steps.into_iter().map(step_message).collect(),
        stop_on_error: draft.stop_on_error,
        parallelism: i32::try_from(draft.parallelism).unwrap_or(i32::MAX),
        timeout: draft.timeout.map(belay_proto::duration),
        escalation: draft.escalation.as_ref().map(escalation_message),
        on_error: on_error_message(draft.on_error),
        resources: draft.resources.into_iter().map(resource_message).collect(),
        audit_level: audit_level_to(draft.audit_level).into(),
        allowed_commands: draft.allowed_commands.map(|programs| v1::AllowedCommands { programs }),
        network: draft.network.unwrap_or_default(),
        budget: draft.budget.map(budget_message),
        limits: draft.limits.into_iter().map(limit_message).collect(),
        labels: draft.labels,
        dry_run: draft.dry_run,
    }
}

/// Its delays are sent as those of a retry policy are.
fn escalation_message(escalation: &Escalation) -> v1::Escalation {
    let Escalation { retries, backoff, then } = escalation;
    let v1::RetryPolicy { backoff, exponential, .. } =
        retry_message(&RetryPolicy { backoff: backoff.clone(), ..RetryPolicy::default() });
    let retries = i32::try_from(*retries).unwrap_or(i32::MAX);
    v1::Escalation { retries, backoff, exponential, pause: *then == Then::Pause }
}

fn group_timeout_message((group, timeout): (String, Duration)) -> v1::GroupTimeout {
    v1::GroupTimeout { group, timeout: Some(belay_proto::duration(timeout)) }
}

fn resource_message((name, capacity): (String, u32)) -> v1::PlanResource {
    v1::PlanResource { name, capacity: i32::try_from(capacity).unwrap_or(i32::MAX) }
}

/// A plan as it is stored: what its author left to a default is written out, so that a version with another default changes nothing that has
/// begun.
pub(crate) fn stored_plan_message(plan: &Plan) -> v1::Plan {
    let mut message = plan_message(plan);
    for (message, step) in message.steps.iter_mut().zip(plan.steps()) {
        if let (Some(Kind::Plan(inner)), Some(plan)) = (&mut message.kind, step.kind().plan()) {
            inner.plan = Some(stored_plan_message(plan));
        }
        message.retry = step.kind().has_attempts().then(|| retry_message(step.retry()));
    }
    message
}

fn input_message((name, input): (String, Input)) -> v1::PlanInput {
    let payload = |value: serde_json::Value| v1::Payload::of_json(value.to_string());
    let Input { description, schema, default } = input;
    v1::PlanInput { name, description, schema: schema.map(payload), default_value: default.map(payload) }
}

fn outputs_message(outputs: BTreeMap<String, serde_json::Value>) -> Option<v1::Payload> {
    let outputs: serde_json::Map<_, _> = outputs.into_iter().collect();
    (!outputs.is_empty()).then(|| v1::Payload::of_json(serde_json::Value::Object(outputs).to_string()))
}

fn step_message(step: StepDraft) -> v1::StepSpec {
    let payload = |value: serde_json::Value| v1::Payload::of_json(value.to_string());
    let kind = kinds::spec_message(step.kind, (step.exclusive, step.network), step.verbatim, draft_message);
    let outcomes = step.depends_on.iter().filter_map(|Dependency { step, on }| {
        let outcomes = on.as_ref()?.iter().map(|&outcome| outcome_to(outcome).into());
        Some(v1::DependencyOutcomes { step: step.clone(), outcomes: outcomes.collect() })
    });
    v1::StepSpec {
        outcomes: outcomes.collect(),
        id: step.id,
        title: step.title,
        group: step.group,
        description: step.description,
        depends_on: step.depends_on.into_iter().map(|on| on.step).collect(),
        // An older version has to refuse what it would not do, and not what it would do all the same.
        run_when: match step.run_when {
            RunWhen::Success => v1::RunWhen::Unspecified,
            RunWhen::Failure => v1::RunWhen::Failure,
            RunWhen::Always => v1::RunWhen::Always,
            RunWhen::NoneFailed => v1::RunWhen::NoneFailed,
        }
        .into(),
        condition: step.condition,
        for_each: step.for_each.map(payload),
        fail_fast: step.fail_fast,
        group_timeouts: step.group_timeouts.into_iter().map(group_timeout_message).collect(),
        fail_fast_groups: step.fail_fast_groups,
        repeat: step.repeat.map(|RepeatDraft { until, max, delay }| v1::Repeat {
            until,
            max: i32::try_from(max).unwrap_or(i32::MAX),
            delay: delay.map(belay_proto::duration),
        }),
        fallback: step.fallback.into_iter().map(other_message).collect(),
        compensate: step.compensate.map(|call| Box::new(other_message(call))),
        resources: step.resources,
        budget: step.budget.map(budget_message),
        preconditions: step.preconditions.into_iter().map(check_message).collect(),
        postconditions: step.postconditions.into_iter().map(check_message).collect(),
        output_schema: step.output_schema.map(|schema| schema.to_string()).unwrap_or_default(),
        timeout: step.timeout.map(belay_proto::duration),
        attempt_timeout: step.attempt_timeout.map(belay_proto::duration),
        retry: step.retry.map(|retry| retry_message(&retry)),
        on_error: on_error_message(step.on_error),
        kind: Some(kind),
    }
}

fn retry_message(retry: &RetryPolicy) -> v1::RetryPolicy {
    let max_attempts = i32::try_from(retry.max_attempts).unwrap_or(i32::MAX);
    let limited = match &retry.rate_limit {
        RateLimit::Delays(delays) => delays.iter().copied().map(belay_proto::duration).collect(),
        RateLimit::AsOthers | RateLimit::Never(_) | RateLimit::QueueForLater(_) => Vec::new(),
    };
    let others = v1::RetryPolicy {
        max_attempts,
        rate_limit_backoff: limited,
        never_on_rate_limit: matches!(retry.rate_limit, RateLimit::Never(_)),
        queue_on_rate_limit: retry.rate_limit.queues_for_later(),
        by_output: retry.by_output,
        ..v1::RetryPolicy::default()
    };
    match &retry.backoff {
        Backoff::List(delays) => {
            v1::RetryPolicy { backoff: delays.iter().copied().map(belay_proto::duration).collect(), ..others }
        }
        Backoff::Exponential { initial, factor, max } => v1::RetryPolicy {
            exponential: Some(v1::ExponentialBackoff {
                initial: Some(belay_proto::duration(*initial)),
                factor: *factor,
                max: Some(belay_proto::duration(*max)),
            }),
            ..others
        },
    }
}
