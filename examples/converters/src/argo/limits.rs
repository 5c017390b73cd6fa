//! Limits of a template: time, attempts, and what executions share.

use serde_json::json;

use super::{
    converter::Converter,
    leaf::{ONE_MACHINE, seconds},
    values::Values,
};
use crate::{
    fields::{Field, Fields, Homeless, Refusal},
    left_out::{Place, Report},
    limit,
    plan::{Limit, Plan, Step, WhenFull},
};

const MUTEX_KEYS: [Homeless; 2] = [
    ("namespace", "a limit holds in the namespace of the execution", "start it there: `belay run --namespace`"),
    ("database", "all limits are kept in the executor's store", ""),
];

/// Converts the mutexes of a workflow, or of a template with tasks of its own, into limits of its plan.
///
/// # Errors
/// When it is no `synchronization`: with the line and what to do.
pub(super) fn synchronization(
    fields: &mut Fields<'_>,
    plan: &mut Plan,
    values: &mut Values,
    report: &mut Report,
) -> Result<(), Refusal> {
    let Some(field) = fields.take("synchronization") else { return Ok(()) };
    let mut locks = field.fields()?;
    let mut all = |one: &str, more: &str| {
        [locks.take(one), locks.take(more)].into_iter().flatten().flat_map(|field| field.items()).collect::<Vec<_>>()
    };
    let (mutexes, semaphores) = (all("mutex", "mutexes"), all("semaphore", "semaphores"));
    for mutex in mutexes {
        let mut mutex_fields = mutex.fields()?;
        let (name, unknown) = values.try_text(&mutex_fields.need("name")?.needed_text()?);
        let key = match unknown.first() {
            Some(unknown) => Err(format!("`{{{{{unknown}}}}}` is not known when the execution starts")),
            None => limit::key(&name),
        };
        match key {
            Ok(key) => plan.limits.push(Limit { key, at_once: 1, when_full: WhenFull::Wait, place: Place::of(&mutex) }),
            Err(why) => report.add(&mutex, "mutex", why, "write `limits: [{key: …, at_once: 1}]` into the plan"),
        }
        mutex_fields.leave_rest(report, &MUTEX_KEYS);
    }
    for semaphore in semaphores {
        let mut semaphore_fields = semaphore.fields()?;
        let reference = semaphore_fields.take("configMapKeyRef").map(|reference| reference.fields()).transpose()?;
        let key = reference.and_then(|mut reference| {
            let (map, key) = (reference.take("name")?.text()?, reference.take("key")?.text()?);
            Some(format!("{map}/{key}"))
        });
        report.add(
            &semaphore,
            "semaphore",
            "how many may run at once does not stand in this file",
            format!("write `limits: [{{key: {}, at_once: NUMBER}}]` into the plan", key.as_deref().unwrap_or("NAME")),
        );
    }
    locks.leave_rest(report, &[]);
    Ok(())
}

impl<'n> Converter<'_, 'n> {
    /// Gives a step the time limit and the retries of its template.
    pub(super) fn limits(&mut self, step: &mut Step, fields: &mut Fields<'n>) {
        // Of a template that has become a plan, it is in that plan.
        if let Some(field) = fields.take("synchronization") {
            self.report.add(
                &field,
                "synchronization",
                "limits over executions are those of a plan, and the template is a step of one",
                "give the step a `plan` of its own, and in that `limits: [{key: …, at_once: 1}]`; within one execution, write `resources`",
            );
        }
        if let Some(deadline) = fields.take("activeDeadlineSeconds") {
            step.timeout = deadline.text().and_then(|text| seconds(&text));
            if step.timeout.is_none() {
                self.report.add(
                    &deadline,
                    "activeDeadlineSeconds",
                    "a time limit is a number in a plan",
                    "write `timeout: 10m`",
                );
            }
        }
        let Some(Ok(mut retry)) = fields.take("retryStrategy").map(|retry| retry.fields()) else { return };
        let limit = retry.take("limit");
        let attempts = limit
            .as_ref()
            .and_then(Field::number)
            .map_or(if limit.is_none() { 100.0 } else { 0.0 }, |limit| limit + 1.0);
        if (1.0..=100.0).contains(&attempts) {
            #[expect(clippy::cast_possible_truncation, reason = "at most 100")]
            let mut policy = json!({"max_attempts": attempts as i64});
            if let Some(Ok(mut backoff)) = retry.take("backoff").map(|backoff| backoff.fields()) {
                let mut time = |key: &str| backoff.take(key).and_then(|field| seconds(&field.text()?));
                let (initial, max) = (time("duration"), time("maxDuration").or_else(|| time("cap")));
                let factor = backoff
                    .take("factor")
                    .and_then(|factor| factor.number())
                    .filter(|factor| *factor >= 1.0)
                    .unwrap_or(1.0);
                if let Some(initial) = initial {
                    policy["backoff"] =
                        json!({"initial": initial, "factor": factor, "max": max.unwrap_or_else(|| "1h".to_owned())});
                }
                backoff.leave_rest(self.report, &[]);
            }
            step.retry = Some(policy);
        } else if let Some(limit) = limit {
            self.report.add(
                &limit,
                "retryStrategy.limit",
                "attempts are 1 to 100 in a plan",
                "write `retry: {max_attempts: …}`",
            );
        }
        retry.leave_rest(
            self.report,
            &[
                (
                    "retryPolicy",
                    "every failure that may pass is tried again",
                    "`on_error` says what follows by the class of the failure",
                ),
                (
                    "expression",
                    "retries follow the class of the failure",
                    "`retry: {by_output: true}` classifies what a program printed",
                ),
                ("affinity", ONE_MACHINE, ""),
            ],
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Format, convert};

    /// The limits of the plan and of its first step's plan, as JSON, and what is left out but images: name and way out.
    fn converted(spec: &str, entry: &str, inner: &str) -> (Value, Value, Vec<(String, String)>) {
        let text = format!(
            "kind: Workflow\nspec:\n  entrypoint: main\n  arguments: {{parameters: [{{name: to, value: x}}]}}\n  {spec}\n  templates:\n  - name: main\n    {entry}\n    steps: \
             [[{{name: a, template: inner, arguments: {{parameters: [{{name: n, value: '1'}}]}}}}]]\n  - name: inner\n    inputs: {{parameters: [{{name: n}}]}}\n    {inner}\n    \
             steps: [[{{name: b, template: leaf}}]]\n  - name: leaf\n    synchronization: {{mutex: {{name: leaf}}}}\n    suspend: {{duration: 1}}\n"
        );
        let conversion = convert(Format::Argo, &text, "x").unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
        let inner = conversion.plan.steps[0].plan.as_ref().expect("a template with steps is a plan");
        let left = conversion.left_out.iter().map(|entry| (entry.what.clone(), entry.instead.clone()));
        (json!(conversion.plan.limits), json!(inner.limits), left.collect())
    }

    #[test]
    fn mutexes_are_limits_of_the_plan_in_which_they_stand() {
        let (limits, inner, left) = converted(
            "synchronization: {mutexes: [{name: deploy}, {name: 'to-{{workflow.parameters.to}}'}]}",
            "synchronization: {mutex: {name: main}}",
            "synchronization: {mutexes: [{name: 'n-{{inputs.parameters.n}}', database: true}, {name: deploy}, {name: '{{pod.name}}'}]}",
        );
        let key = |key: &str| json!({"key": key, "at_once": 1});
        assert_eq!(limits, json!([key("deploy"), key("to-${inputs.to}"), key("main")]));
        assert_eq!(inner, json!([key("n-${inputs.n}")]));
        let names: Vec<&str> = left.iter().map(|(what, _)| what.as_str()).collect();
        assert_eq!(names, ["database", "limit", "mutex", "synchronization"]);
    }

    #[test]
    fn a_semaphore_says_the_line_to_write() {
        let by_map = "synchronization: {semaphores: [{configMapKeyRef: {name: sizes, key: deploy}}]}";
        let by_database = "synchronization: {semaphore: {database: {key: sizes}}}";
        let (limits, inner, left) = converted(by_map, by_database, "parallelism: 1");
        assert_eq!((limits, inner), (json!([]), json!([])));
        let ways: Vec<&str> =
            left.iter().filter(|(what, _)| what == "semaphore").map(|(_, instead)| instead.as_str()).collect();
        let way = |key: &str| format!("write `limits: [{{key: {key}, at_once: NUMBER}}]` into the plan");
        assert_eq!(ways, [way("sizes/deploy"), way("NAME")]);
    }
}
