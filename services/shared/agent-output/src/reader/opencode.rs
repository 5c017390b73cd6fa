//! The lines of `opencode run --format json`, as of 1.18.

use std::time::Duration;

use serde_json::Value;

use super::{
    fields::{failed, number, status_of, text},
    words::{show, show_call, show_words},
};
use crate::{End, Report};

pub(super) fn read(event: &Value, report: &mut Report, shown: &mut String) {
    text(event, "/sessionID").clone_into(&mut report.session);
    match text(event, "/type") {
        "step_start" => {
            report.say("");
            report.end = None;
        }
        "text" => {
            show_words(shown, text(event, "/part/text"));
            report.add(text(event, "/part/text"));
        }
        "tool_use" => show_call(shown, text(event, "/part/tool"), &event["part"]["state"]["input"]),
        "step_finish" => {
            let cached = number(event, "/part/tokens/cache/read");
            let input = number(event, "/part/tokens/input") + cached + number(event, "/part/tokens/cache/write");
            report.usage.input_tokens += input;
            report.usage.cached_tokens += cached;
            report.usage.output_tokens += number(event, "/part/tokens/output");
            report.end = match text(event, "/part/reason") {
                "tool-calls" => None,
                "stop" => Some(End::Success),
                reason => Some(failed(&format!("its model stopped: {reason}"), None, None)),
            };
        }
        "error" => {
            let data = &event["error"]["data"];
            let message = match text(data, "/message") {
                "" => text(event, "/error/name"),
                message => message,
            };
            show(shown, &format!("failed: {message}"));
            let seconds = text(data, "/responseHeaders/retry-after").parse().ok().map(Duration::from_secs);
            report.end = Some(failed(message, status_of(data, "/statusCode"), seconds));
        }
        _ => {}
    }
}
