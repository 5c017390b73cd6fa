//! Reads until when a step runs again.

use super::{
    super::{fields::Value, tree::Kind},
    Reader,
};
use crate::{RepeatDraft, limits::MAX_ROUNDS};

impl<'n> Reader<'n> {
    /// The rounds of a step; `None` when they could not be read, which has been refused then.
    pub(super) fn repeat(&mut self, repeat: &Value<'n>) -> Option<RepeatDraft> {
        if matches!(repeat.node.kind, Kind::Null) {
            return None;
        }
        let before = self.report.findings.len();
        let mut fields = repeat.fields(&mut self.report, "an object such as {until: '${ID.result.done}', max: 10}")?;
        let until = fields.take_exactly("until").map(|until| match until.node.kind {
            Kind::Bool(constant) => constant.to_string(),
            _ => until.text(&mut self.report),
        });
        let max = fields.take_exactly("max").and_then(|max| max.whole(&mut self.report, 1..=MAX_ROUNDS));
        let delay = fields.take_exactly("delay").and_then(|delay| self.duration(&delay));
        fields.finish(&mut self.report);
        let is_read = self.report.findings.len() == before;
        is_read.then(|| RepeatDraft { until: until.unwrap_or_default(), max: max.unwrap_or_default(), delay })
    }
}
