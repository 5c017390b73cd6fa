//! Reads the settings that other planners write next to a plan.

use std::time::Duration;

use crate::{
    Backoff, PlanDraft, RetryPolicy, StepDraft, StepKindDraft,
    limits::{MAX_ATTEMPTS, MAX_DURATION, MAX_IMPLIED_PARALLELISM, MAX_TURNS},
    path::shown,
};

use super::{
    super::{
        fields::{Fields, Report},
        tree::Kind,
    },
    Reader, Value, read_audit_level, read_names,
    values::milliseconds,
};

/// The time limit of a step in burst mode, whose work is many short steps at once, where neither it nor the settings have one.
const BURST_STEP_TIMEOUT: Duration = Duration::from_secs(30);

impl<'n> Reader<'n> {
    /// The settings next to a plan. `given` tells which of them the plan itself has.
    pub(super) fn config(&mut self, config: &mut Fields<'n>, draft: &mut PlanDraft, given: [bool; 5]) {
        let [timeout_given, stop_on_error_given, parallelism_given, audit_level_given, allowed_commands_given] = given;
        let report = &mut self.report;
        let once = |value: &Value<'n>, given: bool, name: &str, report: &mut Report| {
            if given {
                value.refuse(report, || format!("duplicates the plan's `{name}`: give only one of them"));
            }
        };
        if let Some(value) = config.take_exactly("timeout") {
            once(&value, timeout_given, "timeout", report);
            draft.timeout = milliseconds(&value, report).or(draft.timeout);
        }
        if let Some(value) = config.take_exactly("stopOnError") {
            once(&value, stop_on_error_given, "stop_on_error", report);
            draft.stop_on_error = value.flag(report);
        }
        let is_burst = config.take_exactly("mode").is_some_and(|value| match value.text(report).as_str() {
            "burst" => true,
            "normal" => false,
            other => {
                let other = shown(other);
                value.refuse(report, || format!("is `{other}`; it must be one of: normal, burst"));
                false
            }
        });
        let all = u32::try_from(draft.steps.len()).unwrap_or(u32::MAX).clamp(1, MAX_IMPLIED_PARALLELISM);
        match config.take_exactly("parallel") {
            Some(value) => {
                once(&value, parallelism_given, "parallelism", report);
                draft.parallelism = if value.flag(report) { all } else { 1 };
            }
            None if is_burst && !parallelism_given => draft.parallelism = all,
            None => {}
        }
        if let Some(value) = config.take_exactly("dryRun") {
            draft.dry_run = value.flag(report);
        }
        if let Some(value) = config.take_exactly("auditLevel") {
            once(&value, audit_level_given, "audit_level", report);
            draft.audit_level = read_audit_level(&value, report);
        }
        if let Some(value) = config.take_exactly("allowed_commands") {
            once(&value, allowed_commands_given, "allowed_commands", report);
            draft.allowed_commands = Some(read_names(&value, report));
        }
        self.executor_config(config, &mut draft.steps, is_burst.then_some(BURST_STEP_TIMEOUT));
    }

    /// The settings that another planner has for its executor, in that planner's units: what they say of steps holds for those that say nothing of it
    /// themselves.
    fn executor_config(&mut self, config: &mut Fields<'n>, steps: &mut [StepDraft], step_timeout: Option<Duration>) {
        let report = &mut self.report;
        let retry_count = config.take_exactly("retry_count").map(|value| {
            let most = MAX_ATTEMPTS - 1;
            let count = value.whole(report, 0..=most)?;
            if count > most {
                value.refuse(report, || format!("must be at most {most}, not {count}"));
                return None;
            }
            Some(count)
        });
        let base = config.take_exactly("retry_backoff_base_ms").map(|value| milliseconds(&value, report));
        let timeout = config.take_exactly("step_timeout_seconds").and_then(|value| {
            let most = u32::try_from(MAX_DURATION.as_secs()).unwrap_or(u32::MAX);
            let seconds = value.whole(report, 1..=most)?;
            if !(1..=most).contains(&seconds) {
                value.refuse(report, || format!("must be 1 to {most} seconds, which are 365 days"));
                return None;
            }
            Some(Duration::from_secs(seconds.into()))
        });
        if let Some(value) = config.take_exactly("workspace_only")
            && !value.flag(report)
            && matches!(value.node.kind, Kind::Bool(_))
        {
            value.refuse(report, || "must be true: the tools of a plan are confined to its workspace".to_owned());
        }
        // Its text is read before the steps are.
        if let Some(value) = config.take_exactly("model") {
            value.text(report);
        }
        let [max_turns, prompt_percent] =
            [("max_turns_per_step", MAX_TURNS), ("token_budget_percent", 100)].map(|(name, most)| {
                let value = config.take_exactly(name)?;
                let number = value.whole(report, 1..=most)?;
                if !(1..=most).contains(&number) {
                    value.refuse(report, || format!("must be 1 to {most}, not {number}"));
                }
                Some(number)
            });
        let retry = match (retry_count, base) {
            (None, None) => None,
            (count, base) => {
                // Of these two the other has its default: 3 retries, the first after a second.
                let (count, base) = (count.unwrap_or(Some(3)), base.unwrap_or(Some(Duration::from_secs(1))));
                count.zip(base).map(|(count, base)| doubling(count, base))
            }
        };
        for step in steps.iter_mut() {
            let StepKindDraft::Agent { agent, .. } = &mut step.kind else { continue };
            if agent.max_turns == 0 {
                agent.max_turns = max_turns.unwrap_or_default();
            }
            if agent.prompt_percent == 0 {
                agent.prompt_percent = prompt_percent.unwrap_or_default();
            }
        }
        for step in steps.iter_mut().filter(|step| step.kind.retried_as().is_some()) {
            step.timeout = step.timeout.or(timeout).or(step_timeout);
            step.retry = step.retry.take().or_else(|| retry.clone());
        }
    }
}

/// So many retries after a delay that doubles each time, at most the longest that there is.
fn doubling(retries: u32, base: Duration) -> RetryPolicy {
    let delays = (0..retries).map(|n| base.saturating_mul(1_u32.checked_shl(n).unwrap_or(u32::MAX)).min(MAX_DURATION));
    RetryPolicy { max_attempts: retries + 1, backoff: Backoff::List(delays.collect()), ..RetryPolicy::default() }
}
