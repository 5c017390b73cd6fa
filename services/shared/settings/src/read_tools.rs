//! Reads the section `tools`.

use std::{collections::BTreeSet, time::Duration};

use belay_condition::Condition;
use belay_yaml::{Node, Reader, Value, nearest, seconds, shown};
use serde_json::{Map, Value as Json, json};

use crate::{
    CommandTool, ToolOutput, ToolRecovery, ValueWithOrigin,
    read_env::{MAX_ENTRIES, env},
    tools::{Piece, Word, Words, pieces},
};

const TOOL: &str = "aliases title description command cwd env parameters result preconditions postconditions output recovery annotations asks network reveals timeout";
const ANNOTATIONS: &str = "destructive idempotent open_world";

/// How many conditions a tool may have before its program, and after it, as a step.
const MAX_CONDITIONS: usize = 20;
/// The longest name of a tool, as in plans.
const MAX_NAME: usize = 128;
/// The longest time limit, in seconds: a day.
const MAX_TIMEOUT: u64 = 86_400;
/// The default time limit, in seconds, which is that of `run_terminal`.
const TIMEOUT: u64 = 120;

/// Reads all tools. An invalid one adds violations and is left out.
pub(crate) fn tools(reader: &mut Reader, node: &Node, field: &str) -> Vec<ValueWithOrigin<CommandTool>> {
    let mut tools: Vec<ValueWithOrigin<CommandTool>> = Vec::new();
    let mut names = BTreeSet::new();
    reader.map(node, field, |reader, name, field, node| {
        if !is_name(name) {
            reader.refuse(field, node.line, NAME_RULE);
        }
        if let Some(tool) = tool(reader, node, field, name) {
            for name in std::iter::once(&tool.name).chain(&tool.aliases) {
                if !names.insert(name.clone()) {
                    reader.refuse(field, node.line, format!("`{}` is the name of another tool, too", shown(name)));
                }
            }
            tools.push(ValueWithOrigin::on_line(tool, reader.line_of(field)));
        }
        Ok(())
    });
    if tools.len() > MAX_ENTRIES {
        reader.refuse(field, node.line, format!("has {} tools, but the limit is {MAX_ENTRIES}", tools.len()));
    }
    tools
}

const NAME_RULE: &str =
    "is not a tool's name: it has 1 to 128 letters, digits, `-`, `_` and `.`, beginning with a letter or a digit";

fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn tool(reader: &mut Reader, node: &Node, field: &str, name: &str) -> Option<CommandTool> {
    let before = reader.violations().len();
    let mut tool = CommandTool {
        name: name.to_owned(),
        aliases: Vec::new(),
        title: String::new(),
        description: String::new(),
        command: Vec::new(),
        cwd: String::new(),
        env: Vec::new(),
        parameters: json!({"type": "object", "properties": {}, "additionalProperties": false}),
        result: None,
        preconditions: Vec::new(),
        postconditions: Vec::new(),
        output: ToolOutput::Command,
        recovery: ToolRecovery::Transactional,
        destructive: true,
        idempotent: false,
        open_world: false,
        asks: false,
        network: None,
        reveals: Vec::new(),
        timeout: Duration::from_secs(TIMEOUT),
    };
    let mut output = None;
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "aliases" => tool.aliases = reader.list(node, field, alias),
            "title" => tool.title = reader.text(node, field).unwrap_or_default(),
            "description" => tool.description = reader.text(node, field).unwrap_or_default(),
            "command" => tool.command = command(reader, node, field),
            "cwd" => tool.cwd = reader.text(node, field).unwrap_or_default(),
            "env" => tool.env = env(reader, node, field).into_iter().map(|(name, value)| (name, value.value)).collect(),
            "parameters" => {
                if let Some(schema) = schema(reader, node, field) {
                    tool.parameters = of_object(reader, node, field, schema);
                }
            }
            "result" => tool.result = schema(reader, node, field).map(Json::Object),
            "preconditions" => tool.preconditions = conditions(reader, node, field, CommandTool::BEFORE),
            "postconditions" => tool.postconditions = conditions(reader, node, field, CommandTool::AFTER),
            "output" => output = reader.one_of(node, field, &ToolOutput::WORDS),
            "recovery" => reader.word(node, field, &ToolRecovery::WORDS, &mut tool.recovery),
            "annotations" => reader.map(node, field, |reader, key, field, node| {
                match key {
                    "destructive" => reader.switch(node, field, &mut tool.destructive),
                    "idempotent" => reader.switch(node, field, &mut tool.idempotent),
                    "open_world" => reader.switch(node, field, &mut tool.open_world),
                    _ => return Err(ANNOTATIONS),
                }
                Ok(())
            }),
            "asks" => reader.switch(node, field, &mut tool.asks),
            "network" => tool.network = reader.text(node, field),
            "reveals" => tool.reveals = reader.list(node, field, Reader::text),
            "timeout" => match timeout(node) {
                Some(timeout) => tool.timeout = timeout,
                None => reader.refuse(
                    field,
                    node.line,
                    "must be a whole number with a unit, such as 90s or 15m, and at most 24h",
                ),
            },
            _ => return Err(TOOL),
        }
        Ok(())
    });
    // A schema of the result is about what the program says, which is then JSON.
    tool.output = output.unwrap_or(if tool.result.is_some() { ToolOutput::Json } else { ToolOutput::Command });
    if !reader.has_read(&format!("{field}.command")) {
        reader.refuse(
            field,
            node.line,
            "has no `command`: add the program and its arguments, such as [python3, /opt/skills/seo.py, \"${text}\"]",
        );
    }
    if tool.result.is_some() && tool.output == ToolOutput::Command {
        let result = format!("{field}.result");
        let line = reader.line_of(&result);
        reader.refuse(&result, line, "is the schema of what the program prints, and `output: command` returns both streams: write `output: json`, or remove it");
    }
    if reader.violations().len() == before {
        arguments(reader, &tool, field);
    }
    (reader.violations().len() == before).then_some(tool)
}

/// Reads conditions: expressions in which these variables are known.
fn conditions(reader: &mut Reader, node: &Node, field: &str, variables: &[&str]) -> Vec<String> {
    let conditions = reader.list(node, field, |reader, node, field| {
        let expression = match &node.value {
            Value::Bool(constant) => constant.to_string(),
            _ => reader.text(node, field)?,
        };
        match Condition::new(&expression, variables) {
            Ok(_) => Some(expression),
            Err(error) => {
                let known = variables.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                reader.refuse(field, node.line, format!("cannot be read: {error}; it is an expression about {known}"));
                None
            }
        }
    });
    if conditions.len() > MAX_CONDITIONS {
        let message = format!("has {} entries, but the limit is {MAX_CONDITIONS}", conditions.len());
        reader.refuse(field, node.line, message);
    }
    conditions
}

fn alias(reader: &mut Reader, node: &Node, field: &str) -> Option<String> {
    let alias = reader.text(node, field)?;
    if is_name(&alias) {
        return Some(alias);
    }
    reader.refuse(field, node.line, NAME_RULE);
    None
}

fn timeout(node: &Node) -> Option<Duration> {
    let Value::Text(text) = &node.value else { return None };
    seconds(text).filter(|seconds| (1..=MAX_TIMEOUT).contains(seconds)).map(Duration::from_secs)
}

/// A JSON Schema, of which only the outermost shape is checked here.
fn schema(reader: &mut Reader, node: &Node, field: &str) -> Option<Map<String, Json>> {
    match node.to_json() {
        Json::Object(schema) => Some(schema),
        _ => {
            reader.refuse(
                field,
                node.line,
                "must be a JSON Schema, a mapping such as {type: object, properties: {topic: {type: string}}}",
            );
            None
        }
    }
}

/// The schema of arguments, which are always an object, and of which the tool understands those that it names.
fn of_object(reader: &mut Reader, node: &Node, field: &str, mut schema: Map<String, Json>) -> Json {
    if schema.get("type").is_some_and(|kind| kind != "object") {
        reader.refuse(&format!("{field}.type"), node.line, "must be `object`: arguments have names");
    }
    if schema.get("properties").is_some_and(|properties| !properties.is_object()) {
        reader.refuse(&format!("{field}.properties"), node.line, "must be a mapping from names to schemas");
    }
    schema.insert("type".to_owned(), "object".into());
    schema.entry("properties").or_insert(json!({}));
    schema.entry("additionalProperties").or_insert(false.into());
    Json::Object(schema)
}

fn command(reader: &mut Reader, node: &Node, field: &str) -> Vec<Words> {
    let command = reader.non_empty_list(node, field, |reader, node, field| match &node.value {
        Value::List(_) => {
            let words = reader.non_empty_list(node, field, word);
            if !words.iter().flatten().any(|piece| matches!(piece, Piece::Argument(_))) {
                reader.refuse(
                    field,
                    node.line,
                    "is left out when an argument in it is not given, and has none: write the words without the list",
                );
            }
            Some(Words { words, optional: true })
        }
        _ => Some(Words { words: vec![word(reader, node, field)?], optional: false }),
    });
    let program = command.first();
    let is_fixed = |words: &Words| {
        !words.optional
            && words.words.iter().flatten().all(|piece| matches!(piece, Piece::Text(text) if !text.is_empty()))
    };
    if program.is_some_and(|words| !is_fixed(words)) {
        let first = format!("{field}[0]");
        let line = reader.line_of(&first);
        reader.refuse(&first, line, "is the program, which no argument of a call decides: write its name or path");
    }
    scripts(reader, &command, field);
    command
}

/// The interpreters that take a script as a word, and how that is announced.
const INTERPRETERS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "python", "perl", "ruby", "node"];
const SCRIPT_FLAGS: [&str; 6] = ["-c", "-e", "-lc", "-ec", "-euc", "--eval"];

/// Whether this is the name of an interpreter, with or without a version.
fn is_interpreter(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

/// Refuses arguments in the text of a script: the author of a plan could then run anything in it.
fn scripts(reader: &mut Reader, command: &[Words], field: &str) {
    let text = |words: &Words| match words.words.as_slice() {
        [word] => match word.as_slice() {
            [Piece::Text(text)] => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    if !command.first().and_then(text).is_some_and(|program| is_interpreter(&program)) {
        return;
    }
    for (position, pair) in command.windows(2).enumerate() {
        let has_argument = pair[1].words.iter().flatten().any(|piece| matches!(piece, Piece::Argument(_)));
        if has_argument && text(&pair[0]).is_some_and(|flag| SCRIPT_FLAGS.contains(&flag.as_str())) {
            let field = format!("{field}[{}]", position + 1);
            let line = reader.line_of(&field);
            reader.refuse(&field, line, "is a script with an argument of the call in its text, which would be run as a part of it: pass the argument as a word after the script, and read it there (`$1`, `sys.argv[1]`)");
        }
    }
}

fn word(reader: &mut Reader, node: &Node, field: &str) -> Option<Word> {
    let text = match &node.value {
        // `-n 3` is a word as well.
        Value::Number(number) => number.to_string(),
        _ => reader.text(node, field)?,
    };
    if text.contains('\0') {
        reader.refuse(field, node.line, "contains NUL, which no argument of a program can");
        return None;
    }
    pieces(&text).map_err(|why| reader.refuse(field, node.line, why)).ok()
}

/// Checks that the command names parameters, and that none of them can be missing where it is needed.
fn arguments(reader: &mut Reader, tool: &CommandTool, field: &str) {
    let none = Map::new();
    let properties = tool.parameters["properties"].as_object().unwrap_or(&none);
    let required = tool.parameters["required"].as_array();
    let is_required = |name: &str| required.into_iter().flatten().any(|required| required == name);
    for (position, Words { words, optional }) in tool.command.iter().enumerate() {
        let field = format!("{field}.command[{position}]");
        let line = reader.line_of(&field);
        for piece in words.iter().flatten() {
            let Piece::Argument(name) = piece else { continue };
            let word = shown(name);
            match properties.get(name) {
                None => {
                    let near = nearest(name, properties.keys().map(String::as_str));
                    let hint = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
                    reader.refuse(&field, line, format!("`${{{word}}}` is not a parameter: add `{word}` to `parameters.properties`, or write `$${{{word}}}` for that text itself{hint}"));
                }
                Some(schema) if !optional && !is_required(name) && schema.get("default").is_none() => {
                    reader.refuse(&field, line, format!("needs `{word}`, which a call may leave out: add it to `parameters.required`, give it a `default`, or put the words that need it into a list of their own, such as [--{word}, \"${{{word}}}\"]"));
                }
                Some(_) => {}
            }
        }
    }
}
