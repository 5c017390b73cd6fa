//! Reads a goal that a model works towards.

use super::{
    super::{
        fields::{Fields, Value},
        tree::Kind,
    },
    Reader,
};
use crate::{AgentDraft, limits::MAX_TURNS};

impl<'n> Reader<'n> {
    pub(super) fn agent(&mut self, agent: &Value<'n>) -> AgentDraft {
        // What cannot be read is refused once: these stand for it, so that the check does not call it missing.
        let unread = || "unread".to_owned();
        let what = "an object such as {model: NAME, task: …, tools: [NAME]}";
        let Some(mut fields) = agent.fields(&mut self.report, what) else {
            return AgentDraft { model: unread(), task: unread(), ..AgentDraft::default() };
        };
        let model = self.optional_text(&mut fields, "model");
        let task = self.text_of_task(&mut fields);
        let tools = self.texts(&mut fields, "tools", "names of tools");
        let files = self.texts(&mut fields, "files", "paths of files");
        let max_turns = fields.take_exactly("max_turns").and_then(|value| {
            let turns = value.whole(&mut self.report, 1..=MAX_TURNS)?;
            if turns == 0 {
                value.refuse(&mut self.report, || format!("must be 1 to {MAX_TURNS}; remove it for the default"));
            }
            Some(turns)
        });
        let fallback = self.texts(&mut fields, "fallback", "names of models");
        let prompt_percent = fields.take_exactly("prompt_percent").and_then(|value| {
            let percent = value.whole(&mut self.report, 1..=100)?;
            if percent == 0 {
                value.refuse(&mut self.report, || "must be 1 to 100; remove it to use the whole window".to_owned());
            }
            Some(percent)
        });
        fields.finish(&mut self.report);
        AgentDraft {
            model,
            task,
            tools,
            files,
            max_turns: max_turns.unwrap_or_default(),
            fallback,
            prompt_percent: prompt_percent.unwrap_or_default(),
        }
    }

    /// The task, which a client has put in place where it stands in a file.
    fn text_of_task(&mut self, fields: &mut Fields<'n>) -> String {
        let Some(value) = fields.take_exactly("task") else { return String::new() };
        if matches!(value.node.kind, Kind::Map(_)) {
            value.refuse(&mut self.report, || {
                "must be a text; `{file: NAME}`, with a name and no other field, is one that the `belay` command reads from that file, and a service does not"
                    .to_owned()
            });
            return "unread".to_owned();
        }
        value.text(&mut self.report)
    }
}
