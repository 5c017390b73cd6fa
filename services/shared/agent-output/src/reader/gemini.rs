//! The lines of `gemini -o stream-json`, as of 0.61.

use serde_json::Value;

use super::{
    fields::{error, failed, name, number, text},
    words::{show, show_call, show_words},
};
use crate::{End, Report};

/// The types of the events that say something.
pub(super) const KINDS: &[&str] = &["init", "message", "tool_use", "error", "result"];

pub(super) fn read(event: &Value, report: &mut Report, shown: &mut String) {
    match text(event, "/type") {
        "init" => {
            report.session = name(event, "/session_id");
            report.model = name(event, "/model");
            report.end = None;
        }
        "message" if text(event, "/role") == "assistant" => {
            let words = text(event, "/content");
            report.progress();
            if event["delta"] == true {
                // A part of a line.
                shown.push_str(words);
                report.add(words);
            } else {
                show_words(shown, words);
                report.say(words);
            }
        }
        "tool_use" => {
            report.progress();
            // What it says next is another message.
            report.say("");
            show_call(shown, text(event, "/tool_name"), &event["parameters"]);
        }
        "error" => {
            let message = text(event, "/message");
            show(shown, message);
            report.error = Some(error(message, None, None));
        }
        "result" => {
            report.usage.input_tokens = number(event, "/stats/input_tokens");
            report.usage.cached_tokens = number(event, "/stats/cached");
            report.usage.output_tokens = number(event, "/stats/output_tokens");
            let end = if text(event, "/status") == "success" {
                End::Success
            } else {
                let message = text(event, "/error/message");
                show(shown, &format!("failed: {message}"));
                failed(message, None, None)
            };
            report.finish(end);
        }
        _ => {}
    }
}
