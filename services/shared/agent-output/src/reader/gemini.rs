//! The lines of `gemini -o stream-json`, as of 0.61.

use serde_json::Value;

use super::{
    fields::{error, failed, number, text},
    words::{show, show_call, show_words},
};
use crate::{End, Report};

pub(super) fn read(event: &Value, report: &mut Report, shown: &mut String) {
    match text(event, "/type") {
        "init" => {
            text(event, "/session_id").clone_into(&mut report.session);
            text(event, "/model").clone_into(&mut report.model);
            report.end = None;
        }
        "message" if text(event, "/role") == "assistant" => {
            let words = text(event, "/content");
            show_words(shown, words);
            if event["delta"] == true { report.add(words) } else { report.say(words) }
        }
        "tool_use" => {
            // What it says next is another message.
            report.say("");
            show_call(shown, text(event, "/tool_name"), &event["parameters"]);
        }
        "error" => {
            let message = text(event, "/message");
            show(shown, message);
            report.err(error(message, None, None));
        }
        "result" => {
            report.usage.input_tokens = number(event, "/stats/input_tokens");
            report.usage.cached_tokens = number(event, "/stats/cached");
            report.usage.output_tokens = number(event, "/stats/output_tokens");
            report.end = Some(if text(event, "/status") == "success" {
                End::Success
            } else {
                let message = text(event, "/error/message");
                show(shown, &format!("failed: {message}"));
                failed(message, None, None)
            });
        }
        _ => {}
    }
}
