//! `belay principals …`: who may call a server, and with which roles.

use std::path::PathBuf;

use belay_all_in_one::{IssuedToken, PrincipalEntry, PrincipalsFile, Role};
use belay_reasons as reasons;
use clap::{Args, Subcommand, builder::PossibleValuesParser, builder::TypedValueParser as _};
use serde_json::{Value, json};

use crate::{
    args::{Format, help},
    clock,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    render::{
        text::{Line, Style, table},
        time,
    },
};

/// Manage who may call a server, and with which roles
///
/// The owner of the state directory has every role and needs no entry. A running server applies a change from its next request on; no server
/// has to run.
#[derive(Args, Debug)]
pub(crate) struct Principals {
    /// The file of principals, for services in separate processes [default: principals.json in the state directory]
    #[arg(long, global = true, value_name = "FILE", env = "BELAY_PRINCIPALS", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Add(Add),
    List(List),
    Update(Update),
    Rotate(Rotate),
    Revoke(Revoke),
}

/// Add a principal, and show its token once
///
/// planner: starts executions, watches them, cancels its own. viewer: reads. approver: reads and decides. operator: everything.
#[derive(Args, Debug)]
#[command(after_help = help!("belay principals add ci-bot --role planner\n  belay principals add ann --role approver --uid 1001 --no-token"))]
struct Add {
    /// The name that stands in events and approvals
    #[arg(value_name = "NAME")]
    name: String,
    /// A role that it has; may be given several times
    #[arg(long = "role", value_name = "ROLE", required = true, value_parser = roles())]
    roles: Vec<Role>,
    /// A user id that authenticates as this principal over a unix socket; may be given several times
    #[arg(long = "uid", value_name = "UID")]
    uids: Vec<u32>,
    /// Create no token: only the users authenticate as this principal
    #[arg(long, requires = "uids")]
    no_token: bool,
}

/// List the principals, revoked ones too
#[derive(Args, Debug)]
#[command(after_help = help!("belay principals list"))]
struct List {}

/// Give a principal other roles or other users
#[derive(Args, Debug)]
#[command(after_help = help!("belay principals update ci-bot --role planner --role approver"))]
#[group(required = true, multiple = true, id = "what", args = ["roles", "uids", "no_uid"])]
struct Update {
    /// The principal
    #[arg(value_name = "NAME")]
    name: String,
    /// Its roles from now on, all of them; may be given several times
    #[arg(long = "role", value_name = "ROLE", value_parser = roles())]
    roles: Vec<Role>,
    /// Its users from now on, all of them; may be given several times
    #[arg(long = "uid", value_name = "UID")]
    uids: Vec<u32>,
    /// Remove all of its users
    #[arg(long, conflicts_with = "uids")]
    no_uid: bool,
}

/// Replace a principal's token, and show the new one once
///
/// The old token is refused from the next request on.
#[derive(Args, Debug)]
#[command(after_help = help!("belay principals rotate ci-bot"))]
struct Rotate {
    /// The principal
    #[arg(value_name = "NAME")]
    name: String,
}

/// Revoke a principal: its token and its users are rejected
///
/// The server rejects its next request and ends its streams within seconds. Its name cannot be used again. Executions that it started
/// continue.
#[derive(Args, Debug)]
#[command(after_help = help!("belay principals revoke ci-bot"))]
struct Revoke {
    /// The principal
    #[arg(value_name = "NAME")]
    name: String,
}

fn roles() -> impl clap::builder::TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|word| word.parse::<Role>())
}

/// Runs the subcommand.
pub(crate) fn principals(context: &Context, asked: &Principals) -> Result<Exit, Failure> {
    if let (Some(address), None) = (&context.target.server, &asked.file) {
        let message = format!(
            "principals are kept in the state directory of a server, and --server (or BELAY_SERVER) names {address}"
        );
        return Err(Report::new(reasons::INVALID_USAGE, message)
            .detail("run this command on the server's machine, as the user who owns its state directory")
            .into());
    }
    let file = match &asked.file {
        Some(path) => PrincipalsFile::at(path.clone()),
        None => PrincipalsFile::of_state_dir(&context.target.state_dir()?),
    };
    let now = i64::try_from(clock::now().as_secs()).unwrap_or(i64::MAX);
    match &asked.verb {
        Verb::List(List {}) => list(context, &file)?,
        Verb::Add(verb) => {
            if asked.file.is_none() {
                file.prepare_state_dir()?;
            }
            let added = file.add(&verb.name, &verb.roles, &verb.uids, !verb.no_token, now)?;
            show(context, "added", &added)?;
        }
        Verb::Update(verb) => {
            let roles = (!verb.roles.is_empty()).then_some(&*verb.roles);
            let uids = (verb.no_uid || !verb.uids.is_empty()).then_some(&*verb.uids);
            let entry = file.update(&verb.name, roles, uids)?;
            show(context, "updated", &IssuedToken { entry, token: None })?;
        }
        Verb::Rotate(verb) => show(context, "has a new token", &file.rotate(&verb.name, now)?)?,
        Verb::Revoke(verb) => {
            let entry = file.revoke(&verb.name, now)?;
            show(context, "revoked", &IssuedToken { entry, token: None })?;
        }
    }
    Ok(Exit::OK)
}

fn list(context: &Context, file: &PrincipalsFile) -> Result<(), Failure> {
    let entries = file.list()?;
    match context.screen.format {
        Format::Json => {
            let all: Vec<_> = entries.iter().map(|entry| as_json(entry, None)).collect();
            context.screen.print_json(&json!({ "principals": all }))?;
        }
        Format::Jsonl => {
            for entry in &entries {
                context.screen.print_json(&as_json(entry, None))?;
            }
        }
        Format::Text if entries.is_empty() => {
            let words =
                format!("no principals in {}: only the owner of the state directory may call", file.path().display());
            context.screen.say(&Line::new(words));
        }
        Format::Text => context.screen.print(&rows(&entries))?,
    }
    Ok(())
}

fn rows(entries: &[PrincipalEntry]) -> Vec<Line> {
    let head = ["name", "roles", "authenticates by", "since"].map(|word| (Style::Dim, word.to_owned())).to_vec();
    let row = |entry: &PrincipalEntry| {
        let (style, since) = match entry.revoked_at {
            Some(time) => (Style::Bad, format!("revoked {}", date(time))),
            None => (Style::Plain, date(entry.added_at)),
        };
        vec![
            (Style::Strong, entry.name.clone()),
            (Style::Plain, entry.roles.join(", ")),
            (Style::Plain, ways(entry)),
            (style, since),
        ]
    };
    table(&std::iter::once(head).chain(entries.iter().map(row)).collect::<Vec<_>>())
}

/// How a principal authenticates: `token, uid 1001`.
fn ways(entry: &PrincipalEntry) -> String {
    let token = entry.token_sha256.iter().map(|_| "token".to_owned());
    token.chain(entry.uids.iter().map(|uid| format!("uid {uid}"))).collect::<Vec<_>>().join(", ")
}

fn date(seconds: i64) -> String {
    time::date_and_time(&time::timestamp(std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
}

fn show(context: &Context, what: &str, IssuedToken { entry, token }: &IssuedToken) -> Result<(), Failure> {
    if context.screen.format != Format::Text {
        return Ok(context.screen.print_json(&as_json(entry, token.as_deref()))?);
    }
    let mut fields = vec![vec![(Style::Dim, "roles".to_owned()), (Style::Plain, entry.roles.join(", "))]];
    if !entry.uids.is_empty() {
        let uids: Vec<_> = entry.uids.iter().map(u32::to_string).collect();
        fields.push(vec![(Style::Dim, "uids".to_owned()), (Style::Plain, uids.join(", "))]);
    }
    if let Some(token) = token {
        fields.push(vec![(Style::Dim, "token".to_owned()), (Style::Strong, token.clone())]);
    }
    let mut lines = vec![Line::default().and(Style::Strong, &entry.name).and(Style::Plain, format!(" {what}"))];
    lines.extend(table(&fields));
    context.screen.print(&lines)?;
    if token.is_some() {
        context.screen.say(&Line::new("The token is shown only now. Its holder sets BELAY_TOKEN to it."));
    }
    Ok(())
}

/// A principal for programs; never the digest of its token.
fn as_json(entry: &PrincipalEntry, token: Option<&str>) -> Value {
    let mut value = json!({
        "name": entry.name,
        "roles": entry.roles,
        "uids": entry.uids,
        "hasToken": entry.token_sha256.is_some(),
        "addTime": date(entry.added_at),
        "revokeTime": entry.revoked_at.map(date),
    });
    if let Some(token) = token {
        value["token"] = token.into();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_how_each_authenticates_and_no_token() {
        let entry = PrincipalEntry {
            name: "ann".to_owned(),
            roles: vec!["planner".to_owned(), "approver".to_owned()],
            uids: vec![1001],
            token_sha256: Some("d".repeat(64)),
            added_at: 1_700_000_000,
            token_made_at: Some(1_700_000_000),
            revoked_at: None,
        };
        let revoked =
            PrincipalEntry { name: "bot".to_owned(), uids: vec![], revoked_at: Some(1_700_000_060), ..entry.clone() };
        let text: Vec<_> = rows(&[entry.clone(), revoked]).iter().map(|line| line.render(false)).collect();
        assert_eq!(
            text,
            [
                "  name  roles              authenticates by  since",
                "  ann   planner, approver  token, uid 1001   2023-11-14 22:13:20Z",
                "  bot   planner, approver  token             revoked 2023-11-14 22:14:20Z",
            ]
        );
        let value = as_json(&entry, None);
        assert!(!value.to_string().contains("ddd") && value.get("token").is_none(), "{value}");
        assert_eq!(as_json(&entry, Some("t"))["token"], "t");
    }
}
