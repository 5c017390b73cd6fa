//! The parts that the objects of the schema are made of.

use serde_json::{Map, Value, json};

use crate::{
    document::other_names,
    limits::{MAX_BUDGET, MAX_DURATION, MAX_NETWORK_CHARS},
};

/// An object with these fields and no others. `rules` are further members of its schema.
pub(super) fn object(fields: Value, rules: Value) -> Value {
    let mut schema = json!({"type": "object", "additionalProperties": false, "properties": fields});
    schema.as_object_mut().expect("an object").extend(rules.as_object().cloned().unwrap_or_default());
    schema
}

/// Fields under every name that they may have, and the rules that allow one of the names at a time.
pub(super) fn with_other_names(fields: Value) -> (Value, Vec<Value>) {
    let mut all = Map::new();
    let mut rules = Vec::new();
    for (name, schema) in fields.as_object().into_iter().flatten() {
        let mut names = vec![name.as_str()];
        names.extend(other_names(name));
        for (place, &one) in names.iter().enumerate() {
            let mut schema = schema.clone();
            if place > 0 {
                schema["description"] = format!("The same as `{name}`.").into();
            }
            all.insert(one.to_owned(), schema);
            rules.extend(names[..place].iter().map(|other| json!({"not": {"allOf": [present(one), present(other)]}})));
        }
    }
    (Value::Object(all), rules)
}

/// A field that may be absent, which null means as well.
pub(super) fn optional(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(Value::Array(types)) => types.push("null".into()),
        Some(one) => *one = json!([one.clone(), "null"]),
        None => {}
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
    schema
}

/// An object that has the field.
pub(super) fn present(name: &str) -> Value {
    json!({"type": "object", "required": [name], "properties": {name: {"not": {"type": "null"}}}})
}

/// An object that does not have the field.
pub(super) fn absent(name: &str) -> Value {
    json!({"properties": {name: {"type": "null"}}})
}

/// An object that has the field, under any of its names.
pub(super) fn present_as_any(name: &str) -> Value {
    let names: Vec<Value> = std::iter::once(name).chain(other_names(name).iter().copied()).map(present).collect();
    json!({"anyOf": names})
}

/// An id.
pub(super) fn id(description: &str, longest: usize) -> Value {
    json!({
        "description": description,
        "type": "string",
        "minLength": 1,
        "maxLength": longest,
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$",
    })
}

/// The most that calls may use.
pub(super) fn budget(description: &str) -> Value {
    let amount = |description: &str| {
        optional(json!({"description": description, "type": "integer", "minimum": 1, "maximum": MAX_BUDGET}))
    };
    optional(json!({
        "description": description,
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "calls": amount("How many calls may be made, those of checks and further attempts included."),
            "output_bytes": amount("How many bytes their results may have as JSON."),
            "tokens": amount("How many tokens models may use, of prompts and answers."),
            "cost": optional(json!({
                "description": "How many US dollars models may cost, by the prices of the settings.",
                "type": "number", "minimum": 0.000_001, "maximum": 1_000_000_000, "examples": [1.5],
            })),
            "on_exhausted": optional(json!({
                "description": "The reaction when a call finds nothing left: the execution is paused until a person resumes it, the step fails, or the next model of `agent.fallback` is asked, and the step fails where there is none.",
                "enum": ["pause", "fail", "next_fallback"], "default": "pause",
            })),
        },
        "anyOf": [present("calls"), present("output_bytes"), present("tokens"), present("cost")],
    }))
}

/// A length of time.
pub(super) fn duration(description: &str) -> Value {
    let part = |unit: &str| format!("([0-9]{{1,15}}([.][0-9]{{1,9}})?{unit})?");
    let pattern = format!("^{}{}{}{}$", part("h"), part("m"), part("s"), part("ms"));
    json!({
        "description": format!("{description} More than 0, and at most {} hours.", MAX_DURATION.as_secs() / 3600),
        "type": "string",
        "minLength": 2,
        "pattern": pattern,
        "not": {"type": "string", "pattern": "^[0.hms]*$"},
        "examples": ["500ms", "10s", "5m", "1h30m"],
    })
}

/// The name of a network profile.
pub(super) fn network(description: &str) -> Value {
    optional(json!({
        "description": description,
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_NETWORK_CHARS,
        "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$",
    }))
}
