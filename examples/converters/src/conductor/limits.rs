//! `rateLimitConfig`: a limit over the executions of a plan.

use std::collections::BTreeMap;

use serde_json::Value;

use super::references::References;
use crate::{
    fields::{Field, Refusal},
    left_out::{Place, Report},
    limit,
    plan::{Limit, MAX_AT_ONCE, WhenFull},
};

/// Converts the limit of a workflow. `declared` are its inputs. One without a key or a number limits nothing there.
pub(super) fn limit(
    config: &Field<'_>,
    declared: &BTreeMap<String, Value>,
    references: &mut References,
    report: &mut Report,
) -> Result<Option<Limit>, Refusal> {
    let mut fields = config.fields()?;
    fields.drop_empty();
    let (key, most) = (fields.take("rateLimitKey"), fields.take("concurrentExecLimit"));
    fields.leave_rest(report, &[]);
    let converted = match (key, most) {
        (None, None) => return Ok(None),
        (Some(key), Some(most)) => read(&key.needed_text()?, &most, declared, references),
        (None, Some(_)) => Err("it has no `rateLimitKey`, and limits nothing".to_owned()),
        (Some(_), None) => Err("it has no `concurrentExecLimit`, and limits nothing".to_owned()),
    };
    Ok(match converted {
        Ok((key, at_once)) => Some(Limit { key, at_once, when_full: WhenFull::Wait, place: Place::of(config) }),
        Err(why) => {
            report.add(config, "rateLimitConfig", why, "write `limits: [{key: …, at_once: …}]` into the plan");
            None
        }
    })
}

/// The key and the number; or why a plan has no such limit.
fn read(
    key: &str,
    most: &Field<'_>,
    declared: &BTreeMap<String, Value>,
    references: &mut References,
) -> Result<(String, u32), String> {
    let (name, unknown) = references.try_text(key);
    if let Some(unknown) = unknown.first() {
        return Err(format!("`{unknown}` has no value in a plan"));
    }
    let at_once = most.text().and_then(|text| text.trim().parse().ok());
    match at_once.filter(|most| (1..=MAX_AT_ONCE).contains(most)) {
        Some(most) => limit::key(&limit::never_empty(name, declared, "limit-")).map(|key| (key, most)),
        None => Err(format!("`concurrentExecLimit` is no number from 1 to {MAX_AT_ONCE}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Format, convert};

    #[test]
    fn a_rate_limit_is_a_limit_over_executions() {
        let converted = |config: &str| {
            let task = r#"{"taskReferenceName": "a", "type": "NOOP"}"#;
            let text = format!(
                r#"{{"name": "x", "inputParameters": ["given"], "tasks": [{task}], "rateLimitConfig": {config}}}"#
            );
            let conversion = convert(Format::Conductor, &text, "x").unwrap();
            let left: Vec<String> = conversion.left_out.iter().map(|entry| entry.why.clone()).collect();
            (json!(conversion.plan.limits), left.join(", "))
        };
        let config = |key: &str, most: &str| format!(r#"{{"rateLimitKey": "{key}", "concurrentExecLimit": {most}}}"#);
        for (key, expected) in [
            ("orders", "orders"),
            ("${workflow.input.given}", "${inputs.given}"),
            ("${workflow.input.other}", "limit-${inputs.other}"),
            ("a ${workflow.input.given.part}", "a-${inputs.given.part ?? null}"),
        ] {
            let limits = json!([{"key": expected, "at_once": 5}]);
            assert_eq!(converted(&config(key, "5")), (limits, String::new()), "{key}");
        }
        for (config, why) in [
            (config("", "0"), ""),
            ("null".to_owned(), ""),
            (config("", "5"), "it has no `rateLimitKey`, and limits nothing"),
            (config("a", "0"), "it has no `concurrentExecLimit`, and limits nothing"),
            (config("a", "1001"), "`concurrentExecLimit` is no number from 1 to 1000"),
            (config("${workflow.correlationId}", "5"), "`workflow.correlationId` has no value in a plan"),
            (r#"{"policy": "REJECT"}"#.to_owned(), "the converter does not know this key"),
        ] {
            assert_eq!(converted(&config), (json!([]), why.to_owned()), "{config}");
        }
    }
}
