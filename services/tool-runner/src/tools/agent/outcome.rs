//! The result of an agent's run, or its failure. Pure.

use std::time::Duration;

use belay_agent_output::{AgentFailure, Class, End, LastLines, Patterns, Report, Usage, judge};
use belay_proto::{
    facts,
    v1::{ErrorClass, QuotaState},
};
use belay_proxy::ModelUse;
use belay_reasons as reasons;
use belay_sandbox::Status;
use belay_settings::ExternalAgent;
use serde_json::{Value, json};

use crate::{
    RateLimit, ToolFailure, ToolResult,
    tools::run_terminal::{self, CommandResult, Ran, RunConditions},
};

/// The longest reason of an agent that has failed, in characters: it is kept in events.
const MAX_WHY: usize = 4_000;

/// The longest wait before another attempt: a quota of a month and its days of grace.
const MAX_WAIT: Duration = Duration::from_secs(35 * 86_400);

/// The first second that is no time any more: that of the year 10,000.
const END_OF_TIME: u64 = 253_402_300_800;

/// An agent that has ended.
pub(super) struct Ended {
    pub(super) ran: Ran,
    pub(super) report: Report,
    /// The last lines that are no events.
    pub(super) lines: LastLines,
    /// The words that people were shown.
    pub(super) shown: String,
    /// Whether it was ended because it went on after its final event.
    pub(super) was_over: bool,
}

/// Judges an agent that has ended at `now`, in microseconds since 1970.
pub(super) fn of(agent: &ExternalAgent, ended: Ended, now: i64) -> ToolResult {
    let Ended { ran, report, lines, shown, was_over } = ended;
    let Ran { program, limit, has_network, result, .. } = ran;
    let CommandResult { outcome, output, outputs, loopback, refusal, models } = result;
    let exit_code = match outcome.status {
        Status::Exited(code) => Some(code),
        Status::Killed if was_over => None,
        // A limit, a signal or a cancellation says more than what it has reported.
        _ => {
            let conditions = RunConditions { check: true, limit, loopback, has_network, refusal };
            return run_terminal::judge(&program, outcome, (&output, &outputs), &conditions);
        }
    };
    if let (Some(limit), true) = (agent.max_tokens, models.refused > 0)
        && report.end != Some(End::Success)
    {
        return Err(over_budget(agent, limit, models.tokens.total()));
    }
    let said = LastLines::from(run_terminal::text(&output.stderr).as_str());
    let patterns = Patterns::of_agents().and(&agent.patterns);
    if let Err(failure) = judge(agent.format, exit_code, &report, [&lines, &said], &patterns) {
        return Err(failed(agent, &report, failure, exit_code, refusal, now));
    }
    let Report { text, is_cut, session, model, usage, .. } = report;
    let mut result = json!({"text": text, "exit_code": exit_code, "stdout": shown});
    if is_cut {
        result["text_truncated"] = true.into();
    }
    for (key, value) in [("model", model), ("session", session)] {
        if !value.is_empty() {
            result[key] = value.into();
        }
    }
    if let Some(usage) = shown_usage(usage, models) {
        result["usage"] = usage;
    }
    let outputs = run_terminal::outputs_of(&program, &outputs)?;
    if !outputs.is_empty() {
        result["outputs"] = outputs.into();
    }
    Ok(result)
}

/// What was used: as the proxy has counted it, where it has seen answers of models, and else as the agent says. `None` where nothing is known.
fn shown_usage(reported: Usage, models: ModelUse) -> Option<Value> {
    let is_measured = models.answers > 0;
    if !is_measured && reported == Usage::default() {
        return None;
    }
    let Usage { input_tokens, cached_tokens, output_tokens, cost_micros } = reported;
    let (input, cached, output) = match is_measured {
        true => (models.tokens.input, models.tokens.cached, models.tokens.output),
        false => (input_tokens, cached_tokens, output_tokens),
    };
    let mut usage =
        json!({"input_tokens": input, "cached_tokens": cached, "output_tokens": output, "measured": is_measured});
    if let Some(micros) = cost_micros {
        #[expect(clippy::cast_precision_loss, reason = "a price of more than nine billion dollars is none")]
        let dollars = micros as f64 / 1e6;
        usage["cost_usd"] = dollars.into();
    }
    Some(usage)
}

/// The failure of an agent whose model was not asked any more.
fn over_budget(agent: &ExternalAgent, limit: u64, used: u64) -> ToolFailure {
    let name = &agent.name;
    let message = format!(
        "The agent `{name}` has used {used} tokens, and may use {limit} in one run (`agents.{name}.max_tokens`): its next request was refused."
    );
    ToolFailure::new(ErrorClass::BudgetExhausted, reasons::AGENT_TOKENS, message)
        .with(facts::LIMIT, limit)
        .with(facts::FOUND, used)
        .with(facts::UNIT, "tokens")
        .with(facts::SETTING, format!("agents.{name}.max_tokens"))
}

fn failed(
    agent: &ExternalAgent,
    report: &Report,
    failure: AgentFailure,
    exit_code: Option<i32>,
    refusal: Option<String>,
    now: i64,
) -> ToolFailure {
    let AgentFailure { class, by, message, status, retry_after } = failure;
    let class = match class {
        Class::Crash => ErrorClass::Crash,
        Class::RateLimit => ErrorClass::RateLimit,
        Class::Fatal => ErrorClass::Fatal,
        Class::AgentUnavailable => ErrorClass::AgentUnavailable,
        Class::Transient => ErrorClass::Transient,
    };
    let end = message.char_indices().nth(MAX_WHY).map_or(message.len(), |(end, _)| end);
    let more = if end < message.len() { " …" } else { "" };
    let hint = refusal.map(|refusal| format!(" It {refusal}.")).unwrap_or_default();
    let why = message[..end].trim_end_matches('.');
    let message = format!("The agent `{}` {why}{more}.{hint}", agent.name);
    let mut failure = ToolFailure::new(class, reasons::AGENT_FAILED, message).with(facts::CLASSIFIED_BY, by.word());
    if let Some(code) = exit_code {
        failure = failure.with(facts::EXIT_CODE, code);
    }
    if let Some(status) = status {
        failure = failure.with(facts::HTTP_STATUS, status);
    }
    if class == ErrorClass::RateLimit {
        // An agent can write any number.
        let until = report.resets_at.filter(|seconds| *seconds < END_OF_TIME);
        let until = until.and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1_000_000));
        let wait_until = |until: i64| {
            until.checked_sub(now).and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros)
        };
        // The end of a quota says more than the pause that the agent has last made.
        let wait = until.and_then(wait_until).or(retry_after);
        failure.rate_limit = Some(Box::new(RateLimit {
            retry_after: wait.map(|wait| wait.min(MAX_WAIT)),
            quota: QuotaState {
                name: format!("the model of {}", agent.name),
                limit: 0,
                remaining: 0,
                reset_time: until.map(belay_proto::timestamp),
            },
        }));
    }
    failure
}
