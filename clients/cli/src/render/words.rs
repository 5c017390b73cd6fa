//! The contract's enumerations and small messages in words. The words for states are the ones that `--state` takes.

use std::time::Duration;

use belay_proto::facts;
use belay_proto::v1::{
    Budget, BudgetReport, CachedResult, EffectSummary, Execution, Failure, Outcome, Payload, PolicyDecision, Risk,
    SkipReason, Step, StepSpec, StepTotals, TraceContext, WaitingReason, approval, budget_report::Unit, execution,
    payload::Content, step, tool_call, waiting_reason::Kind,
};

use super::{
    text::{REDACTED, Style, clean, shorten},
    time,
};

/// The longest value that is shown inside a line, in characters.
const MAX_VALUE_CHARS: usize = 100;

/// An execution's state, such as `timed_out`.
pub(crate) fn execution_state(state: execution::State) -> String {
    word(state.as_str_name(), "STATE_")
}

/// A step's state, such as `backing_off`.
pub(crate) fn step_state(state: step::State) -> String {
    word(state.as_str_name(), "STATE_")
}

/// A tool call's state, such as `timed_out`.
pub(crate) fn call_state(state: tool_call::State) -> String {
    word(state.as_str_name(), "STATE_")
}

/// The style of a tool call's state.
pub(crate) fn call_style(state: tool_call::State) -> Style {
    use tool_call::State;
    match state {
        State::Completed => Style::Good,
        State::Failed | State::TimedOut | State::Denied => Style::Bad,
        State::AwaitingApproval | State::OutcomeUnknown | State::Cancelled => Style::Warn,
        _ => Style::Plain,
    }
}

/// An enumeration's value without its prefix, in small letters.
pub(crate) fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

/// The style of an execution's state.
pub(crate) fn execution_style(state: execution::State) -> Style {
    use execution::State;
    match state {
        State::Completed => Style::Good,
        State::Failed | State::Partial | State::TimedOut => Style::Bad,
        State::Paused | State::AwaitingApproval | State::Cancelling | State::Cancelled => Style::Warn,
        _ => Style::Plain,
    }
}

/// The style of a step's state.
pub(crate) fn step_style(state: step::State) -> Style {
    use step::State;
    match state {
        State::Completed => Style::Good,
        State::Failed => Style::Bad,
        State::AwaitingApproval | State::BackingOff | State::OutcomeUnknown | State::Cancelled => Style::Warn,
        State::Pending | State::Ready | State::Skipped => Style::Dim,
        _ => Style::Plain,
    }
}

/// `file not found: a.txt (FILE_NOT_FOUND)`.
pub(crate) fn failure(failure: &Failure) -> String {
    match (failure.message.as_str(), reason(failure)) {
        ("", reason) => reason,
        (message, reason) => format!("{message} ({reason})"),
    }
}

/// How a call ended badly, for a line that has more: `exit 101` of a command, with a hint where there is one; else the message without its
/// full stop.
pub(crate) fn ending(failure: &Failure) -> String {
    let message = failure.message.trim_end_matches('.');
    match failure.metadata.get(facts::EXIT_CODE) {
        Some(code) => match failure.metadata.get(facts::HINT) {
            Some(hint) => format!("exit {code}: {hint}"),
            None => format!("exit {code}"),
        },
        None if message.is_empty() => reason(failure),
        None => message.to_owned(),
    }
}

/// Details of a failure: what led to it, which quota is used up, and when a retry can succeed.
pub(crate) fn details(failure: &Failure) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(quota) = &failure.quota {
        let name = if quota.name.is_empty() { "quota".to_owned() } else { format!("quota {}", quota.name) };
        let left = match quota.limit {
            0 => format!("{} left", quota.remaining),
            limit => format!("{} of {limit} left", quota.remaining),
        };
        let again = quota.reset_time.as_ref().map(|reset| format!(", full again at {}", time::date_and_time(reset)));
        lines.push(format!("{name}: {left}{}", again.unwrap_or_default()));
    }
    if let Some(after) = &failure.retry_after {
        lines.push(format!("a retry can succeed after {}", time::short(time::duration(after))));
    }
    let causes = std::iter::successors(failure.cause.as_deref(), |cause| cause.cause.as_deref());
    let fact = |key: &str| failure.metadata.get(key).map(String::as_str);
    // A rule with something hidden in it would be another rule.
    let rules = facts::allowing_rules(fact).into_iter().filter(|rule| !rule.contains(REDACTED));
    lines.extend(rules.map(|rule| format!("the policy's rule that allows it: {rule}")));
    lines.extend(causes.map(|cause| format!("caused by: {}", self::failure(cause))));
    lines
}

/// A person's name for an execution: its plan, else its id.
pub(crate) fn title(execution: &Execution) -> &str {
    match execution.plan_id.as_str() {
        "" => crate::names::id(&execution.name),
        plan => plan,
    }
}

/// A failure's stable word: its reason, else its class.
pub(crate) fn reason(failure: &Failure) -> String {
    match failure.reason.as_str() {
        "" => failure.error_class().as_str_name().trim_start_matches("ERROR_CLASS_").to_owned(),
        reason => reason.to_owned(),
    }
}

/// The outcomes of another after which a step runs, such as `success or skipped`; `None` when it names none of that one.
pub(crate) fn outcomes_of(step: &StepSpec, before: &str) -> Option<String> {
    let named = named_outcomes(step, before)?;
    let all = [(Outcome::Success, "success"), (Outcome::Failure, "failure"), (Outcome::Skipped, "skipped")];
    let words: Vec<&str> = all.iter().filter(|(outcome, _)| named.contains(outcome)).map(|(_, word)| *word).collect();
    Some(if words.len() == all.len() { "any end".to_owned() } else { words.join(" or ") })
}

/// Whether success is among the outcomes that a step names of another.
pub(crate) fn runs_after_success(step: &StepSpec, before: &str) -> bool {
    named_outcomes(step, before).is_some_and(|named| named.contains(&Outcome::Success))
}

fn named_outcomes(step: &StepSpec, before: &str) -> Option<Vec<Outcome>> {
    let named = step.outcomes.iter().find(|named| named.step == before)?;
    Some(named.outcomes().collect())
}

/// Why a step was skipped, after `skipped: `.
pub(crate) fn skipped_step(step: &Step) -> String {
    skipped(step.skip_reason(), &step.skipped_because, &step.skipped_group)
}

/// Why a step was skipped, after `skipped: `: `depends on fetch, which failed`. `group`: the one with `fail_fast` in which that step failed.
pub(crate) fn skipped(reason: SkipReason, because: &str, group: &str) -> String {
    let step = if because.is_empty() { "a step" } else { because };
    match reason {
        SkipReason::DependencyFailed => format!("depends on {step}, which failed"),
        SkipReason::DependencySkipped => format!("depends on {step}, which did not complete"),
        SkipReason::ConditionFalse if because.is_empty() => "its condition is false".to_owned(),
        SkipReason::ConditionFalse => format!("it runs after another end of {step}"),
        SkipReason::StopOnError if !group.is_empty() => {
            format!("{step} failed, and no step of the group {group} starts after that")
        }
        SkipReason::StopOnError => format!("{step} failed before it could start"),
        SkipReason::Cancelled => "the execution was cancelled".to_owned(),
        SkipReason::TimedOut => "the execution ran out of time".to_owned(),
        SkipReason::ApprovalSkipped => "a person chose to skip it".to_owned(),
        SkipReason::Requested => "a person skipped it".to_owned(),
        SkipReason::PlanUpdated => "the plan no longer has it".to_owned(),
        SkipReason::NotListed => "the list no longer has its entry".to_owned(),
        SkipReason::NonInteractive => "it needs a person, and this run cannot ask".to_owned(),
        SkipReason::Unspecified => "for a reason that this version of belay does not know".to_owned(),
    }
}

/// Where a step's output comes from, whose call has failed: `an earlier result, 3h 5m old, of nightly-7`.
pub(crate) fn cached(source: &CachedResult) -> String {
    let age = source.age.as_ref().map(time::duration).unwrap_or_default();
    let of = source.execution.rsplit('/').next().filter(|id| !id.is_empty()).map(|id| format!(", of {}", clean(id)));
    format!("an earlier result, {} old{}", time::short(age), of.unwrap_or_default())
}

/// `1 entry`, `200 entries`: of a list for each entry of which a step runs.
pub(crate) fn entries(count: usize) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

/// `1 check`, `2 checks`: of what has to hold before or after a step's call.
pub(crate) fn checks(count: usize) -> String {
    if count == 1 { "1 check".to_owned() } else { format!("{count} checks") }
}

/// A value, short enough to stand inside a line.
pub(crate) fn payload(payload: &Payload) -> String {
    match &payload.content {
        Some(Content::Json(text)) => shorten(&clean(text), MAX_VALUE_CHARS),
        Some(Content::Blob(blob)) => format!("({} bytes)", blob.size_bytes),
        None => String::new(),
    }
}

/// The cause of a wait, and its duration: `waiting for the tool runner, which does not answer (12s)`.
pub(crate) fn waiting(reason: &WaitingReason, now: Duration) -> String {
    if reason.kind() == Kind::Resume {
        let ago = time::between(reason.begin_time.as_ref(), Some(now)).map(time::ago);
        let what = match reason.until_time.as_ref().and_then(time::since_epoch) {
            Some(until) => {
                format!("{} (resumes by itself in {})", waited_for(reason), time::short(until.saturating_sub(now)))
            }
            None => format!("{} {}", waited_for(reason), ago.unwrap_or_default()),
        };
        return what.trim_end().to_owned();
    }
    let what = match reason.until_time.as_ref().and_then(time::since_epoch) {
        Some(until) if reason.kind() == Kind::Timer => {
            format!("retrying in {}", time::short(until.saturating_sub(now)))
        }
        Some(until) if reason.kind() == Kind::Time => {
            format!("{} ({} left)", waited_for(reason), time::short(until.saturating_sub(now)))
        }
        _ => waited_for(reason),
    };
    let is_counted_down = matches!(reason.kind(), Kind::Timer | Kind::Time);
    match time::between(reason.begin_time.as_ref(), Some(now)).filter(|_| !is_counted_down) {
        Some(since) => format!("{what} ({})", time::short(Duration::from_secs(since.as_secs()))),
        None => what,
    }
}

/// The cause of a wait, without the seconds that pass.
pub(crate) fn waited_for(reason: &WaitingReason) -> String {
    match (reason.kind(), reason.who.as_str()) {
        (Kind::Timer, _) => "waiting for a timer".to_owned(),
        (Kind::Time, _) => match &reason.until_time {
            Some(until) => format!("waiting until {}", time::date_and_time(until)),
            None => "waiting for a time".to_owned(),
        },
        (Kind::Signal, "") => "waiting for a signal".to_owned(),
        (Kind::Form, "") => "waiting for an answer".to_owned(),
        (Kind::Signal | Kind::Form, who) => format!("waiting for {}", clean(who)),
        (Kind::Approval, _) if !is_service_away(reason) => "waiting for approval".to_owned(),
        (Kind::Resume, _) => {
            let by =
                Some(&reason.principal).filter(|by| !by.is_empty()).map(|by| format!(" by {by}")).unwrap_or_default();
            let until = reason
                .until_time
                .as_ref()
                .map(|until| format!(" until {}", time::date_and_time(until)))
                .unwrap_or_default();
            format!("paused{by}{until}")
        }
        (Kind::Outcome, _) => "the outcome of a call is unknown; a person has to find out what it did".to_owned(),
        (Kind::Call, _) if is_own_call(reason) => "running".to_owned(),
        (Kind::Call, "") => "waiting for another call".to_owned(),
        (Kind::Runner, "") => "waiting for the tool runner".to_owned(),
        (Kind::Workspace, "") => "waiting for the disk of the workspace".to_owned(),
        (Kind::Limit, "") => "waiting for its turn".to_owned(),
        (Kind::Fault, "") => "set aside after a fault of the executor".to_owned(),
        (_, "") => "waiting".to_owned(),
        (_, who) => format!("waiting for {who}"),
    }
}

/// Whether it only waits for its own running call.
pub(crate) fn is_own_call(reason: &WaitingReason) -> bool {
    reason.kind() == Kind::Call && matches!(reason.who.as_str(), "" | "the tool")
}

/// Whether an event announces it: an approval was requested, or the execution was paused.
pub(crate) fn is_announced_by_event(reason: &WaitingReason) -> bool {
    matches!(reason.kind(), Kind::Resume | Kind::Approval | Kind::Form | Kind::Outcome) && !is_service_away(reason)
}

/// Whether it waits for a person to decide about an approval, or to answer a form.
pub(crate) fn is_pending_approval(reason: &WaitingReason) -> bool {
    matches!(reason.kind(), Kind::Approval | Kind::Form) && !is_service_away(reason)
}

/// Whether it waits for a service that does not answer: then no person can end the wait by a decision.
pub(crate) fn is_service_away(reason: &WaitingReason) -> bool {
    match reason.kind() {
        Kind::Runner => true,
        Kind::Approval => reason.next_command.is_empty() && reason.who.starts_with("the approval gate"),
        _ => false,
    }
}

/// How far a budget is used.
pub(crate) fn budget(report: &BudgetReport, what: &str) -> String {
    let BudgetReport { budget_step_id, spent, limit, .. } = report;
    let whose = match budget_step_id.as_str() {
        "" => "the budget of the execution".to_owned(),
        step => format!("the budget of step {}", clean(step)),
    };
    format!("{whose} {what}: {}", of(*spent, *limit, report.unit()))
}

/// The limits of a budget: `at most 5 calls and 1000 bytes of output`.
pub(crate) fn budget_limits(budget: &Budget) -> String {
    let part = |limit: Option<i64>, unit: Unit| match (limit?, unit) {
        (1, Unit::Calls) => Some("1 call".to_owned()),
        (limit, Unit::CostMicros) => Some(dollars(limit)),
        (limit, unit) => Some(format!("{limit}{}", self::unit(unit))),
    };
    let parts = [
        part(budget.calls, Unit::Calls),
        part(budget.output_bytes, Unit::OutputBytes),
        part(budget.tokens, Unit::Tokens),
        part(budget.cost_micros, Unit::CostMicros),
    ];
    format!("at most {}", parts.into_iter().flatten().collect::<Vec<_>>().join(" and "))
}

/// The amounts that the calls of an execution have used, beside their limits, and those that its models have used; `None` where there is neither.
pub(crate) fn spent(execution: &Execution) -> Option<String> {
    let spent = execution.spent.as_ref()?;
    let budget = execution.plan.as_ref().and_then(|plan| plan.budget.as_ref());
    let given = execution.allotment.as_ref();
    let limit = |own: Option<i64>, given: Option<i64>| own.into_iter().chain(given).min();
    let calls = limit(budget.and_then(|budget| budget.calls), given.and_then(|given| given.calls));
    let output = limit(budget.and_then(|budget| budget.output_bytes), given.and_then(|given| given.output_bytes));
    // What models use is worth knowing, whatever limits it.
    let alone = |used: i64, unit: Unit| match unit {
        Unit::Tokens if used > 0 => Some(format!("{used} tokens")),
        Unit::CostMicros if used > 0 => Some(dollars(used)),
        _ => None,
    };
    let part = |used: i64, limit: Option<i64>, unit: Unit| match limit {
        Some(limit) => Some(of(used, limit, unit)),
        None => alone(used, unit),
    };
    let tokens = limit(budget.and_then(|budget| budget.tokens), given.and_then(|given| given.tokens));
    let cost = limit(budget.and_then(|budget| budget.cost_micros), given.and_then(|given| given.cost_micros));
    let parts = [
        part(spent.calls, calls, Unit::Calls),
        part(spent.output_bytes, output, Unit::OutputBytes),
        part(spent.tokens, tokens, Unit::Tokens),
        part(spent.cost_micros, cost, Unit::CostMicros),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Millionths of a US dollar as a message has them, as dollars; fewer than none are none.
pub(crate) fn dollars(micros: i64) -> String {
    belay_text::dollars(u64::try_from(micros).unwrap_or_default())
}

/// So much of so much: `3 of 10 calls`, `$0.50 of $1.00`.
pub(crate) fn of(amount: i64, of: i64, unit: Unit) -> String {
    match unit {
        Unit::CostMicros => format!("{} of {}", dollars(amount), dollars(of)),
        unit => format!("{amount} of {of}{}", self::unit(unit)),
    }
}

/// The unit that a budget limits, after a number.
fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Calls => " calls",
        Unit::OutputBytes => " bytes of output",
        Unit::Tokens => " tokens",
        Unit::CostMicros => "",
        Unit::Unspecified => "",
    }
}

/// `2 completed, 1 failed`, without zeros.
pub(crate) fn totals(totals: &StepTotals) -> String {
    let parts = [
        (totals.completed, "completed"),
        (totals.failed, "failed"),
        (totals.skipped, "skipped"),
        (totals.cancelled, "cancelled"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if parts.is_empty() { "no step has finished".to_owned() } else { parts.join(", ") }
}

/// The command that shows an approval, by its name.
pub(crate) fn show_approval(name: &str) -> String {
    crate::next::about(&["approvals", "show"], name, &[])
}

/// An approval's state, such as `pending`.
pub(crate) fn approval_state(state: approval::State) -> String {
    word(state.as_str_name(), "STATE_")
}

/// The style of an approval's state.
pub(crate) fn approval_style(state: approval::State) -> Style {
    use approval::State;
    match state {
        State::Pending => Style::Warn,
        State::Approved | State::Consumed | State::Answered => Style::Good,
        State::Denied | State::Expired => Style::Bad,
        _ => Style::Dim,
    }
}

/// `2 created, 1 modified, 1 deleted`; only the counts there are.
pub(crate) fn effect(effect: &EffectSummary) -> String {
    let counts = [(effect.created, "created"), (effect.modified, "modified"), (effect.deleted, "deleted")];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    if counts.is_empty() { "no file".to_owned() } else { counts.join(", ") }
}

/// The changes of an effect, after `would `: `create 2 files`, `modify 1 file`, or `change 3 files (2 created, 1 deleted)`.
pub(crate) fn would(effect: &EffectSummary) -> String {
    let total = effect.created.saturating_add(effect.modified).saturating_add(effect.deleted);
    let files = if total == 1 { "1 file".to_owned() } else { format!("{total} files") };
    match (effect.created, effect.modified, effect.deleted) {
        (0, 0, 0) => "change no file".to_owned(),
        (_, 0, 0) => format!("create {files}"),
        (0, _, 0) => format!("modify {files}"),
        (0, 0, _) => format!("delete {files}"),
        _ => format!("change {files} ({})", self::effect(effect)),
    }
}

/// How much harm a call may do; empty for a form.
pub(crate) fn risk(risk: Risk) -> &'static str {
    match risk {
        Risk::Unspecified => "",
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
    }
}

/// `Deleting asks first. (rule file_delete)`.
pub(crate) fn decision(decision: &PolicyDecision) -> String {
    match (decision.reason.as_str(), decision.rule.as_str()) {
        ("", "") => "the policy asks".to_owned(),
        ("", rule) => format!("rule {rule}"),
        (reason, "") => reason.to_owned(),
        (reason, rule) => format!("{reason} (rule {rule})"),
    }
}

/// A flag of a change, as a sentence about the file.
pub(crate) fn flag(flag: &str) -> String {
    match flag {
        "protected" => "is protected: programs execute or obey it unasked",
        "bare_repository" => "steers a bare Git repository",
        "named_by_config" => "is run or obeyed by Git, because a repository's configuration names it",
        "executable" => "becomes executable",
        "link_leaves" => "is a link that leads out of the workspace",
        "odd_name" => "has a name with characters that cannot be seen or do not belong in names",
        "hidden_name" => "has a name that is not shown in full",
        "case_collision" => "differs from another name only in upper and lower case",
        "set_id_stripped" => "had its set-user-ID or set-group-ID bit removed",
        "made_writable" => "becomes writable by every user",
        other => return format!("is marked {other}"),
    }
    .to_owned()
}

/// `1 step`, `3 steps`.
pub(crate) fn steps(count: usize) -> String {
    if count == 1 { "1 step".to_owned() } else { format!("{count} steps") }
}

/// The retries a step has used and may use, `2/3`, as sources call it; the first attempt is no retry.
pub(crate) fn retries(step: Option<&Step>, retry_count: i32) -> String {
    match step.map(|step| step.max_attempts - 1).filter(|most| *most >= retry_count) {
        Some(most) => format!("{retry_count}/{most}"),
        None => retry_count.to_string(),
    }
}

/// The trace id in the execution's `traceparent`; `None` if the trace is not sampled.
pub(crate) fn trace_id(execution: &Execution) -> Option<String> {
    let TraceContext { traceparent, tracestate } = execution.trace.as_ref()?;
    let trace = belay_all_in_one::TraceContext::parse(traceparent, tracestate).ok()?;
    trace.is_sampled().then(|| trace.trace_id())
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{ErrorClass, QuotaState};
    use pbjson_types::Timestamp;

    use super::*;

    // Every state that a person meets is explained.
    #[test]
    fn a_rule_in_which_something_is_hidden_is_not_shown_as_the_way_through() {
        let metadata =
            facts::allowing(&["{id: a}".to_owned(), "{id: b, paths: [\"[REDACTED]\"]}".to_owned()]).collect();
        let failure = Failure { metadata, ..Default::default() };
        assert_eq!(details(&failure), ["the policy's rule that allows it: {id: a}"]);
    }

    #[test]
    fn every_state_is_in_the_glossary() {
        let glossary = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/glossary.md");
        let glossary = std::fs::read_to_string(glossary).unwrap();
        let executions = (1..).map_while(|n| execution::State::try_from(n).ok()).map(execution_state);
        // The numbers of removed states are reserved.
        let steps = (1..32).filter_map(|n| step::State::try_from(n).ok()).map(step_state);
        let approvals = (1..).map_while(|n| approval::State::try_from(n).ok()).map(approval_state);
        let missing: Vec<String> = executions
            .chain(steps)
            .chain(approvals)
            .filter(|state| !glossary.contains(&format!("`{state}`")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn states_are_the_words_of_the_filters() {
        assert_eq!(execution_state(execution::State::TimedOut), "timed_out");
        assert_eq!(step_state(step::State::BackingOff), "backing_off");
    }

    #[test]
    fn waits_say_for_what_since_when_and_for_whom() {
        let now = Duration::from_secs(1_000);
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let runner = WaitingReason {
            kind: Kind::Runner.into(),
            begin_time: at(988),
            who: "runner-1".to_owned(),
            ..Default::default()
        };
        assert_eq!(waiting(&runner, now), "waiting for runner-1 (12s)");
        assert!(is_service_away(&runner));
        let timer = WaitingReason {
            kind: Kind::Timer.into(),
            begin_time: at(988),
            until_time: at(1_004),
            ..Default::default()
        };
        assert_eq!(waiting(&timer, now), "retrying in 4s");
        let paused = |principal: &str, seconds| WaitingReason {
            kind: Kind::Resume.into(),
            begin_time: at(seconds),
            principal: principal.to_owned(),
            ..Default::default()
        };
        assert_eq!(waiting(&paused("unix:0", 1_000), now), "paused by unix:0 just now");
        let queued = WaitingReason { until_time: at(1_060), ..paused("", 970) };
        assert_eq!(waiting(&queued, now), format!("{} (resumes by itself in 1m)", waited_for(&queued)));
        assert_eq!(waiting(&paused("", 970), now), "paused 30s ago");
        let call = |who: &str| WaitingReason {
            kind: Kind::Call.into(),
            begin_time: at(998),
            who: who.to_owned(),
            ..Default::default()
        };
        assert_eq!(waiting(&call("the tool"), now), "running (2s)");
        assert_eq!(
            waiting(&call("e2, which has the workspace to itself"), now),
            "waiting for e2, which has the workspace to itself (2s)"
        );
        let gate = |who: &str, next: &str| WaitingReason {
            kind: Kind::Approval.into(),
            who: who.to_owned(),
            next_command: next.to_owned(),
            ..Default::default()
        };
        assert_eq!(waiting(&gate("a person", "belay approvals show x"), now), "waiting for approval");
        let away = gate("the approval gate, which does not answer", "");
        assert_eq!(waiting(&away, now), "waiting for the approval gate, which does not answer");
    }

    #[test]
    fn the_exit_code_of_a_command_is_a_fact_and_not_read_from_words() {
        let failed = |message: &str, facts: &[(&str, &str)]| {
            let metadata = facts.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            ending(&Failure { message: message.to_owned(), metadata, reason: "R".to_owned(), ..Default::default() })
        };
        assert_eq!(failed("Das Programm endete.", &[("exit_code", "101")]), "exit 101");
        let hint = [("exit_code", "127"), ("hint", "a program that it tried to run was not found")];
        assert_eq!(failed("", &hint), "exit 127: a program that it tried to run was not found");
        assert_eq!(failed("`sh` exited with code 3.", &[]), "`sh` exited with code 3");
        assert_eq!(failed("", &[]), "R");
    }

    #[test]
    fn a_failure_says_what_led_to_it_and_when_a_retry_can_succeed() {
        let cause = |message: &str, cause| Failure {
            message: message.to_owned(),
            reason: "R".to_owned(),
            cause,
            ..Default::default()
        };
        let failure = Failure {
            quota: Some(QuotaState {
                name: "requests per minute".to_owned(),
                limit: 60,
                remaining: 0,
                reset_time: Some(Timestamp { seconds: 90, nanos: 0 }),
            }),
            retry_after: Some(pbjson_types::Duration { seconds: 30, nanos: 0 }),
            cause: Some(Box::new(cause("one", Some(Box::new(cause("two", None)))))),
            ..Default::default()
        };
        let expected = [
            "quota requests per minute: 0 of 60 left, full again at 1970-01-01 00:01:30Z",
            "a retry can succeed after 30s",
            "caused by: one (R)",
            "caused by: two (R)",
        ];
        assert_eq!(details(&failure), expected);
        assert_eq!(details(&Failure::default()), [""; 0]);
    }

    #[test]
    fn a_failure_without_a_reason_shows_its_class() {
        let crash =
            Failure { error_class: ErrorClass::Crash.into(), message: "killed".to_owned(), ..Default::default() };
        assert_eq!(failure(&crash), "killed (CRASH)");
        let reason = Failure { reason: "TOOL_NOT_FOUND".to_owned(), ..Default::default() };
        assert_eq!(failure(&reason), "TOOL_NOT_FOUND");
    }

    #[test]
    fn an_effect_is_its_counts() {
        let effect_of =
            |created, modified, deleted| effect(&EffectSummary { created, modified, deleted, ..Default::default() });
        assert_eq!(effect_of(2, 1, 0), "2 created, 1 modified");
        assert_eq!(effect_of(0, 0, 1), "1 deleted");
        assert_eq!(effect_of(0, 0, 0), "no file");
        let would =
            |created, modified, deleted| would(&EffectSummary { created, modified, deleted, ..Default::default() });
        assert_eq!(
            [would(2, 0, 0), would(0, 1, 0), would(0, 0, 1)],
            ["create 2 files", "modify 1 file", "delete 1 file"]
        );
        assert_eq!([would(1, 0, 1), would(0, 0, 0)], ["change 2 files (1 created, 1 deleted)", "change no file"]);
    }

    #[test]
    fn a_decision_names_its_rule_and_reason() {
        let asked = PolicyDecision {
            rule: "file_delete".to_owned(),
            reason: "Deleting asks.".to_owned(),
            ..Default::default()
        };
        assert_eq!(decision(&asked), "Deleting asks. (rule file_delete)");
        assert_eq!(decision(&PolicyDecision::default()), "the policy asks");
    }

    // S1-34: the status reads "retrying (X/3)", where X counts retries.
    #[test]
    fn retries_are_counted_without_the_first_attempt() {
        let step = Step { max_attempts: 4, ..Default::default() };
        assert_eq!(retries(Some(&step), 2), "2/3");
        assert_eq!(retries(None, 2), "2");
    }
}
