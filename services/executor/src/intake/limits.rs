//! The limits over executions that an execution is started with: those of its plan, with their keys resolved.

use std::collections::BTreeSet;

use belay_execution::Json;
use belay_plan::{LimitClaim, Plan, Violation};

/// The limits of an execution of a plan with these inputs.
///
/// # Errors
/// Each key that cannot be made of the inputs, that two limits have, or that holds what looks like a secret: keys are readable in the store and to everybody
/// who may see the executions of the namespace.
pub(crate) fn claims(
    plan: &Plan,
    inputs: &Json,
    is_secret: impl Fn(&str) -> bool,
) -> Result<Vec<LimitClaim>, Vec<Violation>> {
    if plan.limits().is_empty() {
        return Ok(Vec::new());
    }
    let (inputs, mut keys) = (inputs.value(), BTreeSet::new());
    let (mut claims, mut problems) = (Vec::new(), Vec::new());
    for (place, limit) in plan.limits().iter().enumerate() {
        let claim = limit.claim(&inputs).and_then(|claim| {
            if is_secret(&claim.key) {
                return Err(
                    "the key has what looks like a secret, and keys are readable: name another input".to_owned()
                );
            }
            if !keys.insert(claim.key.clone()) {
                let key = &claim.key;
                return Err(format!("the key is `{key}`, as that of another limit: give each limit a key of its own"));
            }
            Ok(claim)
        });
        match claim {
            Ok(claim) => claims.push(claim),
            Err(message) => {
                problems.push(Violation { field: format!("limits[{place}].key"), message, line: 0, column: 0 });
            }
        }
    }
    if problems.is_empty() { Ok(claims) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use belay_plan::Format;

    use super::*;

    fn keys(limits: &str, inputs: &str) -> Result<Vec<String>, Vec<(String, String)>> {
        let plan =
            format!("{{id: p, inputs: {{env: {{}}, other: {{}}}}, limits: {limits}, steps: [{{id: a, tool: noop}}]}}");
        let plan = Plan::parse_with(Format::Yaml, &plan, |_| Vec::new()).unwrap();
        match claims(&plan, &Json::from_text(inputs), |key| key.contains("hunter2")) {
            Ok(claims) => Ok(claims.into_iter().map(|claim| claim.key).collect()),
            Err(problems) => Err(problems.into_iter().map(|problem| (problem.field, problem.message)).collect()),
        }
    }

    #[test]
    fn keys_are_made_of_the_inputs_of_the_execution() {
        let limits = "[{key: 'deploy-${inputs.env}', at_once: 1}, {key: 'all-${inputs.other}', at_once: 9}]";
        let made = keys(limits, r#"{"env": "prod", "other": 7}"#);
        assert_eq!(made, Ok(vec!["deploy-prod".to_owned(), "all-7".to_owned()]));
    }

    #[test]
    fn a_key_that_cannot_be_made_names_its_limit() {
        let limits = "[{key: '${inputs.env}', at_once: 1}, {key: '${inputs.other}', at_once: 1}]";
        let refused = |inputs| keys(limits, inputs).unwrap_err();
        let [(field, message)] = &refused(r#"{"env": "a", "other": "a"}"#)[..] else { panic!("one problem") };
        assert_eq!(field, "limits[1].key");
        assert!(message.contains("`a`, as that of another limit"), "{message}");
        let problems = refused(r#"{"env": "hunter2", "other": []}"#);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].1.contains("looks like a secret") && !problems[0].1.contains("hunter2"), "{problems:?}");
    }
}
