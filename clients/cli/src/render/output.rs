//! Output of tools at work: pieces of streams, put together to lines.

use std::collections::BTreeMap;

use belay_proto::v1::{ExecutionEvent, Failure, ToolCallOutput};

use super::text::{Line, PrintableText, REDACTED, Style};

/// A line without an end is shown when it is longer than this, in bytes.
const MAX_LINE_BYTES: usize = 4_096;

/// The streams of all calls that run.
#[derive(Default)]
pub(crate) struct Outputs {
    streams: BTreeMap<(Call, i32), Stream>,
}

/// A call: its step, the attempt, and its number within the attempt.
type Call = (String, i32, i32);

fn call_of(event: &ExecutionEvent) -> Call {
    (event.step_id.clone(), event.attempt, event.operation)
}

#[derive(Default)]
struct Stream {
    /// The beginning of a line whose end has not come.
    begun: String,
    /// The offset at which the next piece should begin; `None` if it is unknown.
    next: Option<i64>,
}

impl Outputs {
    /// Whether a piece of what the event's call writes has been shown.
    pub(crate) fn has(&self, event: &ExecutionEvent) -> bool {
        let call = call_of(event);
        self.streams.keys().any(|(known, _)| *known == call)
    }

    /// The lines that a piece completes, each as `  step │ text`.
    pub(crate) fn take(&mut self, event: &ExecutionEvent, piece: &ToolCallOutput) -> Vec<Line> {
        let stream = self.streams.entry((call_of(event), piece.stream)).or_default();
        let mut lines = Vec::new();
        if stream.next.is_some_and(|next| piece.offset > next) {
            lines.extend(stream.finish(&event.step_id));
            lines.push(line(&event.step_id, Style::Dim, "… some output was left out; the result has it"));
        }
        let length = i64::try_from(piece.text.len()).unwrap_or(i64::MAX);
        // A replaced byte is longer than it was, a secret may be shorter: lengths and offsets do not agree.
        let is_literal = !piece.text.contains(['\u{fffd}']) && !piece.text.contains(REDACTED);
        stream.next = is_literal.then(|| piece.offset.saturating_add(length));
        for part in piece.text.split_inclusive('\n') {
            stream.begun.push_str(part);
            if part.ends_with('\n') || stream.begun.len() > MAX_LINE_BYTES {
                lines.extend(stream.finish(&event.step_id));
            }
        }
        lines
    }

    /// The line that a call had begun to write when it ended.
    pub(crate) fn end(&mut self, event: &ExecutionEvent) -> Vec<Line> {
        let mut lines = Vec::new();
        let ended = call_of(event);
        self.streams.retain(|(call, _), stream| {
            let is_its = *call == ended;
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
        (!begun.is_empty()).then(|| line(step, Style::Plain, PrintableText::of_program(&begun).as_str()))
    }
}

/// The last of what a program wrote before its call failed, each line as `│ text`: at most `most` lines of each stream, the standard error
/// last.
pub(crate) fn last(failure: &Failure, most: usize) -> Vec<String> {
    let Some(output) = &failure.last_output else { return Vec::new() };
    let streams = [(&output.stdout, output.stdout_truncated), (&output.stderr, output.stderr_truncated)];
    let mut shown = Vec::new();
    for (text, truncated) in streams {
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let left_out = lines.len().saturating_sub(most);
        if truncated || left_out > 0 {
            shown.push("│ …".to_owned());
        }
        shown.extend(lines[left_out..].iter().map(|line| format!("│ {}", PrintableText::of_program(line).as_str())));
    }
    shown
}

/// A line of [`last`] with its step before it.
pub(crate) fn of_step(step: &str, text: &str) -> Line {
    Line::new("  ").and(Style::Strong, step).and(Style::Plain, " ").and(Style::Plain, text).verbatim()
}

fn line(step: &str, style: Style, text: &str) -> Line {
    Line::new("  ").and(Style::Strong, step).and(Style::Dim, " │ ").and(style, text).verbatim()
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::LastOutput;

    use super::*;

    fn event(call: i32) -> ExecutionEvent {
        ExecutionEvent { step_id: "build".to_owned(), operation: call, ephemeral: true, ..Default::default() }
    }

    fn rendered(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.render(false)).collect()
    }

    fn take(outputs: &mut Outputs, stream: i32, offset: i64, text: &str) -> Vec<String> {
        rendered(&outputs.take(&event(1), &ToolCallOutput { stream, offset, text: text.to_owned() }))
    }

    // S2-X-33: what a tool writes is seen while it works.
    #[test]
    fn pieces_become_lines_wherever_they_are_cut() {
        let mut outputs = Outputs::default();
        assert_eq!(take(&mut outputs, 1, 0, "one\ntw"), ["  build │ one"]);
        assert!(take(&mut outputs, 2, 0, "warn").is_empty(), "the other stream has lines of its own");
        assert_eq!(take(&mut outputs, 1, 6, "o\n\n"), ["  build │ two", "  build │"]);
        assert_eq!(rendered(&outputs.end(&event(1))), ["  build │ warn"]);
        assert!(outputs.end(&event(1)).is_empty(), "said once");
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
    fn the_last_of_a_failed_call_keeps_its_lines_and_loses_its_colours() {
        let output = LastOutput {
            stdout: "one\ntwo\n\u{1b}[1;31mtest orders::adds ... FAILED\u{1b}[0m\n10%\r20%\r\n\n".to_owned(),
            stderr: "why\n".to_owned(),
            stderr_truncated: true,
            ..Default::default()
        };
        let failure = Failure { last_output: Some(output), ..Default::default() };
        assert_eq!(last(&failure, 2), ["│ …", "│ test orders::adds ... FAILED", "│ 20%", "│ …", "│ why"]);
        assert_eq!(last(&failure, 9)[..2], ["│ one", "│ two"]);
        assert!(last(&Failure::default(), 9).is_empty());
    }

    #[test]
    fn no_output_steers_the_terminal_or_grows_without_end() {
        let mut outputs = Outputs::default();
        assert_eq!(take(&mut outputs, 1, 0, "10%\r\x1b[2K20%\r\n"), ["  build │ 20%"]);
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        assert_eq!(take(&mut outputs, 1, 12, &long).len(), 1);
    }
}
