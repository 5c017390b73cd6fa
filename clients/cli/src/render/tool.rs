//! Tools on the screen.

use belay_proto::v1::Tool;
use serde_json::Value;

use super::{
    text::{Line, Style, table},
    time, words,
};

/// A table of tools.
pub(crate) fn list(tools: &[Tool]) -> Vec<Line> {
    let rows = tools.iter().map(|tool| {
        let hints = tool.annotations.clone().unwrap_or_default();
        let effect = match (hints.is_read_only(), hints.is_destructive()) {
            (true, _) => "reads",
            (_, true) => "may overwrite",
            _ => "writes",
        };
        vec![
            (Style::Strong, tool.name.clone()),
            (Style::Dim, effect.to_owned()),
            (Style::Plain, first_sentence(&tool.description).to_owned()),
        ]
    });
    table(&rows.collect::<Vec<_>>())
}

/// Everything about one tool.
pub(crate) fn describe(tool: &Tool) -> Vec<Line> {
    let hints = tool.annotations.clone().unwrap_or_default();
    let mut lines = vec![Line::default().and(Style::Strong, &tool.name)];
    lines.extend(tool.description.lines().map(|line| Line::new(format!("  {line}"))));
    let recovery = words::word(tool.recovery().as_str_name(), "RECOVERY_CLASS_");
    let effects = [
        (hints.is_read_only(), "read-only"),
        (hints.is_destructive(), "destructive"),
        (hints.is_idempotent() && !hints.is_read_only(), "idempotent"),
        (hints.is_open_world(), "reaches outside the workspace"),
    ];
    let effects: Vec<&str> = effects.iter().filter(|(holds, _)| *holds).map(|(_, words)| *words).collect();
    let facts = [
        ("also called", tool.aliases.join(", ")),
        ("title", hints.title),
        ("effect", effects.join(", ")),
        ("after a loss", recovery),
        (
            "time limit",
            tool.default_timeout.as_ref().map(|limit| time::short(time::duration(limit))).unwrap_or_default(),
        ),
    ];
    let facts: Vec<_> = facts
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![(Style::Dim, name.to_owned()), (Style::Plain, value)])
        .collect();
    lines.extend(table(&facts));
    lines.extend(fields("arguments", &tool.parameters_schema));
    lines.extend(fields("result", &tool.result_schema));
    lines
}

/// The properties of a JSON Schema; the schema itself if it has none.
fn fields(heading: &str, schema: &str) -> Vec<Line> {
    if schema.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![Line::default().and(Style::Strong, heading)];
    let parsed: Value = serde_json::from_str(schema).unwrap_or_default();
    let Some(properties) = parsed["properties"].as_object() else {
        lines.push(Line::new(format!("  {schema}")));
        return lines;
    };
    let is_required = |name: &str| {
        parsed["required"].as_array().is_some_and(|required| required.iter().any(|entry| entry.as_str() == Some(name)))
    };
    let rows = properties.iter().map(|(name, property)| {
        let kind = match &property["type"] {
            Value::String(kind) => kind.clone(),
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
            _ => String::new(),
        };
        let required = if is_required(name) { "required" } else { "" };
        vec![
            (Style::Plain, name.clone()),
            (Style::Dim, kind),
            (Style::Warn, required.to_owned()),
            (Style::Plain, property["description"].as_str().unwrap_or_default().to_owned()),
        ]
    });
    lines.extend(table(&rows.collect::<Vec<_>>()));
    lines
}

fn first_sentence(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(". ").map_or(line, |(sentence, _)| sentence)
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{RecoveryClass, ToolAnnotations};

    use super::*;

    fn tool() -> Tool {
        Tool {
            takes_network: false,
            name: "read_file".to_owned(),
            aliases: vec!["cat".to_owned()],
            description: "Reads a file. All of it.".to_owned(),
            parameters_schema: r#"{"type":"object","required":["path"],"properties":{
                "encoding":{"type":["string","null"]},"path":{"type":"string","description":"Inside the workspace."}}}"#
                .to_owned(),
            result_schema: "true".to_owned(),
            recovery: RecoveryClass::ReadOnly.into(),
            default_timeout: Some(pbjson_types::Duration { seconds: 120, nanos: 0 }),
            annotations: Some(ToolAnnotations {
                read_only: Some(true),
                open_world: Some(false),
                title: "Read a file".to_owned(),
                ..Default::default()
            }),
        }
    }

    fn text(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.render(false)).collect()
    }

    #[test]
    fn a_tool_shows_what_it_takes_and_gives() {
        assert_eq!(
            text(&describe(&tool())),
            [
                "read_file",
                "  Reads a file. All of it.",
                "  also called   cat",
                "  title         Read a file",
                "  effect        read-only",
                "  after a loss  read_only",
                "  time limit    2m",
                "arguments",
                "  encoding  string or null",
                "  path      string          required  Inside the workspace.",
                "result",
                "  true",
            ]
        );
        assert_eq!(text(&list(&[tool()])), ["  read_file  reads  Reads a file"]);
    }
}
