//! The calls of a plan in a dry run: the policy's decisions about them, and the long texts that they would get.

use belay_proto::v1::{Payload, PlannedCall, policy_decision::Verdict};
use serde_json::Value;

use super::{
    text::{Line, Style, clean},
    words,
};

/// The most characters of a text that are shown: as many as planners log of a prompt.
const MAX_TEXT: usize = 3_000;

/// A longer text, and one of several lines, is cut in the plan's rows, so it stands below them.
const MAX_IN_ROW: usize = 60;

/// The lines below a plan's rows; none for calls of which there is nothing to say.
pub(crate) fn lines(calls: &[PlannedCall]) -> Vec<Line> {
    calls.iter().flat_map(|call| decision(call).into_iter().chain(network(call)).chain(texts(call))).collect()
}

/// How many of the calls the policy denies.
pub(crate) fn denied(calls: &[PlannedCall]) -> usize {
    calls.iter().filter(|call| verdict(call) == Verdict::Deny).count()
}

fn verdict(call: &PlannedCall) -> Verdict {
    call.decision.as_ref().map(|decision| decision.verdict()).unwrap_or_default()
}

fn decision(call: &PlannedCall) -> Option<Line> {
    let (style, what) = match verdict(call) {
        Verdict::Deny => (Style::Bad, "denied"),
        Verdict::Prompt => (Style::Warn, "needs approval"),
        Verdict::Preview => (Style::Warn, "may need approval"),
        Verdict::Auto | Verdict::Unspecified => return None,
    };
    let why = call.decision.as_ref().map(words::decision).unwrap_or_default();
    let so_far = if call.has_templates { ", as far as its arguments are known" } else { "" };
    Some(heading(call).and(style, what).and(Style::Plain, format!("{so_far}: {why}")))
}

/// The network profile that the call's command would have.
fn network(call: &PlannedCall) -> Option<Line> {
    let profile = Some(clean(&call.network)).filter(|profile| !profile.is_empty())?;
    Some(heading(call).and(Style::Warn, "has a network").and(Style::Plain, format!(": profile {profile}")))
}

/// The step, and where in it the call stands unless it is its own.
fn heading(call: &PlannedCall) -> Line {
    let place: String = call.field.splitn(4, '/').skip(3).collect();
    let place = if place.is_empty() { String::new() } else { format!(" {place}") };
    Line::new("  ").and(Style::Strong, clean(&call.step_id)).and(Style::Dim, clean(&place)).and(Style::Plain, "  ")
}

/// The long texts of a call's arguments, each with its name.
fn texts(call: &PlannedCall) -> Vec<Line> {
    let arguments = call.arguments.as_ref().and_then(Payload::as_json).unwrap_or_default();
    let mut lines = Vec::new();
    visit("", &serde_json::from_str(arguments).unwrap_or_default(), &mut |name, text| {
        let length = text.chars().count();
        lines.push(heading(call).and(Style::Dim, format!("{}, {length} characters:", clean(name))));
        let shown: String = text.chars().take(MAX_TEXT).collect();
        lines.extend(shown.lines().map(|line| Line::new("    ").and(Style::Plain, line)));
        if let Some(more @ 1..) = length.checked_sub(MAX_TEXT) {
            lines.push(Line::new("    ").and(Style::Dim, format!("… and {more} more characters")));
        }
    });
    lines
}

/// Calls `see` with each text that a row cuts, and its name: `prompt`, `messages[0].content`.
fn visit(name: &str, value: &Value, see: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) if text.contains('\n') || text.chars().count() > MAX_IN_ROW => see(name, text),
        Value::Array(entries) => {
            entries.iter().enumerate().for_each(|(place, entry)| visit(&format!("{name}[{place}]"), entry, see));
        }
        Value::Object(members) => members.iter().for_each(|(member, value)| {
            let dot = if name.is_empty() { "" } else { "." };
            visit(&format!("{name}{dot}{member}"), value, see);
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::PolicyDecision;
    use serde_json::json;

    use super::*;

    fn call(field: &str, arguments: &Value, decided: Verdict) -> PlannedCall {
        let decision = PolicyDecision {
            verdict: decided.into(),
            rule: "deploys".to_owned(),
            reason: "releases are seen by a person".to_owned(),
            ..Default::default()
        };
        PlannedCall {
            step_id: "write".to_owned(),
            field: field.to_owned(),
            arguments: Some(Payload::of_json(arguments.to_string())),
            decision: Some(decision),
            ..Default::default()
        }
    }

    fn shown(calls: &[PlannedCall]) -> Vec<String> {
        lines(calls).iter().map(|line| line.render(false)).collect()
    }

    // S0-03: a dry run shows a prompt, cut to 3,000 characters.
    #[test]
    fn a_prompt_is_shown_up_to_three_thousand_characters() {
        let prompt = format!("Write about tests.\n\u{1b}[2J{}{}", "é".repeat(2_977), "not shown");
        let arguments = json!({"model": "m", "messages": [{"role": "user", "content": prompt}]});
        let lines = shown(&[call("/steps/0", &arguments, Verdict::Auto)]);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert_eq!(lines[..2], ["  write  messages[0].content, 3009 characters:", "    Write about tests."]);
        assert!(lines[2].starts_with("    <U+001B>[2Jéé") && lines[2].ends_with("ééé"), "{lines:?}");
        assert_eq!(
            lines[1].trim().chars().count() + 1 + 1 + lines[2].trim().replace("<U+001B>", "").chars().count(),
            MAX_TEXT
        );
        assert_eq!(lines[3], "    … and 9 more characters");
    }

    #[test]
    fn a_network_is_said_of_each_call_that_has_one() {
        let planned = call("/steps/0", &json!({}), Verdict::Auto);
        assert!(shown(std::slice::from_ref(&planned)).is_empty());
        let connected = PlannedCall { network: "registries".to_owned(), ..planned };
        assert_eq!(shown(&[connected]), ["  write  has a network: profile registries"]);
    }

    // S4-33: a dry run says what the policy decides.
    #[test]
    fn what_the_policy_decides_is_said_of_each_call() {
        let none = json!({});
        let unknown = PlannedCall { has_templates: true, ..call("/steps/0", &none, Verdict::Preview) };
        let calls = [
            call("/steps/0", &none, Verdict::Auto),
            call("/steps/0/fallback/0", &none, Verdict::Prompt),
            unknown,
            call("/steps/12/plan/steps/1", &none, Verdict::Deny),
        ];
        assert_eq!(
            shown(&calls),
            [
                "  write fallback/0  needs approval: releases are seen by a person (rule deploys)",
                "  write  may need approval, as far as its arguments are known: releases are seen by a person (rule deploys)",
                "  write plan/steps/1  denied: releases are seen by a person (rule deploys)",
            ]
        );
        assert_eq!(denied(&calls), 1);
    }
}
