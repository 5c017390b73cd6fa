//! The lines of `claude -p --output-format stream-json`, as of 2.1.

use std::time::Duration;

use serde_json::Value;

use super::{
    fields::{error, failed, name, number, status_of, sum, text},
    words::{show, show_call, show_words},
};
use crate::{End, Report};

/// The types of the events that say something.
pub(super) const KINDS: &[&str] = &["system", "assistant", "rate_limit_event", "result"];

pub(super) fn read(event: &Value, report: &mut Report, shown: &mut String) {
    match (text(event, "/type"), text(event, "/subtype")) {
        ("system", "init") => {
            report.session = name(event, "/session_id");
            report.model = name(event, "/model");
            report.end = None;
        }
        ("system", "api_retry") => {
            let wait = Duration::from_millis(number(event, "/retry_delay_ms"));
            let (kind, status) = (text(event, "/error"), status_of(event, "/error_status"));
            let of_status = status.map(|status| format!(" (status {status})")).unwrap_or_default();
            show(shown, &format!("waits {:.1} s for its model: {kind}{of_status}", wait.as_secs_f64()));
            report.last_wait = Some(wait);
            report.error = Some(error(kind, status, Some(wait)));
        }
        ("assistant", _) => {
            // What the program writes in the place of an answer is none of its model.
            if text(event, "/message/model") != "<synthetic>" {
                report.progress();
            }
            for block in event.pointer("/message/content").and_then(Value::as_array).into_iter().flatten() {
                match text(block, "/type") {
                    "text" => {
                        show_words(shown, text(block, "/text"));
                        report.say(text(block, "/text"));
                    }
                    "tool_use" => show_call(shown, text(block, "/name"), &block["input"]),
                    _ => {}
                }
            }
        }
        ("rate_limit_event", _) => {
            let info = &event["rate_limit_info"];
            if text(info, "/status") == "rejected" {
                report.resets_at = info["resetsAt"].as_u64();
                show(shown, "its quota is used up");
            }
        }
        ("result", subtype) => end(event, subtype, report, shown),
        _ => {}
    }
}

/// The final event. `subtype` says `success` also where `is_error` is set.
fn end(event: &Value, subtype: &str, report: &mut Report, shown: &mut String) {
    let usage = |key: &str| number(event, &format!("/usage/{key}"));
    let cached = usage("cache_read_input_tokens");
    report.usage.input_tokens = sum(&[usage("input_tokens"), cached, usage("cache_creation_input_tokens")]);
    report.usage.cached_tokens = cached;
    report.usage.output_tokens = usage("output_tokens");
    report.usage.cost_micros = event["total_cost_usd"].as_f64().map(micros);
    let words = text(event, "/result");
    let is_success = event["is_error"] == false && subtype == "success";
    let end = if is_success {
        report.say(words);
        End::Success
    } else {
        let message = if words.is_empty() { subtype } else { words };
        show(shown, &format!("failed: {message}"));
        failed(message, status_of(event, "/api_error_status"), report.last_wait)
    };
    report.finish(end);
}

/// Dollars in millionths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and a negative price is none"
)]
fn micros(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}
