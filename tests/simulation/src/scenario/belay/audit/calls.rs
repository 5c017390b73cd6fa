//! The calls of an execution: their runs, arguments, results and failures.

use belay_proto::v1::{self, execution_event::Kind, step};
use serde_json::Value;

use super::super::calls::{Call, json};
use super::super::outside::Run;
use super::super::picture::Fold;
use super::super::{inputs, plans, tools};
use super::evidence::SKEW;
use super::execution::ExecutionAudit;
use crate::trace;

impl<'a> ExecutionAudit<'a, '_> {
    /// Invariants 2 and 12, and what the tool did for this call.
    pub(super) fn call(&mut self, name: &str, call: &Call<'a>, fold: &Fold) {
        let [end] = call.ends[..] else {
            return self.violation(format_args!("{name} ended {} times", call.ends.len()));
        };
        // In true time: the events have the executor's time, whose clock may have been wrong.
        let ended = self.owners.stored_at(self.name, end.sequence);
        let all: &'a [Run] = self.runs;
        let runs: Vec<(usize, &Run)> = all.iter().enumerate().filter(|(_, run)| run.call == name).collect();
        // S2-FR-057, S2-NFR-007, B-01: an outcome that is stored is never made again.
        for (number, run) in &runs {
            if ended.is_some_and(|ended| run.began > ended + SKEW) {
                self.violation(format_args!(
                    "run {number} of {name} began after the call's end was stored: executed again"
                ));
            }
            if run.arguments != call.json(call.request.arguments.as_ref()) {
                self.violation(format_args!("run {number} of {name} had other arguments than its intent"));
            }
        }
        // What was made to run again since has other results.
        let attempt = name.rsplit_once('/').and_then(|(_, call)| call.split('.').next()?.parse::<i32>().ok());
        let is_superseded = attempt.is_some_and(|attempt| attempt <= fold.attempts_before[call.step])
            || self.is_left_over(&fold.picture.steps[call.step].step_id);
        if !is_superseded {
            self.arguments(name, call, fold);
        }
        let is_manual = tools::reaches_out(&call.request.tool);
        if is_manual && runs.len() > 1 {
            let how = call.twice();
            self.violation(format_args!("{name} was executed again: its body ran {} times{how}", runs.len()));
        }
        let successes: Vec<usize> =
            runs.iter().filter(|(_, run)| run.succeeded == Some(true)).map(|(number, _)| *number).collect();
        match &end.kind {
            // What it commits is the step's: see `effects`.
            Some(Kind::ToolCallCompleted(_)) if call.request.tool == plans::COMMIT => {
                trace::count("calls committed as one");
            }
            // It is no run of a simulated tool either.
            Some(Kind::ToolCallCompleted(_)) if call.request.tool == plans::REBASE => {
                trace::count("changes dropped after a conflict");
            }
            Some(Kind::ToolCallCompleted(completed)) => {
                let result = call.json(completed.result.as_ref());
                let from = result["run"].as_u64().and_then(|run| usize::try_from(run).ok());
                // S2-NFR-006: the result is the one that the tool returned for these arguments.
                if !from.is_some_and(|run| successes.contains(&run)) {
                    self.violation(format_args!(
                        "{name} completed with the result of run {from:?}, and not of {successes:?}"
                    ));
                }
                if result["value"] != call.json(call.request.arguments.as_ref())["value"] {
                    self.violation(format_args!("{name} completed with another call's result"));
                }
                if !is_superseded && call.request.check.is_none() {
                    self.output(name, call, completed, fold);
                }
            }
            Some(Kind::ToolCallCancelled(_)) if is_manual && !runs.is_empty() => {
                self.violation(format_args!("{name} was discarded as if it had not run, and its body ran"));
            }
            Some(Kind::ToolCallDenied(_)) if is_manual && !runs.is_empty() => {
                self.violation(format_args!("{name} was denied, and its body ran"));
            }
            Some(Kind::ToolCallOutcomeUnknown(unknown)) => {
                // Only calls with external effects, and calls of a lost ledger, can have an unknown outcome.
                let reason = unknown.failure.as_ref().map_or("", |failure| &*failure.reason);
                if !is_manual && reason != "LEDGER_CHANGED" && !self.damaged.contains(name) {
                    self.violation(format_args!("{name} is said to be in doubt, and it can be made again: {reason}"));
                }
                trace::count("unknown outcomes");
            }
            Some(Kind::ToolCallFailed(failed)) => self.failed(name, failed),
            Some(Kind::ToolCallCancelled(cancelled)) => match &cancelled.failure {
                Some(failure) if failure.reason == "CONFLICT" => trace::count("conflicts"),
                Some(failure) if failure.reason == "FAILED_BESIDE_COMMITS" => {
                    trace::count("calls that run again because others committed beside them");
                }
                Some(failure) if failure.reason == "WORKSPACE_FULL" => trace::count("calls that wait for room"),
                _ => trace::count("calls discarded"),
            },
            Some(Kind::ToolCallDenied(_)) => trace::count("calls denied"),
            _ => {}
        }
    }

    /// A call fails only for its own reasons. It waits for a full disk and for an unavailable service.
    fn failed(&mut self, name: &str, failed: &v1::ToolCallFailed) {
        let Some(failure) = &failed.failure else {
            return self.violation(format_args!("{name} failed without a reason"));
        };
        match &*failure.reason {
            "WORKSPACE_FULL" | "LEDGER_UNAVAILABLE" | "STORE_FULL" => {
                self.violation(format_args!("{name} failed because of a full disk: {failure:?}"));
            }
            "CONFLICT" => trace::count("calls given up after conflicts"),
            _ => {}
        }
    }

    /// A completed call completes its step, once, and its result is the step's output.
    fn output(&mut self, name: &str, call: &Call<'a>, completed: &v1::ToolCallCompleted, fold: &Fold) {
        let step = &fold.picture.steps[call.step];
        // What has to hold after it does not, or the execution was stopped or the step's time was over before that was known; or the call that a check after
        // it takes was denied or skipped, or there is no budget left for it.
        let is_checked = !fold.plan.steps[call.step].postconditions.is_empty();
        let has_not_held = step.failure.as_ref().is_some_and(|failure| {
            use v1::ErrorClass::{ApprovalDenied, BudgetExhausted, PolicyDenied};
            matches!(&*failure.reason, "POSTCONDITION_FAILED" | "STEP_TIMEOUT")
                || matches!(failure.error_class(), ApprovalDenied | BudgetExhausted | PolicyDenied)
        });
        let fits = match step.state() {
            step::State::Completed => true,
            step::State::Failed => is_checked && has_not_held,
            state => is_checked && matches!(state, step::State::Cancelled | step::State::Skipped),
        };
        if !fits || step.output != completed.result {
            self.violation(format_args!("step {} is not what its completed call made it", step.step_id));
        }
        // S2-FR-058: however many attempts, calls and crashes it took, the effect is there once.
        let calls_of_step = name.rsplit_once('/').map_or(name, |(calls, _)| calls);
        let before = fold.attempts_before[call.step];
        let effects = self.runs.iter().filter(|run| {
            let Some((calls, number)) = run.call.rsplit_once('/') else { return false };
            let attempt = number.split('.').next().and_then(|attempt| attempt.parse::<i32>().ok());
            let is_one = run.succeeded == Some(true) && tools::reaches_out(run.tool);
            is_one && calls == calls_of_step && attempt.is_some_and(|attempt| attempt > before)
        });
        let effects = effects.count();
        let is_again = self.is_made_again(&step.step_id);
        if tools::reaches_out(&call.request.tool) && effects != 1 && !(is_again && effects > 1) {
            self.violation(format_args!("{calls_of_step} completed, and its effect happened {effects} times"));
        }
    }

    /// A call gets the arguments of its plan, with the results of earlier steps filled in.
    fn arguments(&mut self, name: &str, call: &Call<'a>, fold: &Fold) {
        let Some(tool) = &call.planned else {
            return self.violation(format_args!("{name} is a call that the plan does not have"));
        };
        if tool.tool != call.request.tool {
            self.violation(format_args!("{name} is of {}, and the plan has {}", call.request.tool, tool.tool));
        }
        let arguments = tool.arguments.as_ref().and_then(v1::Payload::as_json).unwrap_or_default();
        let planned: Value = serde_json::from_str(arguments).unwrap_or_default();
        let output_of = |id: &str| {
            let step = fold.picture.steps.iter().find(|step| step.step_id == id)?;
            Some(json(step.output.as_ref(), &self.kept.blobs)["run"].clone())
        };
        if call.request.check.is_some() && call.arguments() != planned {
            self.violation(format_args!("{name} was not given {planned}"));
        }
        if planned["value"] == "${item.value}" {
            if call.json(call.request.arguments.as_ref()).get("value") != call.entry.as_ref() {
                self.violation(format_args!("{name} was not given the entry {:?}", call.entry));
            }
            return;
        }
        let own = json(fold.inputs.as_ref(), &self.kept.blobs);
        let template = planned["value"].as_str().and_then(|text| {
            let (before, rest) = text.split_once("${")?;
            let of_input = rest.split_once('}').and_then(|(template, _)| inputs::resolve(template, &own));
            if of_input.is_some() {
                trace::count("inputs used");
            }
            Some((before, of_input.or_else(|| output_of(rest.split_once('.')?.0))?))
        });
        let expected = match template {
            Some(("", run)) => run,
            Some((before, Value::String(text))) => format!("{before}{text}").into(),
            Some((before, run)) => format!("{before}{run}").into(),
            None => planned["value"].clone(),
        };
        if call.json(call.request.arguments.as_ref())["value"] != expected {
            self.violation(format_args!("{name} was not given {expected}"));
        }
    }
}
