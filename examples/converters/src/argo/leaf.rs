//! Templates that run something: containers and scripts, and those that wait.

use serde_json::{Map, Value, json};

use super::values::Values;
use crate::{
    fields::{Field, Fields, Homeless, Refusal},
    left_out::Report,
    plan::{Step, duration},
    text::Text,
};

pub(super) const ONE_MACHINE: &str = "all steps run on the machine of the tool runner";

const NO_IMAGE: (&str, &str) = (
    "commands run in Belay's sandbox, not in an image",
    "the operator shows toolchains to commands: `commands.read_only`",
);

const CONTAINER_KEYS: [Homeless; 9] = [
    ("image", NO_IMAGE.0, NO_IMAGE.1),
    ("imagePullPolicy", NO_IMAGE.0, ""),
    ("workingDir", "a folder of the image", "write `cwd`, a folder of the workspace"),
    ("resources", "the operator limits commands", "`commands.limits` in the settings"),
    ("volumeMounts", "commands see the workspace alone", "put files into the workspace"),
    ("envFrom", "variables come from the plan or the operator", "`env` of the step, or `commands.env` in the settings"),
    ("ports", "nothing is reachable from outside of a command", ""),
    ("securityContext", "the sandbox has no privileges", ""),
    ("name", "a command has the name of its step", ""),
];

/// Kinds of templates that a plan does not have.
const HOMELESS: [Homeless; 5] = [
    ("resource", "a plan has no resources of Kubernetes", "declare a tool that manages them"),
    ("http", "its tool needs a network", "declare a tool with a `network` that reaches the server"),
    ("data", "a plan lists no artifacts", "let a command write the list, and use `for_each`"),
    ("containerSet", "a command runs alone", "write a step for each container"),
    ("plugin", "a plan has no plugins", "declare a tool that does it"),
];

/// Parts of a command's output that later tasks read.
#[derive(Clone, Debug, Default)]
pub(super) struct Captures {
    /// Whether its standard output is read as text.
    pub(super) result: bool,
    /// Whether its standard output is read as a list, in JSON.
    pub(super) list: bool,
    /// Output parameters, by their names the files.
    pub(super) files: Vec<(String, String)>,
}

/// Quotes the text on standard input for JSON.
const QUOTE: &str =
    r#"quote() { sed 's/\\/\\\\/g; s/"/\\"/g; s/	/\\t/g' | awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'; }"#;

impl Captures {
    /// The words of a command that runs another and appends its outputs to the file of `BELAY_OUTPUT`.
    fn around(&self, words: Vec<Text>) -> Vec<Text> {
        if !self.result && !self.list && self.files.is_empty() {
            return words;
        }
        let mut lines = vec![QUOTE.to_owned()];
        if self.result || self.list {
            lines.extend(["out=$(\"$@\")".to_owned(), "printf '%s\\n' \"$out\"".to_owned()]);
            lines.push(match self.list {
                true => {
                    r#"printf '{"result": %s}\n' "$(printf '%s' "$out" | tr -d '\n')" >>"$BELAY_OUTPUT""#.to_owned()
                }
                false => r#"printf '{"result": "%s"}\n' "$(printf '%s' "$out" | quote)" >>"$BELAY_OUTPUT""#.to_owned(),
            });
        } else {
            lines.push("\"$@\"".to_owned());
        }
        for (name, file) in &self.files {
            lines.push(format!(r#"printf '{{"{name}": "%s"}}\n' "$(quote <'{file}')" >>"$BELAY_OUTPUT""#));
        }
        let before = ["sh".to_owned(), "-ec".to_owned(), lines.join("\n"), "sh".to_owned()];
        before.into_iter().map(Text::literal).chain(words).collect()
    }
}

/// Converts what a template runs. `fields` are those of the template.
pub(super) fn convert(
    id: &str,
    fields: &mut Fields<'_>,
    captures: &Captures,
    values: &mut Values,
    report: &mut Report,
) -> Result<Step, Refusal> {
    if let Some(suspend) = fields.take("suspend") {
        return wait(id, &suspend, fields, report);
    }
    let (container, script) = (fields.take("container"), fields.take("script"));
    let (all, is_script) = match (&container, &script) {
        (Some(container), None) => (container, false),
        (None, Some(script)) => (script, true),
        _ => {
            let found = HOMELESS.iter().find_map(|(key, why, instead)| Some((fields.take(key)?, *key, *why, *instead)));
            return match found {
                Some((field, key, why, instead)) => {
                    report.add(&field, format!("template {key}"), format!("{why}: its step does nothing"), instead);
                    Ok(Step::noop(id, Value::Null))
                }
                None => Err(fields.all.refused("has none of `container`, `script`, `steps`, `dag` and `suspend`: the converter knows no other templates")),
            };
        }
    };
    let mut inner = all.fields()?;
    let mut words = Vec::new();
    for key in ["command", "args"] {
        for word in inner.take(key).map(|words| words.items()).unwrap_or_default() {
            words.push(values.text(&word.text().unwrap_or_default(), &word, report));
        }
    }
    let source = inner.take("source");
    let env = inner.take("env").map(|env| variables(&env, values, report)).transpose()?.unwrap_or_default();
    inner.leave_rest(report, &CONTAINER_KEYS);
    let interpreter = words.first().and_then(Text::constant).unwrap_or_default().to_owned();
    if let (true, Some(source)) = (is_script, &source) {
        let option = match interpreter.rsplit('/').next().unwrap_or_default() {
            "sh" | "bash" | "ash" | "python" | "python3" | "python2" => "-c",
            "node" | "perl" | "ruby" => "-e",
            _ => {
                report.add(
                    source,
                    format!("script of {interpreter}"),
                    "the converter does not know how to hand it the script: its step does nothing",
                    "write the command",
                );
                return Ok(Step::noop(id, Value::Null));
            }
        };
        words.push(Text::literal(option));
        words.push(values.text(&source.needed_text()?, source, report));
    } else if interpreter.is_empty() || interpreter.starts_with('-') || all.fields()?.take("command").is_none() {
        report.add(
            all,
            "command of an image",
            "the program that the image starts is not known: its step does nothing",
            "write the command",
        );
        return Ok(Step::noop(id, Value::Null));
    }
    let mut step = Step::command(id, &captures.around(words));
    if !env.is_empty() {
        step.arguments.insert("env".to_owned(), Value::Object(env));
    }
    Ok(step)
}

fn variables(env: &Field<'_>, values: &mut Values, report: &mut Report) -> Result<Map<String, Value>, Refusal> {
    let mut variables = Map::new();
    for variable in env.items() {
        let mut fields = variable.fields()?;
        let name = fields.need("name")?.needed_text()?;
        match fields.take("value") {
            Some(value) => {
                let text = values.text(&value.text().unwrap_or_default(), &value, report);
                variables.insert(name, json!(text.template()));
            }
            None => {
                if let Some(from) = fields.take("valueFrom") {
                    report.add(
                        &from,
                        "env valueFrom",
                        format!("`{name}` comes from Kubernetes, and is not set"),
                        "the operator sets variables: `commands.env` in the settings",
                    );
                }
            }
        }
        fields.leave_rest(report, &[]);
    }
    Ok(variables)
}

/// A wait for a time, for a person's values, or for a signal with the step's name.
fn wait(id: &str, suspend: &Field<'_>, template: &mut Fields<'_>, report: &mut Report) -> Result<Step, Refusal> {
    let mut fields = suspend.fields()?;
    let mut step = Step { id: id.to_owned(), ..Step::default() };
    let supplied = supplied(template)?;
    let time = fields.take("duration").and_then(|time| time.text());
    step.wait = Some(match time.as_deref().map(seconds) {
        Some(Some(time)) => json!({"for": time}),
        _ if !supplied.is_empty() => {
            let title = format!("Values for {id}");
            json!({"form": {"title": title, "schema": {"type": "object", "required": supplied.keys().collect::<Vec<_>>(), "properties": supplied}}})
        }
        _ => {
            let instead = format!("`belay executions signal ID {id}` instead of `argo resume`");
            report.add(suspend, "suspend", "the step waits for a signal", instead);
            json!({"signal": id})
        }
    });
    fields.leave_rest(report, &[]);
    Ok(step)
}

/// The parameters that a person supplies, as properties of a form.
fn supplied(template: &mut Fields<'_>) -> Result<Map<String, Value>, Refusal> {
    let mut properties = Map::new();
    let outputs = template.all.fields()?.take("outputs").map(|outputs| outputs.fields()).transpose()?;
    let names: Vec<String> = outputs
        .and_then(|mut outputs| outputs.take("parameters"))
        .map(|all| all.items())
        .unwrap_or_default()
        .iter()
        .filter_map(|one| one.fields().ok()?.take("name")?.text())
        .collect();
    let inputs = template.all.fields()?.take("inputs").map(|inputs| inputs.fields()).transpose()?;
    for parameter in inputs.and_then(|mut inputs| inputs.take("parameters")).map(|all| all.items()).unwrap_or_default()
    {
        let mut fields = parameter.fields()?;
        let name = fields.need("name")?.needed_text()?;
        if !names.contains(&name) {
            continue;
        }
        let mut property = match fields.take("enum") {
            Some(values) => json!({"enum": values.items().iter().filter_map(Field::text).collect::<Vec<_>>()}),
            None => json!({"type": "string"}),
        };
        if let Some(default) =
            fields.take("default").or_else(|| fields.take("value")).and_then(|default| default.text())
        {
            property["default"] = json!(default);
        }
        if let Some(description) = fields.take("description").and_then(|text| text.text()) {
            property["description"] = json!(description);
        }
        properties.insert(name, property);
    }
    for name in names {
        properties.entry(name).or_insert_with(|| json!({"type": "string"}));
    }
    Ok(properties)
}

/// A duration such as `20`, in seconds, or `1h30m`.
pub(super) fn seconds(text: &str) -> Option<String> {
    let (mut total, mut number) = (0.0, String::new());
    for c in text.trim().chars() {
        let unit = match c {
            '0'..='9' | '.' => {
                number.push(c);
                continue;
            }
            'd' => 86_400.0,
            'h' => 3600.0,
            'm' => 60.0,
            's' => 1.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * unit;
        number.clear();
    }
    if !number.is_empty() {
        total += number.parse::<f64>().ok()?;
    }
    duration(total)
}
