//! Reads the section `credentials`.
//!
//! No message repeats the text of a source: somebody may have written the value itself there.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use belay_network::{Credential, CredentialSource, DraftCredential};
use belay_yaml::{Node, Reader, Value, shown};

use crate::{
    OperatorCredential, ValueWithOrigin,
    paths::absolute,
    read_env::{is_name, own_variable_problem},
    read_values::{filled_text, is_empty_list, request_limits},
};

const CREDENTIAL: &str =
    "file environment systemd command header prefix basic query hosts methods paths variable placeholder clear_text";
const SOURCES: [&str; 4] = ["file", "environment", "systemd", "command"];

/// The most credentials.
const MAX_CREDENTIALS: usize = 100;
/// The most words of a command.
const MAX_WORDS: usize = 100;
/// The longest name of a credential of systemd.
const MAX_SYSTEMD_NAME: usize = 255;

/// The credentials of a file.
#[derive(Debug, Default)]
pub(crate) struct ReadCredentials {
    /// The valid ones.
    pub(crate) valid: Vec<ValueWithOrigin<OperatorCredential>>,
    /// The names of the others.
    refused: BTreeSet<String>,
    /// Whether the section has no names at all, because it is not a mapping.
    has_no_names: bool,
}

impl ReadCredentials {
    /// Whether the credential of this name is invalid, so that nothing can be said about a rule that names it.
    pub(crate) fn is_refused(&self, name: &str) -> bool {
        self.has_no_names || self.refused.contains(name)
    }

    /// The valid ones, for the rules that name them.
    pub(crate) fn of_rules(&self) -> Vec<Credential> {
        self.valid.iter().map(|credential| credential.value.credential.clone()).collect()
    }
}

/// Refuses programs that get a credential which does not exist, or has no variable: each with the field that declares it.
pub(crate) fn of_programs<'a>(
    reader: &mut Reader,
    programs: impl IntoIterator<Item = (String, &'a [String])>,
    credentials: &ReadCredentials,
) {
    let valid = |name: &str| {
        let mut valid = credentials.valid.iter().map(|known| &known.value.credential);
        valid.find(|known| known.name == name)
    };
    for (declared, reveals) in programs {
        let mut variables = BTreeSet::new();
        for (place, name) in reveals.iter().enumerate() {
            let field = format!("{declared}.reveals[{place}]");
            let line = reader.line_of(&field);
            match valid(name).map(|known| known.variable.as_ref()) {
                _ if credentials.is_refused(name) => {}
                None => {
                    let all: Vec<&str> =
                        credentials.valid.iter().map(|known| known.value.credential.name.as_str()).collect();
                    let known = if all.is_empty() {
                        "there is none".to_owned()
                    } else {
                        format!("there are {}", all.join(", "))
                    };
                    reader.refuse(&field, line, format!("`{}` is not in `credentials`, where {known}", shown(name)));
                }
                Some(None) => {
                    let message = format!(
                        "`{}` has no variable in which the program gets its value: add `credentials.{}.variable`",
                        shown(name),
                        shown(name)
                    );
                    reader.refuse(&field, line, message);
                }
                Some(Some(variable)) if !variables.insert(variable) => {
                    let kind = if declared.starts_with("tools.") { "tool" } else { "server" };
                    let message =
                        format!("`{}` has the variable of another credential that this {kind} reveals", shown(name));
                    reader.refuse(&field, line, message);
                }
                Some(Some(_)) => {}
            }
        }
    }
}

/// Reads all credentials. An invalid one adds violations and is left out.
pub(crate) fn credentials(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>) -> ReadCredentials {
    let mut credentials =
        ReadCredentials { has_no_names: !matches!(node.value, Value::Map(_)), ..ReadCredentials::default() };
    let mut count = 0;
    reader.map(node, field, |reader, name, field, node| {
        count += 1;
        match credential(reader, node, field, name, home) {
            Some(credential) => {
                credentials.valid.push(ValueWithOrigin::on_line(credential, reader.line_of(field)));
            }
            None => {
                credentials.refused.insert(name.to_owned());
            }
        }
        Ok(())
    });
    if count > MAX_CREDENTIALS {
        let message = format!("has {count} credentials, but the limit is {MAX_CREDENTIALS}");
        reader.refuse(field, reader.line_of(field), message);
    }
    credentials
}

/// The sources that are written, as texts.
#[derive(Default)]
struct Sources {
    file: Option<String>,
    environment: Option<String>,
    systemd: Option<String>,
    command: Option<Vec<String>>,
}

fn credential(
    reader: &mut Reader,
    node: &Node,
    field: &str,
    name: &str,
    home: Option<&Path>,
) -> Option<OperatorCredential> {
    let before = reader.violations().len();
    let mut draft = DraftCredential { name: name.to_owned(), ..DraftCredential::default() };
    let mut sources = Sources::default();
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "file" => sources.file = reader.text(node, field),
            "environment" => sources.environment = reader.text(node, field),
            "systemd" => sources.systemd = reader.text(node, field),
            "command" => sources.command = words(reader, node, field),
            "header" => draft.header = reader.text(node, field),
            // Empty for a header that has the value alone.
            "prefix" => draft.prefix = reader.text(node, field),
            "basic" => draft.basic = reader.text(node, field),
            "query" => draft.query = reader.text(node, field),
            "hosts" => draft.hosts = reader.list(node, field, Reader::text),
            "methods" => draft.methods = request_limits(reader, node, field, key),
            "paths" => draft.paths = request_limits(reader, node, field, key),
            "variable" => {
                draft.variable = reader.text(node, field);
                if let Some(problem) = draft.variable.as_deref().and_then(own_variable_problem) {
                    reader.refuse(field, node.line, problem);
                    draft.variable = None;
                }
            }
            "placeholder" => draft.placeholder = filled_text(reader, node, field),
            "clear_text" => reader.switch(node, field, &mut draft.clear_text),
            _ => return Err(CREDENTIAL),
        }
        Ok(())
    });
    // What could not be read would be missed by the checks of the whole.
    let is_read = reader.violations().len() == before;
    if !matches!(node.value, Value::Map(_)) {
        return None;
    }
    let source = source(reader, sources, field, home);
    if !is_read {
        return None;
    }
    match Credential::new(&draft) {
        Ok(credential) => Some(OperatorCredential { credential, source: source? }),
        Err(problems) => {
            for problem in problems {
                let field = format!("credentials.{}", shown(&problem.field));
                reader.refuse(&field, reader.line_of(&field), problem.message);
            }
            None
        }
    }
}

/// The only source of a credential.
fn source(reader: &mut Reader, sources: Sources, field: &str, home: Option<&Path>) -> Option<CredentialSource> {
    let line = reader.line_of(field);
    let written: Vec<String> = SOURCES
        .into_iter()
        .filter(|key| reader.has_read(&format!("{field}.{key}")))
        .map(|key| format!("`{key}`"))
        .collect();
    if written.is_empty() {
        let message = "has no source of its value: add `file`, `environment`, `systemd` or `command`, such as file: /etc/belay/github.token";
        reader.refuse(field, line, message);
    } else if written.len() > 1 {
        let message = format!("has {}: a credential has one source of its value, so keep one", written.join(" and "));
        reader.refuse(field, line, message);
    }
    let before = reader.violations().len();
    let mut refuse = |key: &str, message: &str| {
        let field = format!("{field}.{key}");
        let line = reader.line_of(&field);
        reader.refuse(&field, line, message);
    };
    let mut found = None;
    if let Some(text) = sources.file {
        match path(&text, home) {
            Some(path) => found = Some(CredentialSource::File(path)),
            None => refuse("file", "must be an absolute path without `..`, such as /etc/belay/github.token"),
        }
    }
    if let Some(name) = sources.environment {
        if !is_name(&name) {
            refuse("environment", "must be the name of a variable of the service: letters, digits and `_`");
        }
        found = Some(CredentialSource::Environment(name));
    }
    if let Some(name) = sources.systemd {
        if !is_systemd_name(&name) {
            refuse(
                "systemd",
                "must be the name of a credential of systemd, as `LoadCredential=` in the unit has it before the `:`, such as github",
            );
        }
        found = Some(CredentialSource::Systemd(name));
    }
    if let Some(mut words) = sources.command {
        match words.first().map(|program| path(program, home).and_then(|path| path.to_str().map(str::to_owned))) {
            Some(Some(program)) => {
                words[0] = program;
                found = Some(CredentialSource::Command(words));
            }
            Some(None) => refuse(
                "command[0]",
                "must be the absolute path of a program without `..`, such as /usr/bin/pass: no PATH is searched",
            ),
            None => {}
        }
    }
    found.filter(|_| written.len() == 1 && reader.violations().len() == before)
}

fn path(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    absolute(text, home).ok()
}

/// Whether systemd has credentials of this name (`credential_name_valid`): the name of a file without `:`.
fn is_systemd_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_SYSTEMD_NAME
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:".contains(&byte))
}

/// Reads the program and its arguments.
fn words(reader: &mut Reader, node: &Node, field: &str) -> Option<Vec<String>> {
    if is_empty_list(node) {
        reader.refuse(field, node.line, "is empty: add the program and its arguments, such as [/usr/bin/pass, github]");
        return None;
    }
    let before = reader.violations().len();
    let words = reader.list(node, field, |reader, node, field| {
        let word = match &node.value {
            // `-n 3` is a word as well.
            Value::Number(number) => number.to_string(),
            _ => reader.text(node, field)?,
        };
        if word.contains('\0') {
            reader.refuse(field, node.line, "contains NUL, which no argument of a program can");
            return None;
        }
        Some(word)
    });
    if words.len() > MAX_WORDS {
        reader.refuse(field, node.line, format!("has {} entries, but the limit is {MAX_WORDS}", words.len()));
    }
    (reader.violations().len() == before).then_some(words)
}
