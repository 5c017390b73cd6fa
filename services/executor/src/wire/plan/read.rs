//! Reads plans from messages.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use belay_plan::{
    AuditLevel, Backoff, Budget, CheckDraft, Dependency, Escalation, Input, InvalidPlan, Never, OnError, OnExhausted,
    Outcome, Plan, PlanDraft, PlanPart, QueueForLater, RateLimit, RecoveryStrategy, RepeatDraft, RetryPolicy, RunWhen,
    StepDraft, StepProblem, Then, Violation,
};
use belay_proto::v1::{self, payload::Content};

use super::{
    super::limit::limits_from,
    super::{
        class_from,
        kinds::{self, KindParts, call::other_from},
    },
    values::{arguments_from, duration_from, json_from, violation},
};

/// A plan from a stored message, which is trusted: it was checked when it was accepted.
pub(crate) fn stored_plan_from(message: v1::Plan) -> Result<Plan, InvalidPlan> {
    match draft(message) {
        (draft, violations) if violations.is_empty() => Plan::stored(draft),
        (_, violations) => Err(InvalidPlan { violations }),
    }
}

/// A checked plan from a message, with what `check` finds wrong in its calls and forms; the error has everything.
pub(crate) fn checked_plan_from(
    message: v1::Plan,
    check: impl FnMut(PlanPart<'_>) -> Vec<StepProblem>,
) -> Result<Plan, InvalidPlan> {
    let (draft, mut violations) = draft(message);
    let checked = Plan::new_with(draft, check);
    if violations.is_empty() {
        return checked;
    }
    if let Err(InvalidPlan { violations: more }) = checked {
        // Fields that could not be read have a placeholder in the draft; violations of the placeholder would mislead.
        let unread: Vec<String> = violations.iter().filter_map(|violation| unread(&violation.field)).collect();
        let misleads = |field: &str| unread.iter().any(|place| field.starts_with(place.as_str()));
        violations.extend(more.into_iter().filter(|violation| !misleads(&violation.field)));
    }
    Err(InvalidPlan { violations })
}

/// The prefix of the fields of a draft's placeholder for a message field that could not be read.
fn unread(field: &str) -> Option<String> {
    if let Some(step) = field.strip_suffix(".kind") {
        return Some(format!("{step}."));
    }
    if field.ends_with(".wait.form.schema")
        || field.ends_with(".for_each")
        || field.contains("].repeat.")
        || field.contains("].fallback[")
        || field.contains("].calls[")
        || field.contains("].compensate.")
    {
        return Some(field.to_owned());
    }
    if let Some(step) = field.strip_suffix(".wait.duration") {
        return Some(format!("{step}.wait.for"));
    }
    field.strip_suffix(".tool.arguments").map(|step| format!("{step}.arguments"))
}

/// Converts a client's message to a draft, with the violations of fields that could not be read.
fn draft(message: v1::Plan) -> (PlanDraft, Vec<Violation>) {
    let mut violations = Vec::new();
    let mut steps = Vec::with_capacity(message.steps.len());
    for (index, step) in message.steps.into_iter().enumerate() {
        let at = |field: &str| format!("steps[{index}].{field}");
        let KindParts { kind, exclusive, network, verbatim } =
            kinds::draft_from(step.kind, &at, &mut violations, draft);
        let fallback = step.fallback.into_iter().enumerate();
        let fallback = fallback
            .map(|(place, call)| other_from(call, &at(&format!("fallback[{place}]")), &mut violations))
            .collect();
        let compensate = step.compensate.map(|call| other_from(*call, &at("compensate"), &mut violations));
        let for_each =
            step.for_each.and_then(|list| list.content).map(|list| json_from(list, at("for_each"), &mut violations));
        let repeat = step.repeat.map(|repeat| repeat_from(repeat, &at("repeat"), &mut violations));
        let retry = step.retry.map(|retry| retry_from(retry, &at("retry"), &mut violations));
        steps.push(StepDraft {
            id: step.id,
            title: step.title,
            description: step.description,
            group: step.group,
            depends_on: depends_on_from(step.depends_on, step.outcomes, &at, &mut violations),
            run_when: run_when_from(step.run_when, &at("run_when"), &mut violations),
            condition: step.condition,
            for_each,
            repeat,
            fail_fast: step.fail_fast,
            group_timeouts: group_timeouts_from(step.group_timeouts, &at, &mut violations),
            fail_fast_groups: step.fail_fast_groups,
            timeout: duration_from(step.timeout.as_ref(), || at("timeout"), &mut violations),
            attempt_timeout: duration_from(step.attempt_timeout.as_ref(), || at("attempt_timeout"), &mut violations),
            exclusive,
            network,
            verbatim,
            retry,
            on_error: on_error_from(step.on_error, &at("on_error"), &mut violations),
            fallback,
            compensate,
            resources: step.resources,
            budget: budget_from(step.budget, &at("budget"), &mut violations),
            preconditions: checks_from(step.preconditions, "preconditions", &at, &mut violations),
            postconditions: checks_from(step.postconditions, "postconditions", &at, &mut violations),
            output_schema: (!step.output_schema.is_empty()).then(|| {
                json_from(v1::payload::Content::Json(step.output_schema), at("output_schema"), &mut violations)
            }),
            kind,
        });
    }
    let parallelism = u32::try_from(message.parallelism).unwrap_or_else(|_| {
        violations.push(violation("parallelism".into(), "must not be negative"));
        0
    });
    let timeout = duration_from(message.timeout.as_ref(), || "timeout".into(), &mut violations);
    let inputs = inputs_from(message.inputs, &mut violations);
    let escalation = message.escalation.map(|escalation| escalation_from(escalation, &mut violations));
    let resources = capacities_from(message.resources, &mut violations);
    let draft = PlanDraft {
        id: message.id,
        description: message.description,
        inputs,
        outputs: outputs_from(message.outputs, &mut violations),
        steps,
        stop_on_error: message.stop_on_error,
        parallelism,
        timeout,
        escalation,
        on_error: on_error_from(message.on_error, "on_error", &mut violations),
        resources,
        audit_level: audit_level_from(message.audit_level, &mut violations),
        allowed_commands: message.allowed_commands.map(|allowed| allowed.programs),
        network: Some(message.network).filter(|network| !network.is_empty()),
        budget: budget_from(message.budget, "budget", &mut violations),
        limits: limits_from(message.limits, &mut violations),
        labels: message.labels,
        dry_run: message.dry_run,
    };
    (draft, violations)
}

fn escalation_from(message: v1::Escalation, violations: &mut Vec<Violation>) -> Escalation {
    let v1::Escalation { retries, backoff, exponential, pause } = message;
    let retry = v1::RetryPolicy { max_attempts: 1, backoff, exponential, ..v1::RetryPolicy::default() };
    let RetryPolicy { backoff, .. } = retry_from(retry, "escalation", violations);
    let retries = u32::try_from(retries).unwrap_or_else(|_| {
        violations.push(violation("escalation.retries".into(), "must not be negative"));
        1
    });
    Escalation { retries, backoff, then: if pause { Then::Pause } else { Then::Fail } }
}

/// Reads the strategies for failures; each class once.
fn on_error_from(entries: Vec<v1::OnError>, field: &str, violations: &mut Vec<Violation>) -> OnError {
    let mut on_error = OnError::new();
    for (place, v1::OnError { error_class, strategy }) in entries.into_iter().enumerate() {
        let at = |name: &str| format!("{field}[{place}].{name}");
        let class = v1::ErrorClass::try_from(error_class).ok().filter(|class| *class != v1::ErrorClass::Unspecified);
        let strategy = match v1::RecoveryStrategy::try_from(strategy) {
            Ok(v1::RecoveryStrategy::UseCache) => Some(RecoveryStrategy::UseCache),
            Ok(v1::RecoveryStrategy::QueueForLater) => Some(RecoveryStrategy::QueueForLater),
            Ok(v1::RecoveryStrategy::Compensate) => Some(RecoveryStrategy::Compensate),
            Ok(v1::RecoveryStrategy::Unspecified) | Err(_) => None,
        };
        match (class, strategy) {
            (None, _) => violations
                .push(violation(at("error_class"), "is not a class of failures: set one that this version knows")),
            (_, None) => {
                violations.push(violation(at("strategy"), "is not a strategy: set one that this version knows"))
            }
            (Some(class), Some(strategy)) => {
                if on_error.insert(class_from(class), strategy).is_some() {
                    violations.push(violation(at("error_class"), "names a class again: give each once"));
                }
            }
        }
    }
    on_error
}

fn budget_from(message: Option<v1::Budget>, field: &str, violations: &mut Vec<Violation>) -> Option<Budget> {
    let v1::Budget { calls, output_bytes, tokens, cost_micros, on_exhausted } = message?;
    let mut amount = |name, amount: Option<i64>| {
        amount.map(|amount| {
            u64::try_from(amount).unwrap_or_else(|_| {
                violations.push(violation(format!("{field}.{name}"), "must not be negative"));
                1
            })
        })
    };
    let (calls, output_bytes) = (amount("calls", calls), amount("output_bytes", output_bytes));
    let (tokens, cost_micros) = (amount("tokens", tokens), amount("cost_micros", cost_micros));
    // A value that this version does not know was refused when the request was read.
    let on_exhausted = match v1::ExhaustedAction::try_from(on_exhausted) {
        Ok(v1::ExhaustedAction::Fail) => OnExhausted::Fail,
        Ok(v1::ExhaustedAction::NextFallback) => OnExhausted::NextFallback,
        Ok(v1::ExhaustedAction::Pause | v1::ExhaustedAction::Unspecified) | Err(_) => OnExhausted::Pause,
    };
    Some(Budget { calls, output_bytes, tokens, cost_micros, on_exhausted })
}

fn capacities_from(resources: Vec<v1::PlanResource>, violations: &mut Vec<Violation>) -> BTreeMap<String, u32> {
    let mut capacities = BTreeMap::new();
    for (place, v1::PlanResource { name, capacity }) in resources.into_iter().enumerate() {
        let capacity = u32::try_from(capacity).unwrap_or_else(|_| {
            violations.push(violation(format!("resources[{place}].capacity"), "must not be negative"));
            1
        });
        if capacities.insert(name, capacity).is_some() {
            violations.push(violation(format!("resources[{place}].name"), "names a resource again: give each once"));
        }
    }
    capacities
}

/// The checks before or after a step's call.
fn checks_from(
    checks: Vec<v1::Check>,
    field: &str,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
) -> Vec<CheckDraft> {
    use v1::check::Check;
    let checks = checks.into_iter().enumerate().map(|(place, check)| match check.check {
        Some(Check::Condition(condition)) if !condition.is_empty() => CheckDraft { condition, ..CheckDraft::default() },
        Some(Check::File(file)) if !file.is_empty() => CheckDraft { file, ..CheckDraft::default() },
        Some(Check::Command(v1::Command { arguments })) if !arguments.is_empty() => {
            CheckDraft { command: arguments, ..CheckDraft::default() }
        }
        Some(Check::Judge(v1::Judge { criterion, model })) if !criterion.is_empty() => {
            CheckDraft { judge: criterion, model, ..CheckDraft::default() }
        }
        Some(Check::Condition(_) | Check::File(_) | Check::Command(_) | Check::Judge(_)) | None => {
            let message = "a check needs one thing: set `condition`, `file`, `command` or `judge`, not empty";
            violations.push(violation(at(&format!("{field}[{place}]")), message));
            // Stands for it, so that it is refused once.
            CheckDraft { condition: "true".to_owned(), ..CheckDraft::default() }
        }
    });
    checks.collect()
}

fn audit_level_from(level: i32, violations: &mut Vec<Violation>) -> Option<AuditLevel> {
    match v1::AuditLevel::try_from(level) {
        Ok(v1::AuditLevel::Unspecified) => None,
        Ok(v1::AuditLevel::Minimal) => Some(AuditLevel::Minimal),
        Ok(v1::AuditLevel::Standard) => Some(AuditLevel::Standard),
        Ok(v1::AuditLevel::Verbose) => Some(AuditLevel::Verbose),
        Err(_) => {
            violations.push(violation("audit_level".into(), format!("is {level}, which this version does not know")));
            None
        }
    }
}

fn run_when_from(run_when: i32, field: &str, violations: &mut Vec<Violation>) -> RunWhen {
    match v1::RunWhen::try_from(run_when) {
        Ok(v1::RunWhen::Unspecified | v1::RunWhen::Success) => RunWhen::Success,
        Ok(v1::RunWhen::Failure) => RunWhen::Failure,
        Ok(v1::RunWhen::Always) => RunWhen::Always,
        Ok(v1::RunWhen::NoneFailed) => RunWhen::NoneFailed,
        Err(_) => {
            violations.push(violation(field.to_owned(), format!("is {run_when}, which this version does not know")));
            RunWhen::Success
        }
    }
}

/// The steps that a step depends on, with the outcomes that it names of some of them.
fn depends_on_from(
    ids: Vec<String>,
    outcomes: Vec<v1::DependencyOutcomes>,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
) -> Vec<Dependency> {
    let listed: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let mut named: HashMap<String, BTreeSet<Outcome>> = HashMap::new();
    for (place, v1::DependencyOutcomes { step, outcomes }) in outcomes.into_iter().enumerate() {
        let field = |name: &str| at(&format!("outcomes[{place}].{name}"));
        if !listed.contains(step.as_str()) {
            violations.push(violation(field("step"), format!("`{step}` is not in `depends_on`: add it there")));
        }
        let mut known = BTreeSet::new();
        let before = violations.len();
        for (entry, outcome) in outcomes.into_iter().enumerate() {
            match outcome_from(outcome) {
                Some(outcome) => drop(known.insert(outcome)),
                None => {
                    let message = format!(
                        "is {outcome}, which is not an outcome of this version: use OUTCOME_SUCCESS, OUTCOME_FAILURE or OUTCOME_SKIPPED"
                    );
                    violations.push(violation(field(&format!("outcomes[{entry}]")), message));
                }
            }
        }
        // What could not be read is not refused again for what it lacks.
        let is_read = !known.is_empty() || violations.len() == before;
        if is_read && named.insert(step, known).is_some() {
            violations.push(violation(field("step"), "names a step again: give all its outcomes at once"));
        }
    }
    ids.into_iter().map(|step| Dependency { on: named.get(&step).cloned(), step }).collect()
}

/// `None` for a value that a newer version added, and for none.
fn outcome_from(outcome: i32) -> Option<Outcome> {
    match v1::Outcome::try_from(outcome).ok()? {
        v1::Outcome::Unspecified => None,
        v1::Outcome::Success => Some(Outcome::Success),
        v1::Outcome::Failure => Some(Outcome::Failure),
        v1::Outcome::Skipped => Some(Outcome::Skipped),
    }
}

fn group_timeouts_from(
    timeouts: Vec<v1::GroupTimeout>,
    at: &dyn Fn(&str) -> String,
    violations: &mut Vec<Violation>,
) -> BTreeMap<String, Duration> {
    let mut read = BTreeMap::new();
    for (place, v1::GroupTimeout { group, timeout }) in timeouts.into_iter().enumerate() {
        let field = |name: &str| at(&format!("group_timeouts[{place}].{name}"));
        let Some(timeout) = timeout.as_ref() else {
            violations.push(violation(field("timeout"), "is required: the time limit of the group"));
            continue;
        };
        let timeout = duration_from(Some(timeout), || field("timeout"), violations).unwrap_or_default();
        if read.insert(group, timeout).is_some() {
            violations.push(violation(field("group"), "names a group again: give each once"));
        }
    }
    read
}

fn repeat_from(repeat: v1::Repeat, field: &str, violations: &mut Vec<Violation>) -> RepeatDraft {
    let v1::Repeat { until, max, delay } = repeat;
    let max = u32::try_from(max).unwrap_or_else(|_| {
        violations.push(violation(format!("{field}.max"), "must not be negative"));
        1
    });
    RepeatDraft { until, max, delay: duration_from(delay.as_ref(), || format!("{field}.delay"), violations) }
}

fn retry_from(retry: v1::RetryPolicy, field: &str, violations: &mut Vec<Violation>) -> RetryPolicy {
    let max_attempts = u32::try_from(retry.max_attempts).unwrap_or_else(|_| {
        violations.push(violation(format!("{field}.max_attempts"), "must not be negative"));
        1
    });
    let exponential = retry.exponential.filter(|_| retry.backoff.is_empty());
    let backoff = match exponential {
        Some(exponential) => {
            let mut part = |name: &str, value: Option<&pbjson_types::Duration>| {
                duration_from(value, || format!("{field}.exponential.{name}"), violations)
            };
            let (initial, max) = (part("initial", exponential.initial.as_ref()), part("max", exponential.max.as_ref()));
            Backoff::Exponential {
                initial: initial.unwrap_or(Duration::from_secs(1)),
                factor: exponential.factor,
                max: max.unwrap_or(Duration::from_secs(30)),
            }
        }
        None => {
            let at = |index: usize| format!("{field}.backoff[{index}]");
            let delays = retry.backoff.iter().enumerate();
            Backoff::List(
                delays.filter_map(|(index, delay)| duration_from(Some(delay), || at(index), violations)).collect(),
            )
        }
    };
    let rate_limit = match (retry.never_on_rate_limit, retry.rate_limit_backoff.is_empty()) {
        _ if retry.queue_on_rate_limit => RateLimit::QueueForLater(QueueForLater::QueueForLater),
        (true, _) => RateLimit::Never(Never::Never),
        (false, true) => RateLimit::AsOthers,
        (false, false) => {
            let at = |index: usize| format!("{field}.rate_limit_backoff[{index}]");
            let delays = retry.rate_limit_backoff.iter().enumerate();
            RateLimit::Delays(
                delays.filter_map(|(index, delay)| duration_from(Some(delay), || at(index), violations)).collect(),
            )
        }
    };
    RetryPolicy { max_attempts, backoff, rate_limit, by_output: retry.by_output }
}

/// Inputs from a message, by their names, with what could not be read.
fn inputs_from(inputs: Vec<v1::PlanInput>, violations: &mut Vec<Violation>) -> BTreeMap<String, Input> {
    let mut read = BTreeMap::new();
    for (index, v1::PlanInput { name, description, schema, default_value }) in inputs.into_iter().enumerate() {
        let mut json = |field: &str, payload: Option<v1::Payload>| match payload?.content? {
            Content::Json(text) => belay_json::read(&text)
                .map_err(|refused| {
                    violations.push(violation(format!("inputs[{index}].{field}"), refused.to_string()));
                })
                .ok(),
            Content::Blob(_) => {
                let message = "a blob is not supported: send inline JSON";
                violations.push(violation(format!("inputs[{index}].{field}"), message));
                None
            }
        };
        let input =
            Input { description, schema: json("schema", schema), default: json("default_value", default_value) };
        if read.insert(name.clone(), input).is_some() {
            violations.push(violation(format!("inputs[{index}].name"), format!("`{name}` is declared twice")));
        }
    }
    read
}

/// Outputs from a message, by their names, with what could not be read.
fn outputs_from(outputs: Option<v1::Payload>, violations: &mut Vec<Violation>) -> BTreeMap<String, serde_json::Value> {
    let before = violations.len();
    match arguments_from(outputs, "outputs".into(), violations) {
        serde_json::Value::Object(outputs) => outputs.into_iter().collect(),
        _ => {
            if violations.len() == before {
                violations.push(violation("outputs".into(), "must be an object with a value for each output"));
            }
            BTreeMap::new()
        }
    }
}
