//! A plan before it runs: what would happen, a line for each step.

use belay_proto::v1::{Plan, Step, step};

use super::{
    text::{Line, Style, clean, shorten, table},
    time, words,
};

/// The longest arguments that are shown for a step, in characters.
const LONGEST_ARGUMENTS: usize = 100;

/// The plan as it would be carried out.
pub(crate) fn preview(plan: &Plan) -> Vec<Line> {
    let pace = match plan.parallelism {
        ..=1 => "one at a time".to_owned(),
        most => format!("up to {most} at once"),
    };
    let stop = if plan.stop_on_error { ", stops on an error" } else { "" };
    let limit = plan
        .timeout
        .as_ref()
        .map(|limit| format!(", at most {}", time::short(time::duration(limit))))
        .unwrap_or_default();
    let mut lines = vec![
        Line::new("plan ")
            .and(Style::Strong, &plan.id)
            .and(Style::Plain, format!(": {}, {pace}{stop}{limit}", words::steps(plan.steps.len()))),
    ];
    if !plan.description.is_empty() {
        lines.push(Line::default().and(Style::Dim, format!("  {}", plan.description)));
    }
    lines.extend(table(&plan.steps.iter().map(row).collect::<Vec<_>>()));
    lines
}

fn row(step: &Step) -> Vec<(Style, String)> {
    let (tool, arguments) = match &step.kind {
        Some(step::Kind::Tool(call)) => (call.tool.as_str(), call.arguments.as_str()),
        None => ("", ""),
    };
    let mut conditions = Vec::new();
    if !step.depends_on.is_empty() {
        conditions.push(format!("after {}", step.depends_on.join(", ")));
    }
    if let Some(attempts) = step.retry.as_ref().map(|retry| retry.max_attempts).filter(|attempts| *attempts > 1) {
        conditions.push(format!("up to {attempts} attempts"));
    }
    if let Some(limit) = &step.timeout {
        conditions.push(format!("at most {}", time::short(time::duration(limit))));
    }
    vec![
        (Style::Strong, step.id.clone()),
        (Style::Plain, tool.to_owned()),
        (Style::Plain, shorten(&clean(arguments), LONGEST_ARGUMENTS)),
        (Style::Dim, conditions.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{RetryPolicy, ToolStep};

    use super::*;

    #[test]
    fn says_what_would_run_in_which_order() {
        let step = |id: &str, after: &[&str]| Step {
            id: id.to_owned(),
            depends_on: after.iter().map(|id| (*id).to_owned()).collect(),
            kind: Some(step::Kind::Tool(ToolStep {
                tool: "read_file".to_owned(),
                arguments: r#"{"path":"a"}"#.to_owned(),
                ..Default::default()
            })),
            ..Default::default()
        };
        let retry = Some(RetryPolicy { max_attempts: 3, ..Default::default() });
        let plan = Plan {
            id: "p".to_owned(),
            steps: vec![step("a", &[]), Step { retry, ..step("b", &["a"]) }],
            stop_on_error: true,
            timeout: Some(pbjson_types::Duration { seconds: 90, nanos: 0 }),
            ..Default::default()
        };
        let text: Vec<String> = preview(&plan).iter().map(|line| line.render(false)).collect();
        assert_eq!(
            text,
            [
                "plan p: 2 steps, one at a time, stops on an error, at most 1m 30s",
                "  a  read_file  {\"path\":\"a\"}",
                "  b  read_file  {\"path\":\"a\"}  after a, up to 3 attempts",
            ]
        );
    }
}
