//! `belay policy …`, and the note about a `--policy` that is ignored.

use std::path::PathBuf;

use belay_all_in_one::PolicyFacts;
use belay_proto::v1::GetPolicyRequest;
use serde_json::json;

use crate::{
    args::{Format, PolicyFile, help},
    connect::Session,
    context::Context,
    exit::Exit,
    failure::Failure,
    render::text::{Line, Style, table},
};

/// Check a policy as `serve` and `run` would, and show the resulting settings
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay policy check policy.yaml"))]
pub(crate) struct Check {
    /// The policy: a YAML file
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
}

/// Reads the policy.
pub(crate) async fn check(context: &Context, verb: Check) -> Result<Exit, Failure> {
    let facts = belay_all_in_one::check_policy(&verb.file)?;
    match context.screen.format {
        Format::Text => {
            let name = verb.file.display().to_string();
            let mut lines = vec![Line::new(format!("{name} is ")).and(Style::Good, "valid")];
            lines.extend(settings(&facts));
            for (name, section) in &facts.namespaces {
                lines.push(Line::default());
                lines.push(Line::new(format!("in namespace {name}")));
                lines.extend(differing(section, &facts));
            }
            context.screen.print(&lines)?;
        }
        Format::Json | Format::Jsonl => context.screen.print_json(&as_json(&facts))?,
    }
    Ok(Exit::OK)
}

/// The settings and the rules of a policy, in its own words.
pub(crate) fn settings(facts: &PolicyFacts) -> Vec<Line> {
    let rules = if facts.rules.is_empty() { "only the built-in ones".to_owned() } else { facts.rules.join(", ") };
    rows(facts.settings.iter(), rules)
}

/// The settings in which a namespace's section differs from the policy at the top, and the rules that it adds.
fn differing(section: &PolicyFacts, top: &PolicyFacts) -> Vec<Line> {
    let rules = match &section.rules[..] {
        [] => "those above".to_owned(),
        own => format!("those above, {}", own.join(", ")),
    };
    rows(section.settings.iter().filter(|setting| !top.settings.contains(setting)), rules)
}

fn rows<'a>(settings: impl Iterator<Item = &'a (&'static str, String)>, rules: String) -> Vec<Line> {
    let row = |(name, value): &(&str, String)| vec![(Style::Dim, (*name).to_owned()), (Style::Plain, value.clone())];
    let mut rows: Vec<_> = settings.map(row).collect();
    rows.push(vec![(Style::Dim, "rules".to_owned()), (Style::Plain, rules)]);
    table(&rows)
}

/// The same for programs.
pub(crate) fn as_json(facts: &PolicyFacts) -> serde_json::Value {
    let settings: serde_json::Map<_, _> =
        facts.settings.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let mut shown = json!({ "settings": settings, "rules": facts.rules });
    // A section has no sections.
    if !facts.namespaces.is_empty() {
        let sections = facts.namespaces.iter().map(|(name, section)| (name.clone(), as_json(section)));
        shown["namespaces"] = serde_json::Value::Object(sections.collect());
    }
    shown
}

/// Says so when a policy was named and other services, which have a policy already, are at work.
///
/// # Errors
/// When the named policy cannot be read.
pub(super) async fn note_if_ignored(context: &Context, session: &Session, file: &PolicyFile) -> Result<(), Failure> {
    let Some(path) = file.named().filter(|_| !session.is_embedded()) else {
        return Ok(());
    };
    // Read first: a broken policy is an error even where it is ignored.
    belay_all_in_one::check_policy(path)?;
    let mut policy = session.to_gate().policy().await?;
    let Ok(in_force) = policy.get_policy(GetPolicyRequest {}).await.map(tonic::Response::into_inner) else {
        // Whether it differs is not known, only that it is ignored here.
        let words = format!("--policy {} is ignored: the services run already", path.display());
        context.screen.say(&Line::default().and(Style::Warn, words));
        return Ok(());
    };
    if !belay_all_in_one::is_same_policy(path, &in_force.body)? {
        let words = format!(
            "--policy {} is ignored: the services run already, under revision {} of another policy",
            path.display(),
            in_force.revision
        );
        context.screen.say(&Line::default().and(Style::Warn, words));
    }
    Ok(())
}
