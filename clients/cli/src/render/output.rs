//! What tools write while they work: pieces of streams, put together to lines.

use std::collections::BTreeMap;

use belay_proto::v1::{ExecutionEvent, ToolCallOutput};

use super::text::{Line, Style};

/// A line without an end is shown when it is longer than this, in bytes.
const LONGEST_LINE: usize = 4_096;
/// What stands for a secret in a piece. Around it lengths and offsets do not agree.
const REDACTED: &str = "[REDACTED]";

/// The streams of all calls that run.
#[derive(Default)]
pub(crate) struct Outputs {
    streams: BTreeMap<(String, i32), Stream>,
}

#[derive(Default)]
struct Stream {
    /// The beginning of a line whose end has not come.
    begun: String,
    /// Where the next piece should begin; `None` where that cannot be told.
    next: Option<i64>,
}

impl Outputs {
    /// The lines that a piece completes, each as `  step │ text`.
    pub(crate) fn take(&mut self, event: &ExecutionEvent, piece: &ToolCallOutput) -> Vec<Line> {
        let stream = self.streams.entry((event.call.clone(), piece.stream)).or_default();
        let mut lines = Vec::new();
        if stream.next.is_some_and(|next| piece.offset > next) {
            lines.extend(stream.finish(&event.step_id));
            lines.push(line(&event.step_id, Style::Dim, "… some output was left out; the result has it"));
        }
        let length = i64::try_from(piece.text.len()).unwrap_or(i64::MAX);
        // A replaced byte is longer than it was, a secret may be shorter.
        let is_literal = !piece.text.contains(['\u{fffd}']) && !piece.text.contains(REDACTED);
        stream.next = is_literal.then(|| piece.offset.saturating_add(length));
        for part in piece.text.split_inclusive('\n') {
            stream.begun.push_str(part);
            if part.ends_with('\n') || stream.begun.len() > LONGEST_LINE {
                lines.extend(stream.finish(&event.step_id));
            }
        }
        lines
    }

    /// What a call had begun to write when it ended.
    pub(crate) fn end(&mut self, event: &ExecutionEvent) -> Vec<Line> {
        let mut lines = Vec::new();
        self.streams.retain(|(call, _), stream| {
            let is_its = *call == event.call;
            if is_its {
                lines.extend(stream.finish(&event.step_id));
            }
            !is_its
        });
        lines
    }
}

impl Stream {
    fn finish(&mut self, step: &str) -> Option<Line> {
        let begun = std::mem::take(&mut self.begun);
        let text = begun.trim_end_matches(['\n', '\r']);
        // A carriage return writes over what stood there, as progress bars do: what is seen in the end is what came last.
        let seen = text.rsplit('\r').next().unwrap_or(text);
        (!begun.is_empty()).then(|| line(step, Style::Plain, seen))
    }
}

fn line(step: &str, style: Style, text: &str) -> Line {
    Line::new("  ").and(Style::Strong, step).and(Style::Dim, " │ ").and(style, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(call: &str) -> ExecutionEvent {
        ExecutionEvent { step_id: "build".to_owned(), call: call.to_owned(), transient: true, ..Default::default() }
    }

    fn told(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.render(false)).collect()
    }

    fn take(outputs: &mut Outputs, stream: i32, offset: i64, text: &str) -> Vec<String> {
        told(&outputs.take(&event("c"), &ToolCallOutput { stream, offset, text: text.to_owned() }))
    }

    // S2-X-33: what a tool writes is seen while it works.
    #[test]
    fn pieces_become_lines_whatever_their_borders() {
        let mut outputs = Outputs::default();
        assert_eq!(take(&mut outputs, 1, 0, "one\ntw"), ["  build │ one"]);
        assert!(take(&mut outputs, 2, 0, "warn").is_empty(), "the other stream has lines of its own");
        assert_eq!(take(&mut outputs, 1, 6, "o\n\n"), ["  build │ two", "  build │"]);
        assert_eq!(told(&outputs.end(&event("c"))), ["  build │ warn"]);
        assert!(outputs.end(&event("c")).is_empty(), "said once");
    }

    #[test]
    fn what_is_left_out_is_said_and_what_is_redacted_is_not_taken_for_it() {
        let mut outputs = Outputs::default();
        take(&mut outputs, 1, 0, "a\n");
        assert_eq!(
            take(&mut outputs, 1, 500, "z\n"),
            ["  build │ … some output was left out; the result has it", "  build │ z"]
        );
        assert_eq!(take(&mut outputs, 1, 502, "[REDACTED]\n"), ["  build │ [REDACTED]"]);
        assert_eq!(take(&mut outputs, 1, 900, "b\n"), ["  build │ b"]);
    }

    #[test]
    fn no_output_steers_the_terminal_or_grows_without_end() {
        let mut outputs = Outputs::default();
        assert_eq!(take(&mut outputs, 1, 0, "10%\r\x1b[2K20%\r\n"), ["  build │ [2K20%"]);
        let long = "x".repeat(LONGEST_LINE + 1);
        assert_eq!(take(&mut outputs, 1, 12, &long).len(), 1);
    }
}
