//! `belay doctor`.

use std::{env, path::PathBuf};

use belay_all_in_one::{CheckedCredential, Diagnosis, Probe, Program};
use belay_proto::runner_v1::enforcement_report::Tier;
use serde_json::{Value, json};

use super::policy;
use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::{
        json,
        text::{Line, Style, table},
    },
};

/// Check this machine: which sandbox layers are active for commands, and what is missing
///
/// Tries every layer of the sandbox and attacks it from inside. Ends with 1 when commands cannot run here.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay doctor"))]
pub(crate) struct Doctor {
    /// The folder that is to be a workspace [default: the current one]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    workspace: Option<PathBuf>,
}

/// Examines the machine.
pub(crate) async fn doctor(context: &Context, verb: Doctor) -> Result<Exit, Failure> {
    let workspace = match verb.workspace {
        Some(folder) => folder,
        None => env::current_dir()
            .map_err(|error| Failure::internal(format!("the current folder cannot be read: {error}")))?,
    };
    let config = context.target.config.clone();
    let probe = Probe {
        state_dir: context.target.state_dir()?,
        workspace,
        policy: policy_choice(),
        config,
        environment: |name| env::var_os(name),
    };
    let diagnosis = tokio::task::spawn_blocking(move || belay_all_in_one::doctor(&probe))
        .await
        .map_err(|error| Failure::internal(format!("the examination ended early: {error}")))?;
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&diagnosis))?,
        Format::Json | Format::Jsonl => context.screen.print_json(&as_json(&diagnosis)?)?,
    }
    Ok(if diagnosis.commands_can_run() { Exit::OK } else { Exit::INTERNAL })
}

/// The policy that `run` would start with.
pub(super) fn policy_choice() -> belay_all_in_one::PolicyChoice {
    match env::var_os("BELAY_POLICY").filter(|path| !path.is_empty()) {
        Some(path) => belay_all_in_one::PolicyChoice::File(path.into()),
        None => belay_all_in_one::PolicyChoice::of_user(&|name| env::var_os(name)),
    }
}

/// `tier A: …`.
fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::A => "A: every sandbox layer is active",
        Tier::B => "B: every sandbox layer but a fresh /proc",
        Tier::C => "C: Landlock, seccomp and limits, without namespaces",
        Tier::None => "none: not even Landlock and seccomp",
        Tier::Unspecified => "not examined",
    }
}

fn lines(diagnosis: &Diagnosis) -> Vec<Line> {
    let mark = |good: bool| if good { (Style::Good, "yes".to_owned()) } else { (Style::Bad, "NO".to_owned()) };
    let plain = |text: &str| (Style::Plain, text.to_owned());
    let heading = |text: &str| Line::default().and(Style::Strong, text);
    let mut lines = vec![heading("sandbox")];
    let mut rows = Vec::new();
    for layer in &diagnosis.sandbox.layers {
        rows.push(vec![mark(layer.active), plain(&layer.name), plain(&layer.why)]);
        if !layer.fix.is_empty() {
            rows.push(vec![plain(""), (Style::Dim, "to fix it".to_owned()), plain(&layer.fix)]);
        }
    }
    rows.push(vec![mark(diagnosis.is_strong_enough()), plain("tier"), plain(tier(diagnosis.sandbox.tier()))]);
    rows.push(vec![mark(diagnosis.is_attack_proof()), plain("self-test"), plain(&diagnosis.self_test())]);
    rows.push(vec![mark(diagnosis.network.is_ok()), plain("network proxy"), plain(&diagnosis.network_test())]);
    lines.extend(table(&rows));

    lines.push(heading("here"));
    let mut rows = vec![
        vec![
            mark(diagnosis.workspace.problem.is_none()),
            plain("workspace"),
            plain(&about(&diagnosis.workspace.path.display().to_string(), diagnosis.workspace.problem.as_deref())),
        ],
        vec![
            mark(diagnosis.state_dir.problem.is_none()),
            plain("state directory"),
            plain(&about(&diagnosis.state_dir.path.display().to_string(), diagnosis.state_dir.problem.as_deref())),
        ],
    ];
    if let Ok(config) = &diagnosis.config {
        let file =
            config.loaded.file.as_ref().map_or("no file, the defaults".to_owned(), |file| file.display().to_string());
        rows.push(vec![mark(true), plain("settings"), plain(&file)]);
    }
    lines.extend(table(&rows));
    if let Err(error) = &diagnosis.config {
        lines.extend(crate::failure::Report::of_config(error).lines());
    }

    if !diagnosis.credentials.is_empty() {
        lines.push(heading("credentials, read here and now"));
        let cells = |credential: &CheckedCredential| {
            let about = credential.problem.clone().unwrap_or_else(|| format!("from {}", credential.source));
            vec![mark(credential.problem.is_none()), plain(&credential.name), plain(&about)]
        };
        lines.extend(table(&diagnosis.credentials.iter().map(cells).collect::<Vec<_>>()));
    }

    lines.push(heading("programs that commands see"));
    lines.extend(table(
        &diagnosis
            .programs
            .iter()
            .map(|program| vec![mark(program.path.is_some()), plain(program.name), plain(&seen(program))])
            .collect::<Vec<_>>(),
    ));

    lines.push(heading("policy").and(Style::Plain, format!("  {}", diagnosis.policy_source)));
    match &diagnosis.policy {
        Ok(facts) => lines.extend(policy::settings(facts)),
        Err(refused) => lines.extend(crate::failure::Report::of_policy(refused).lines()),
    }
    lines.push(match diagnosis.commands_can_run() {
        true => Line::default().and(Style::Good, "commands can run here"),
        false => Line::default().and(Style::Bad, "commands cannot run here; tools that only read and write files can"),
    });
    lines
}

fn about(path: &str, problem: Option<&str>) -> String {
    problem.map_or_else(|| path.to_owned(), |problem| format!("{path}: {problem}"))
}

/// Where commands find a program, or why they do not.
fn seen(program: &Program) -> String {
    match (&program.path, &program.of_caller) {
        (Some(path), Some(of_caller)) if path != of_caller => {
            format!("{} (yours: {})", path.display(), of_caller.display())
        }
        (Some(path), _) => path.display().to_string(),
        (None, _) => program.problem.clone().unwrap_or_else(|| "not found".to_owned()),
    }
}

fn as_json(diagnosis: &Diagnosis) -> Result<Value, Failure> {
    let programs: serde_json::Map<_, _> =
        diagnosis.programs.iter().map(|program| (program.name.to_owned(), json!(program.path))).collect();
    let not_seen: serde_json::Map<_, _> = diagnosis
        .programs
        .iter()
        .filter(|program| program.path.is_none())
        .map(|program| (program.name.to_owned(), json!(program.problem)))
        .collect();
    Ok(json!({
        "commandsCanRun": diagnosis.commands_can_run(),
        "sandbox": json::of(&diagnosis.sandbox)?,
        "tier": diagnosis.sandbox.tier().as_str_name(),
        "selfTest": { "passed": diagnosis.is_attack_proof(), "detail": diagnosis.self_test() },
        "networkProxy": { "passed": diagnosis.network.is_ok(), "detail": diagnosis.network_test() },
        "workspace": { "path": diagnosis.workspace.path, "problem": diagnosis.workspace.problem },
        "stateDir": { "path": diagnosis.state_dir.path, "problem": diagnosis.state_dir.problem },
        "credentials": diagnosis.credentials.iter().map(|CheckedCredential { name, source, problem }| {
            json!({ "name": name, "source": source, "readable": problem.is_none(), "problem": problem })
        }).collect::<Vec<_>>(),
        "programs": programs,
        "programsNotSeen": not_seen,
        "config": match &diagnosis.config {
            Ok(config) => json!({ "file": config.loaded.file }),
            Err(error) => crate::failure::Report::of_config(error).json(),
        },
        "policySource": diagnosis.policy_source,
        "policy": match &diagnosis.policy {
            Ok(facts) => policy::as_json(facts),
            Err(refused) => crate::failure::Report::of_policy(refused).json(),
        },
    }))
}
