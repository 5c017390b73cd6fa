//! `concurrency`: a limit over the executions of a plan.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    context::Context,
    expression::{parse, pieces},
};
use crate::{
    fields::{Field, Refusal},
    left_out::{Place, Report},
    limit,
    plan::{Limit, WhenFull},
    text::Text,
};

/// Contexts that differ between the jobs of a workflow and the combinations of a matrix, for which no input of the plan can stand.
const OF_A_JOB: [&str; 4] = ["matrix.", "needs.", "strategy.", "steps."];

/// The most characters of a job's id in the name of an input.
const MAX_ID_IN_INPUT: usize = 45;

/// Converts the `concurrency` of a workflow or of a job that has a plan of its own. `input` names the input that stands for an expression which a plan cannot
/// compute; `declared` are the inputs of the workflow.
pub(super) fn limit(
    field: &Field<'_>,
    input: &str,
    declared: &BTreeMap<String, Value>,
    context: &mut Context,
    report: &mut Report,
) -> Result<Option<Limit>, Refusal> {
    let (group, cancel) = if field.text().is_some() {
        (field.clone(), None)
    } else {
        let mut fields = field.fields()?;
        let (group, cancel) = (fields.need("group")?, fields.take("cancel-in-progress"));
        fields.leave_rest(report, &[]);
        (group, cancel)
    };
    let text = group.needed_text()?;
    let name = name(&text, &group, input, context, report);
    let key = match name.and_then(|name| limit::key(&limit::never_empty(name, declared, "group-"))) {
        Ok(key) => key,
        Err(why) => {
            report.add(field, "concurrency", why, "write `limits: [{key: …, at_once: 1}]` into the plan");
            return Ok(None);
        }
    };
    let mut when_full = WhenFull::Wait;
    match cancel.as_ref().map(|cancel| (cancel, cancel.boolean())) {
        Some((_, Some(true))) => when_full = WhenFull::CancelOlder,
        Some((cancel, None)) => report.add(
            cancel,
            "cancel-in-progress",
            "it depends on an expression: none is cancelled",
            "write `when_full: cancel_older` at the limit to cancel the older ones",
        ),
        Some((_, Some(false))) | None => {}
    }
    if when_full == WhenFull::Wait {
        report.add(
            field,
            "concurrency that waits",
            "of those that wait, GitHub keeps only the newest: in a plan each has its turn",
            "write `when_full: refuse` at the limit to start none while it is full, or `cancel_older` to cancel also the one that runs",
        );
    }
    Ok(Some(Limit { key, at_once: 1, when_full, place: Place::of(field) }))
}

/// The name of a group; or why a plan has none such.
fn name(
    text: &str,
    group: &Field<'_>,
    input: &str,
    context: &mut Context,
    report: &mut Report,
) -> Result<Text, String> {
    let (mut name, mut stand_ins) = (Text::default(), BTreeMap::new());
    for piece in pieces(text) {
        let expression = match piece {
            Ok(literal) => {
                name.push_literal(literal);
                continue;
            }
            Err(expression) => expression,
        };
        let value = match parse(expression).and_then(|parsed| context.value(&parsed)) {
            Some(value) => value,
            None if OF_A_JOB.iter().any(|of_a_job| expression.contains(of_a_job)) => {
                return Err(format!("`{expression}` cannot be computed when the execution starts"));
            }
            None => {
                let free = || free_name(input, context);
                let input = stand_ins.entry(expression).or_insert_with(free).clone();
                Text::reference(context.added(input, format!("the value of `{expression}`")).text)
            }
        };
        // Behind a `$` a reference would be read as an escaped one.
        if value.constant().is_none() && !name.takes_reference() {
            name.push_literal("-");
        }
        name.push(&value);
    }
    context.report_inputs(text, group, report);
    for (expression, input) in stand_ins {
        report.add(
            group,
            "concurrency of an expression",
            format!(
                "`{expression}` cannot be computed in a plan: it is the input `{input}`, which is empty by default"
            ),
            format!("start with `--input {input}=VALUE`: executions with the same value share the limit"),
        );
    }
    Ok(name)
}

/// The name of an input like the text, which no other has.
fn free_name(input: &str, context: &Context) -> String {
    let is_taken = |name: &String| context.input_types.contains_key(name) || context.added_inputs.contains_key(name);
    let mut name = input.to_owned();
    for number in 2.. {
        if !is_taken(&name) {
            break;
        }
        name = format!("{input}_{number}");
    }
    name
}

/// The name of the input for the group of a job.
pub(super) fn input_of(job: &str) -> String {
    let tail: String = job.chars().skip(job.chars().count().saturating_sub(MAX_ID_IN_INPUT)).collect();
    format!("concurrency_{}", tail.replace('-', "_"))
}

/// Reports the `concurrency` of a job without a plan of its own.
pub(super) fn leave(field: &Field<'_>, is_called: bool, report: &mut Report) {
    let (why, instead) = if is_called {
        (
            "the workflow that is called is another file",
            "write `limits: [{key: …, at_once: 1}]` into the plan of that file",
        )
    } else {
        (
            "limits over executions are those of a plan, and the job is a group of steps",
            "give the job a plan of its own: a step with `plan`, and in that `limits: [{key: …, at_once: 1}]`",
        )
    };
    report.add(field, "concurrency", why, instead);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Format, convert};

    /// The limits of the plan and of its first step's plan, as JSON, and the names of what is left out.
    fn converted(workflow: &str, job: &str) -> (Value, Value, Vec<String>) {
        let text = format!(
            "name: My CI\non:\n  workflow_dispatch:\n    inputs:\n      env: {{type: string, required: true}}\n      to: {{type: string}}\n{workflow}\njobs:\n  a:\n    \
             runs-on: x\n    strategy: {{matrix: {{os: [a, b]}}}}\n    {job}\n    steps: [{{id: b, run: 'true'}}]\n"
        );
        let conversion = convert(Format::Github, &text, "ci").unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
        let inner = conversion.plan.steps[0].plan.as_ref().expect("a matrix is a plan");
        let left =
            conversion.left_out.iter().map(|entry| entry.what.clone()).filter(|what| what != "runs-on").collect();
        (json!(conversion.plan.limits), json!(inner.limits), left)
    }

    #[test]
    fn a_group_is_the_key_of_a_limit() {
        for (group, key, left) in [
            ("deploy", "deploy", vec![]),
            ("${{ github.workflow }}", "My-CI", vec![]),
            ("${{ inputs.env }}", "${inputs.env}", vec![]),
            ("${{ inputs.to }}", "group-${inputs.to}", vec![]),
            ("${{ github.ref }}", "group-${inputs.github_ref}", vec!["github.ref"]),
            ("${{ github.workflow }} @ ${{ github.ref }}", "My-CI-@-${inputs.github_ref}", vec!["github.ref"]),
            (
                "ci-${{ github.head_ref || github.run_id }}-${{ github.event.number }}",
                "ci-${inputs.concurrency}-${inputs.concurrency_2}",
                vec!["concurrency of an expression", "concurrency of an expression"],
            ),
            (
                "${{ github.sha || 1 }}.${{ github.sha || 1 }}",
                "${inputs.concurrency}.${inputs.concurrency}",
                vec!["concurrency of an expression"],
            ),
            ("$${{ inputs.env }}", "$-${inputs.env}", vec![]),
        ] {
            let cancelling = format!("concurrency: {{group: \"{group}\", cancel-in-progress: true}}");
            let (limits, _, found) = converted(&cancelling, "timeout-minutes: 1");
            assert_eq!(limits, json!([{"key": key, "at_once": 1, "when_full": "cancel_older"}]), "{group}");
            assert_eq!(found, left, "{group}");
        }
        // The name of an input that the workflow declares is taken.
        let (limits, _, _) =
            converted("      concurrency: {}\nconcurrency: \"${{ !inputs.to }}${{ !inputs.env }}\"", "");
        assert_eq!(limits[0]["key"], "group-${inputs.concurrency_2}${inputs.concurrency_3}");
        for group in ["\"\"", "${{ matrix.os }}", "${{ needs.a.outputs.x }}"] {
            let (limits, _, left) = converted(&format!("concurrency: {group}"), "timeout-minutes: 1");
            assert_eq!((limits, left), (json!([]), vec!["concurrency".to_owned()]), "{group}");
        }
    }

    #[test]
    fn without_cancelling_an_execution_waits() {
        for (cancel, left) in [
            ("", vec!["concurrency that waits"]),
            (", cancel-in-progress: false", vec!["concurrency that waits"]),
            (
                ", cancel-in-progress: \"${{ inputs.env == 'a' }}\"",
                vec!["concurrency that waits", "cancel-in-progress"],
            ),
        ] {
            let (limits, _, found) = converted(&format!("concurrency: {{group: a{cancel}}}"), "timeout-minutes: 1");
            assert_eq!(limits, json!([{"key": "a", "at_once": 1}]), "{cancel}");
            assert_eq!(found, left, "{cancel}");
        }
    }

    #[test]
    fn a_job_with_a_matrix_has_limits_of_its_own() {
        let job = "concurrency: {group: \"${{ matrix.os }}\", cancel-in-progress: true}";
        let (limits, inner, left) = converted("", job);
        let expected = json!([{"key": "group-${inputs.matrix.os ?? \"\"}", "at_once": 1, "when_full": "cancel_older"}]);
        assert_eq!((limits, inner, left), (json!([]), expected, Vec::new()));
        for of_its_steps in ["${{ steps.b.outputs.c }}", "${{ strategy.job-index }}"] {
            let (_, inner, left) = converted("", &format!("concurrency: a {of_its_steps}"));
            assert_eq!((inner, left), (json!([]), vec!["concurrency".to_owned()]), "{of_its_steps}");
        }
        // The workflow would wait for itself.
        let (limits, inner, left) = converted(
            "concurrency: My-CI",
            "concurrency: {group: \"${{ github.workflow }}\", cancel-in-progress: true}",
        );
        assert_eq!(limits, json!([{"key": "My-CI", "at_once": 1}]));
        assert_eq!((inner, left), (json!([]), vec!["concurrency that waits".to_owned(), "limit".to_owned()]));
    }
}
