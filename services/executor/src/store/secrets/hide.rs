//! Hiding the secrets of one text.

use std::collections::BTreeMap;

use belay_proto::texts::Text;
use belay_redaction::{Hidden, REDACTED, RedactedJson, Redactor, each_string};
use serde_json::Value;

/// Hides the secrets in a text.
pub(super) fn show(redactor: &Redactor, text: Text<'_>) {
    hide(redactor, text, &mut Vec::new());
}

/// Hides the secrets in a text, and adds them to `found`; returns whether that changed the text.
pub(super) fn hide(redactor: &Redactor, text: Text<'_>, found: &mut Vec<String>) -> bool {
    match text {
        Text::Words(words) => hide_words(redactor, words, found),
        Text::Value(text) => {
            let hidden = redactor.may_hide_value(text).then(|| hide_json(redactor, &text.as_str().into(), found));
            hidden.flatten().map(|shown| *text = shown.as_str().unwrap_or(REDACTED).to_owned()).is_some()
        }
        Text::Json(json) => {
            if !redactor.may_hide_json(json) {
                return false;
            }
            match serde_json::from_str(json) {
                Ok(value) => hide_json(redactor, &value, found).map(|shown| *json = shown.to_string()).is_some(),
                Err(_) => hide_words(redactor, json, found),
            }
        }
        Text::Schema(schema) => hide_schema(redactor, schema, found),
        Text::Labels(labels) => {
            if labels.is_empty() {
                return false;
            }
            let value = labels.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
            hide_json(redactor, &value, found).map(|shown| *labels = labels_of(shown)).is_some()
        }
    }
}

fn hide_words(redactor: &Redactor, words: &mut String, found: &mut Vec<String>) -> bool {
    if !redactor.may_hide(words) {
        return false;
    }
    let redacted = redactor.redact_text(words);
    found.extend(redacted.found.iter().map(|place| words[place.start..place.end].to_owned()));
    // A text that is hidden already may match again.
    let changed = *words != redacted.text;
    *words = redacted.text;
    changed
}

fn hide_schema(redactor: &Redactor, schema: &mut String, found: &mut Vec<String>) -> bool {
    if !redactor.may_hide(schema) {
        return false;
    }
    let Ok(mut value) = serde_json::from_str(schema) else { return hide_words(redactor, schema, found) };
    let mut changed = false;
    each_string(&mut value, &mut |text| changed |= hide_words(redactor, text, found));
    if changed {
        *schema = value.to_string();
    }
    changed
}

/// The value with its secrets hidden; `None` when it has none.
fn hide_json(redactor: &Redactor, value: &Value, found: &mut Vec<String>) -> Option<Value> {
    let RedactedJson { shown, hidden } = redactor.redact_json::<&str>(value, &[]);
    for Hidden { pointer, original } in &hidden {
        match shown.pointer(pointer).and_then(Value::as_str) {
            Some(REDACTED) => leaves(original, found),
            _ => parts(redactor, original, found),
        }
    }
    (!hidden.is_empty()).then_some(shown)
}

/// The whole value is secret: collects every text and number in it.
fn leaves(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Number(number) => found.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, found)),
        Value::Object(members) => members.values().for_each(|member| leaves(member, found)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Parts of a text or names of members are secret: collects those.
fn parts(redactor: &Redactor, value: &Value, found: &mut Vec<String>) {
    let mut add = |text: &str| {
        found.extend(redactor.redact_text(text).found.iter().map(|place| text[place.start..place.end].to_owned()));
    };
    match value {
        Value::String(text) => add(text),
        Value::Object(members) => {
            members.keys().for_each(|name| add(name));
            // The members of an object whose names are secret are hidden with it.
            for (name, member) in members {
                let named = Value::Object([(redactor.redact_text(name).text, member.clone())].into_iter().collect());
                hide_json(redactor, &named, found);
            }
        }
        _ => {}
    }
}

fn labels_of(shown: Value) -> BTreeMap<String, String> {
    let Value::Object(members) = shown else { return BTreeMap::new() };
    let text = |value| if let Value::String(text) = value { text } else { REDACTED.to_owned() };
    members.into_iter().map(|(key, value)| (key, text(value))).collect()
}
