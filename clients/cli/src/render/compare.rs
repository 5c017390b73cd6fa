//! The differences between two executions, for people. Pure, and bounded however much differs.

use std::time::Duration;

use belay_proto::v1::{CompareExecutionsResponse, Execution, FieldChange, Payload, StepChanges};
use serde_json::Value;

use super::{
    json,
    text::{Line, Style, name, shorten},
    words,
};
use crate::names;

/// The most lines that each part has; the others are counted.
const MAX_LINES: usize = 200;
/// The longest value on the screen, in characters.
const MAX_VALUE_CHARS: usize = 60;
/// How many digits of a digest are on the screen.
const DIGITS_SHOWN: usize = 12;

/// Draws it.
pub(crate) fn lines(found: &CompareExecutionsResponse, now: Duration) -> Vec<Line> {
    let head = |sign: &str, style, execution: &Option<Execution>| {
        execution.as_ref().map(|execution| head(sign, style, execution, now))
    };
    let heads = [head("-", Style::Bad, &found.before), head("+", Style::Good, &found.after)];
    let mut lines: Vec<Line> = heads.into_iter().flatten().collect();
    let equal = usize::try_from(found.equal_steps).unwrap_or_default();
    if is_none(found) {
        lines.push(Line::default().and(Style::Good, format!("no difference: {} alike", words::steps(equal))));
        return lines;
    }
    let ids = |sign: &str, style, ids: &[String]| -> Vec<Line> {
        ids.iter().map(|id| Line::new("  ").and(style, format!("{sign} {id}"))).collect()
    };
    let fields = |changes: &[FieldChange], write: Write| -> Vec<Line> {
        changes.iter().map(|change| line("", change, write)).collect()
    };
    let planned: Write = |_| given;
    let plan = [
        (fields(&found.plan_changes, planned), found.left_out_plan_changes),
        (ids("-", Style::Bad, &found.removed_steps), found.left_out_removed_steps),
        (ids("+", Style::Good, &found.added_steps), found.left_out_added_steps),
        (of_steps(&found.planned_step_changes, planned), found.left_out_planned_step_changes),
    ];
    part(&mut lines, "plan", plan);
    part(&mut lines, "inputs", [(fields(&found.input_changes, planned), found.left_out_input_changes)]);
    part(&mut lines, "execution", [(fields(&found.execution_changes, fact), 0)]);
    part(&mut lines, "steps", [(of_steps(&found.step_changes, fact), found.left_out_step_changes)]);
    if equal > 0 {
        lines.push(Line::default().and(Style::Dim, format!("{} ran alike", words::steps(equal))));
    }
    lines
}

/// Whether nothing differs.
fn is_none(found: &CompareExecutionsResponse) -> bool {
    let fields = [&found.plan_changes, &found.input_changes, &found.execution_changes];
    let steps = [&found.planned_step_changes, &found.step_changes];
    let left_out = [
        found.left_out_plan_changes,
        found.left_out_added_steps,
        found.left_out_removed_steps,
        found.left_out_planned_step_changes,
        found.left_out_input_changes,
        found.left_out_step_changes,
    ];
    fields.iter().all(|changes| changes.is_empty())
        && steps.iter().all(|changes| changes.is_empty())
        && found.added_steps.is_empty()
        && found.removed_steps.is_empty()
        && left_out.iter().all(|count| *count == 0)
}

/// `- e1  plan tidy, failed after 31s`.
fn head(sign: &str, style: Style, execution: &Execution, now: Duration) -> Line {
    let state = words::execution_state(execution.state());
    let took = super::execution::took_in_words(execution, now).map(|took| format!(" after {took}")).unwrap_or_default();
    Line::default()
        .and(style, format!("{sign} "))
        .and(Style::Strong, names::id(&execution.name))
        .and(Style::Dim, format!("  plan {}, {state}{took}", execution.plan_id))
}

/// A part with what differs in it, each with the number that the server has left out.
fn part<const N: usize>(lines: &mut Vec<Line>, title: &str, lists: [(Vec<Line>, i32); N]) {
    let server_left_out = lists.iter().map(|(_, left_out)| usize::try_from(*left_out).unwrap_or_default());
    let server_left_out: usize = server_left_out.sum();
    let mut drawn: Vec<Line> = lists.into_iter().flat_map(|(lines, _)| lines).collect();
    let left_out = drawn.len().saturating_sub(MAX_LINES) + server_left_out;
    drawn.truncate(MAX_LINES);
    if drawn.is_empty() && left_out == 0 {
        return;
    }
    lines.push(Line::default().and(Style::Strong, title));
    lines.extend(drawn);
    if left_out > 0 {
        lines.push(Line::new("  ").and(Style::Dim, format!("… and {left_out} more")));
    }
}

fn of_steps(steps: &[StepChanges], write: Write) -> Vec<Line> {
    let changes = steps.iter().flat_map(|step| step.changes.iter().map(|change| (&step.step_id, change)));
    changes.map(|(step, change)| line(step, change, write)).collect()
}

/// How a value of a change is written.
type Write = fn(&FieldChange) -> fn(&Value) -> String;

/// `  ~ build  tool.arguments.command: ["make"] → ["make","test"]`.
fn line(step: &str, change: &FieldChange, write: Write) -> Line {
    let mut line = Line::new("  ").and(Style::Warn, "~ ");
    if !step.is_empty() {
        line = line.and(Style::Strong, step).and(Style::Plain, "  ");
    }
    line.and(Style::Dim, format!("{}: ", name(&change.path.join("."))))
        .and(Style::Bad, value(change.before_value.as_ref(), change.before_bytes, write(change)))
        .and(Style::Dim, " → ")
        .and(Style::Good, value(change.after_value.as_ref(), change.after_bytes, write(change)))
        .hanging(4)
}

/// A value, or its size.
fn value(payload: Option<&Payload>, bytes: i64, write: fn(&Value) -> String) -> String {
    match payload.and_then(Payload::as_json) {
        Some(text) => write(&serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))),
        None if bytes > 0 => format!("{bytes} bytes"),
        None => "none".to_owned(),
    }
}

/// A value of a plan or an input.
fn given(value: &Value) -> String {
    shorten(&json::text(value, false), MAX_VALUE_CHARS)
}

/// A state, a digest, or another fact of an execution or a step.
fn fact(change: &FieldChange) -> fn(&Value) -> String {
    match change.path.first().map(String::as_str) {
        Some("state") => |state| words::word(state.as_str().unwrap_or_default(), "STATE_"),
        Some("output") => {
            |digest| digest.as_str().unwrap_or_default().chars().take("sha256:".len() + DIGITS_SHOWN).collect()
        }
        _ => given,
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::execution;

    use super::*;

    fn change(path: &[&str], before: Option<&str>, after: Option<&str>) -> FieldChange {
        let bytes = |json: Option<&str>| i64::try_from(json.unwrap_or_default().len()).unwrap();
        FieldChange {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            before_value: before.map(Payload::of_json),
            before_bytes: bytes(before),
            after_value: after.map(Payload::of_json),
            after_bytes: bytes(after),
        }
    }

    fn execution(id: &str, state: execution::State) -> Option<Execution> {
        let name = format!("namespaces/default/executions/{id}");
        Some(Execution { name, plan_id: "p".to_owned(), state: state.into(), ..Execution::default() })
    }

    fn texts(found: &CompareExecutionsResponse) -> Vec<String> {
        lines(found, Duration::ZERO).iter().map(|line| line.render(false)).collect()
    }

    #[test]
    fn each_difference_is_a_line() {
        let digest = format!("\"sha256:{}\"", "0123456789abcdef".repeat(4));
        let steps = |step: &str, changes| StepChanges { step_id: step.to_owned(), changes };
        let found = CompareExecutionsResponse {
            before: execution("e1", execution::State::Completed),
            after: execution("e2", execution::State::Failed),
            plan_changes: vec![FieldChange {
                before_bytes: 9_002,
                ..change(&["description"], None, Some("\"short\""))
            }],
            added_steps: vec!["d".to_owned()],
            removed_steps: vec!["c".to_owned()],
            planned_step_changes: vec![steps(
                "a",
                vec![change(&["tool", "arguments", "command"], Some(r#"["x"]"#), Some(r#"["x","y"]"#))],
            )],
            input_changes: vec![
                change(&["n\n\u{1b}[2J"], Some("1"), Some("3")),
                change(&["state"], Some("\"STATE_FAILED\""), Some("\"sha256:\"")),
            ],
            execution_changes: vec![change(&["state"], Some("\"STATE_COMPLETED\""), Some("\"STATE_FAILED\""))],
            step_changes: vec![steps(
                "a",
                vec![change(&["output"], Some(&digest), None), change(&["failure"], None, Some("\"COMMAND_FAILED\""))],
            )],
            left_out_step_changes: 3,
            equal_steps: 1,
            ..CompareExecutionsResponse::default()
        };
        let drawn = texts(&found);
        assert!(drawn[0].starts_with("- e1  plan p, completed") && drawn[1].starts_with("+ e2  plan p, failed"));
        let expected = [
            "plan",
            r#"  ~ description: 9002 bytes → "short""#,
            "  - c",
            "  + d",
            r#"  ~ a  tool.arguments.command: ["x"] → ["x","y"]"#,
            "inputs",
            "  ~ n<U+000A><U+001B>[2J: 1 → 3",
            // It only looks like a state.
            r#"  ~ state: "STATE_FAILED" → "sha256:""#,
            "execution",
            "  ~ state: completed → failed",
            "steps",
            "  ~ a  output: sha256:0123456789ab → none",
            r#"  ~ a  failure: none → "COMMAND_FAILED""#,
            "  … and 3 more",
            "1 step ran alike",
        ];
        assert_eq!(drawn[2..], expected);
    }

    #[test]
    fn no_difference_is_one_line_and_what_was_left_out_is_a_difference() {
        let completed = || execution("e", execution::State::Completed);
        let equal = CompareExecutionsResponse {
            before: completed(),
            after: completed(),
            equal_steps: 3,
            ..CompareExecutionsResponse::default()
        };
        assert_eq!(texts(&equal)[2..], ["no difference: 3 steps alike"]);
        let left_out = CompareExecutionsResponse { left_out_input_changes: 2, ..equal };
        assert_eq!(texts(&left_out)[2..], ["inputs", "  … and 2 more", "3 steps ran alike"]);
    }

    #[test]
    fn a_part_is_bounded() {
        let many = (0..1_000).map(|number| format!("s{number}")).collect();
        let found = CompareExecutionsResponse { added_steps: many, ..CompareExecutionsResponse::default() };
        let drawn = texts(&found);
        assert_eq!((drawn.len(), drawn.last().unwrap().as_str()), (202, "  … and 800 more"));
    }
}
