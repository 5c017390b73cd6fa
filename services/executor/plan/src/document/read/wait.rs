//! Reads what a step waits for: a time, a signal, or the answer to a form.

use std::time::Duration;

use serde_json::Value as Json;

use super::{
    super::{fields::Value, tree::Kind},
    Reader,
    values::about,
};
use crate::{FormDraft, WaitDraft, timestamp};

impl<'n> Reader<'n> {
    pub(super) fn wait(&mut self, wait: &Value<'n>) -> WaitDraft {
        let what = "an object: {for: 10m}, {until: 2026-12-01T09:00:00Z}, {signal: NAME} or {form: {schema: …}}";
        // What cannot be read is refused once: these stand for it, so that the check does not call it missing.
        let (unread, unread_duration) = (Some(0), Duration::from_secs(1));
        let Some(mut fields) = wait.fields(&mut self.report, what) else {
            return WaitDraft { until: unread, ..WaitDraft::default() };
        };
        let duration = fields.take_exactly("for").map(|value| self.duration(&value).unwrap_or(unread_duration));
        let until = fields.take_exactly("until").and_then(|value| {
            let time = match &value.node.kind {
                Kind::Text(text) => timestamp::parse(text).map_err(|why| about(text, &why)),
                _ => Err(format!("must be a point in time, in quotes: {}", timestamp::SHAPE)),
            };
            time.map_err(|message| value.refuse(&mut self.report, || message)).ok().or(unread)
        });
        let signal = fields.take_exactly("signal").map_or_else(String::new, |value| {
            let signal = value.text(&mut self.report);
            if signal.is_empty() && matches!(value.node.kind, Kind::Text(_)) {
                value.refuse(&mut self.report, || "is empty: name the signal that the step waits for".to_owned());
            }
            if signal.is_empty() { "unread".to_owned() } else { signal }
        });
        let form = fields.take_exactly("form").map(|form| self.form(&form));
        fields.finish(&mut self.report);
        WaitDraft { duration, until, signal, form }
    }

    fn form(&mut self, form: &Value<'n>) -> FormDraft {
        // What cannot be read is refused once: this stands for it, so that the check does not call it missing.
        let unread = || Json::Object(serde_json::Map::new());
        let Some(mut fields) = form.fields(&mut self.report, "an object with `title`, `description` and `schema`")
        else {
            return FormDraft { schema: unread(), ..FormDraft::default() };
        };
        let title = self.optional_text(&mut fields, "title");
        let description = self.optional_text(&mut fields, "description");
        let schema = fields.take_exactly("schema").map(|schema| {
            self.refuse_imprecise(&schema.path, schema.node);
            schema.node.to_value()
        });
        fields.finish(&mut self.report);
        FormDraft { title, description, schema: schema.unwrap_or(Json::Null) }
    }
}
