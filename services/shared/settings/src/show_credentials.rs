//! Lists the credentials: where each comes from and where it may go, and never its value.

use belay_network::{Credential, CredentialSource, Placement};

use crate::{OperatorCredential, Row, ValueWithOrigin};

/// Each credential with its source, its place in requests, and the requests that it is for.
pub(crate) fn rows(credentials: &[ValueWithOrigin<OperatorCredential>]) -> impl Iterator<Item = Row> {
    credentials.iter().flat_map(of_credential)
}

fn of_credential(credential: &ValueWithOrigin<OperatorCredential>) -> Vec<Row> {
    let Credential { name, placement, hosts, methods, paths, variable, placeholder } = &credential.value.credential;
    let row = |key: &str, value: String| Row {
        key: format!("credentials.{name}.{key}"),
        value,
        origin: credential.origin.clone(),
    };
    let or_all = |list: &[String]| if list.is_empty() { "all".to_owned() } else { list.join(", ") };
    let mut rows = vec![row(credential.value.source_key(), source(&credential.value.source))];
    match placement {
        Placement::Header { name, prefix } => {
            rows.push(row("header", name.clone()));
            rows.push(row("prefix", if prefix.is_empty() { "none".to_owned() } else { format!("`{prefix}`") }));
        }
        Placement::Basic { user } => rows.push(row("basic", user.clone())),
        Placement::Query { name } => rows.push(row("query", name.clone())),
    }
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    rows.push(row("hosts", hosts.join(", ")));
    rows.push(row("methods", or_all(methods)));
    rows.push(row("paths", or_all(paths)));
    rows.push(row("variable", variable.clone().unwrap_or_else(|| "none".to_owned())));
    if !placeholder.is_empty() {
        rows.push(row("placeholder", placeholder.clone()));
    }
    rows
}

/// The source, without the arguments of a command, which may be secret themselves.
fn source(source: &CredentialSource) -> String {
    match source {
        CredentialSource::File(file) => file.display().to_string(),
        CredentialSource::Environment(name) | CredentialSource::Systemd(name) => name.clone(),
        CredentialSource::Command(words) => match words.as_slice() {
            [] => String::new(),
            [program] => program.clone(),
            [program, _] => format!("{program} (1 argument)"),
            [program, arguments @ ..] => format!("{program} ({} arguments)", arguments.len()),
        },
    }
}
