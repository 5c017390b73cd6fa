//! The lines of `codex exec --json`, as of 0.169.

use serde_json::Value;

use super::{
    fields::{error, failed, name, number, sum, text},
    words::{show, show_call, show_words},
};
use crate::{End, Report};

/// The types of the events that say something.
pub(super) const KINDS: &[&str] =
    &["thread.started", "turn.started", "item.started", "item.completed", "turn.completed", "turn.failed", "error"];

pub(super) fn read(event: &Value, report: &mut Report, shown: &mut String) {
    match text(event, "/type") {
        "thread.started" => report.session = name(event, "/thread_id"),
        "turn.started" => report.end = None,
        "item.started" if text(event, "/item/type") == "command_execution" => {
            report.progress();
            show_call(shown, "shell", &event["item"]["command"]);
        }
        "item.started" if text(event, "/item/type") == "mcp_tool_call" => {
            report.progress();
            show_call(shown, text(event, "/item/tool"), &event["item"]["arguments"]);
        }
        "item.completed" => item(&event["item"], report, shown),
        "turn.completed" => {
            report.usage.input_tokens = sum(&[report.usage.input_tokens, number(event, "/usage/input_tokens")]);
            report.usage.cached_tokens =
                sum(&[report.usage.cached_tokens, number(event, "/usage/cached_input_tokens")]);
            report.usage.output_tokens = sum(&[report.usage.output_tokens, number(event, "/usage/output_tokens")]);
            report.finish(End::Success);
        }
        "turn.failed" => {
            let message = text(event, "/error/message");
            show(shown, &format!("failed: {message}"));
            report.finish(failed(message, None, report.last_wait));
        }
        "error" => {
            let message = text(event, "/message");
            show(shown, message);
            report.error = Some(error(message, None, None));
        }
        _ => {}
    }
}

fn item(item: &Value, report: &mut Report, shown: &mut String) {
    match text(item, "/type") {
        "agent_message" => {
            report.progress();
            let words = text(item, "/text");
            show_words(shown, words);
            report.say(words);
        }
        "command_execution" => {
            if let Some(code) = item["exit_code"].as_i64().filter(|code| *code != 0) {
                show(shown, &format!("[shell] exited with code {code}"));
            }
        }
        "file_change" => {
            let paths: Vec<&str> =
                item["changes"].as_array().into_iter().flatten().map(|change| text(change, "/path")).collect();
            show(shown, &format!("[edit] {}", paths.join(" ")));
        }
        // A warning: it goes on.
        "error" => show(shown, text(item, "/message")),
        _ => {}
    }
}
