//! The lines of `opencode run --format json`, as of 1.18.

use std::time::Duration;

use serde_json::Value;

use super::{
    fields::{failed, name, number, status_of, sum, text},
    words::{show, show_call, show_words},
};
use crate::{End, Report};

/// The types of the events that say something.
pub(super) const KINDS: &[&str] = &["step_start", "text", "tool_use", "step_finish", "error"];

pub(super) fn read(event: &Value, report: &mut Report, shown: &mut String) {
    report.session = name(event, "/sessionID");
    match text(event, "/type") {
        "step_start" => {
            report.say("");
            report.end = None;
        }
        "text" => {
            report.progress();
            show_words(shown, text(event, "/part/text"));
            report.add(text(event, "/part/text"));
        }
        "tool_use" => {
            report.progress();
            show_call(shown, text(event, "/part/tool"), &event["part"]["state"]["input"]);
        }
        "step_finish" => {
            let cached = number(event, "/part/tokens/cache/read");
            let (input, written) = (number(event, "/part/tokens/input"), number(event, "/part/tokens/cache/write"));
            let usage = &mut report.usage;
            usage.input_tokens = sum(&[usage.input_tokens, input, cached, written]);
            usage.cached_tokens = sum(&[usage.cached_tokens, cached]);
            usage.output_tokens = sum(&[usage.output_tokens, number(event, "/part/tokens/output")]);
            match text(event, "/part/reason") {
                "tool-calls" => report.end = None,
                "stop" => report.finish(End::Success),
                reason => report.finish(failed(&format!("its model stopped: {reason}"), None, None)),
            }
        }
        "error" => {
            let data = &event["error"]["data"];
            let message = match text(data, "/message") {
                "" => text(event, "/error/name"),
                message => message,
            };
            show(shown, &format!("failed: {message}"));
            let seconds = text(data, "/responseHeaders/retry-after").parse().ok().map(Duration::from_secs);
            report.finish(failed(message, status_of(data, "/statusCode"), seconds));
        }
        _ => {}
    }
}
