//! The steps of a job.

use serde_json::{Map, Value, json};

use super::{actions, context::Context};
use crate::{
    fields::{Field, Homeless, Refusal},
    left_out::Report,
    plan::{After, Ids, RunWhen, Step, duration},
    text::Text,
};

/// Settings of a job for all its steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    /// The shell, as it is written.
    pub(super) shell: Option<String>,
    /// The working directory.
    pub(super) folder: Option<String>,
}

/// Variables that a plan's `env` does not set, unless the operator allows it: those of the user guide's "Reserved variables" that workflow files use.
/// A `*` stands for any text.
const RESERVED: [&str; 41] = [
    "HOME",
    "PATH",
    "TMPDIR",
    "SHELL",
    "ENV",
    "BASH_ENV",
    "IFS",
    "CDPATH",
    "LD_*",
    "DYLD_*",
    "GIT_*",
    "PYTHON*",
    "PERL5*",
    "PYTEST_ADDOPTS",
    "PYTEST_PLUGINS",
    "UV_PYTHON",
    "NODE_OPTIONS",
    "NODE_PATH",
    "CLASSPATH",
    "GRADLE_OPTS",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "MAVEN_OPTS",
    "JAVA_HOME",
    "GOROOT",
    "GOFLAGS",
    "GOENV",
    "MAKEFLAGS",
    "CARGO",
    "CARGO_HOME",
    "CARGO_BUILD_RUST*",
    "CARGO_ENCODED_*",
    "CARGO_TARGET_*_*",
    "RUSTC*",
    "RUSTDOC*",
    "RUSTFLAGS",
    "RUSTUP_*",
    "RUBYOPT",
    "RUBYLIB",
    "DOTNET_ROOT*",
    "EDITOR",
];

/// Files that a runner gives to scripts, and what takes their place.
const RUNNER_FILES: [Homeless; 3] = [
    ("GITHUB_PATH", "a command changes no PATH of later steps", "set PATH in the commands that need it"),
    ("GITHUB_STATE", "there are no actions with a second part", "write a file of the workspace"),
    ("::set-output", "it is read from no output", "append `NAME=VALUE` to $GITHUB_OUTPUT, which the plan sets"),
];

/// Converts the steps of a job, one after the other, and returns them with those after which the job has ended.
pub(super) fn convert(
    job: &str,
    steps: &Field<'_>,
    defaults: &Defaults,
    context: &mut Context,
    ids: &mut Ids,
    report: &mut Report,
) -> Result<(Vec<Step>, Vec<After>), Refusal> {
    let (mut converted, mut after): (Vec<Step>, Vec<After>) = (Vec::new(), Vec::new());
    let mut one_may_be_skipped = false;
    for (index, field) in steps.items().iter().enumerate() {
        let Some(mut step) = one(job, index, field, defaults, context, ids, report)? else { continue };
        let run_when = step.run_when;
        After::apply(&after, &mut step);
        // It may read a step that was skipped.
        if one_may_be_skipped && step.run_when.is_none() {
            step.run_when = Some(RunWhen::NoneFailed);
        }
        if run_when.is_none() {
            // It follows all that came before, so what comes next need only follow it.
            after.clear();
        } else if after.is_empty() {
            // Nothing before it can have failed.
            step.run_when = None;
            if run_when == Some(RunWhen::Failure) {
                step.condition = Some("false".to_owned());
            }
        }
        let may_be_skipped = step.condition.is_some() || matches!(step.run_when, Some(RunWhen::Failure));
        one_may_be_skipped |= may_be_skipped;
        after.push(After { may_be_skipped, ..After::completed(step.id.clone()) });
        converted.push(step);
    }
    Ok((converted, after))
}

fn one(
    job: &str,
    index: usize,
    field: &Field<'_>,
    defaults: &Defaults,
    context: &mut Context,
    ids: &mut Ids,
    report: &mut Report,
) -> Result<Option<Step>, Refusal> {
    let mut fields = field.fields()?;
    let name = fields.take("name").and_then(|name| name.text());
    let own_id = fields.take("id").and_then(|id| id.text());
    let (uses, run) = (fields.take("uses"), fields.take("run"));
    let condition = fields.take("if");
    if let Some(uses) = &uses
        && actions::is_checkout(&uses.needed_text()?)
    {
        report.add(
            uses,
            "action actions/checkout",
            "the workspace has the files already",
            "give the folder with `belay run --workspace`",
        );
        fields.leave_rest(report, &[("with", "nothing is fetched", "prepare the folder before the start")]);
        return Ok(None);
    }
    let label = own_id.clone().or_else(|| name.clone()).unwrap_or_else(|| format!("step-{}", index + 1));
    let id = ids.unique(&format!("{job}-{}", crate::plan::identifier(&label, 60)));
    let mut step = match (&uses, &run) {
        (Some(uses), None) => {
            let action = uses.needed_text()?;
            let (what, instead) = (format!("action {}", actions::name(&action)), actions::instead(&action));
            report.add(uses, what, format!("a plan has no actions: `{id}` does nothing"), instead);
            if let Some(with) = fields.take("with") {
                for (key, value) in with.members() {
                    report.add(
                        &value,
                        format!("with.{key}"),
                        format!("the input of the action {}", actions::name(&action)),
                        "",
                    );
                }
            }
            Step::noop(&id, Value::Null)
        }
        (None, Some(run)) => {
            let shell = fields.take("shell");
            let folder = fields.take("working-directory");
            let env = fields.take("env");
            let check = fields.take("continue-on-error");
            command(&id, run, Command { shell, folder, env, check }, defaults, context, report)?
        }
        _ => return Err(field.refused("has to have either `run` or `uses`")),
    };
    step.title = name.unwrap_or_default();
    if let Some(condition) = condition {
        let found = context.condition(&id, &condition, report);
        step.run_when = found.run_when;
        step.condition = found.cel;
    }
    if let Some(limit) = fields.take("timeout-minutes") {
        step.timeout = minutes(&limit, report);
    }
    if step.arguments.get("check") == Some(&json!(false)) {
        context.unchecked.insert(id.clone());
    }
    if let Some(run) = &run
        && step.tool.as_deref() == Some("run_terminal")
    {
        set_variables(&id, run, context, report);
    }
    if let Some(own) = own_id {
        context.steps.insert(own, id);
    }
    fields.leave_rest(
        report,
        &[
            (
                "continue-on-error",
                "a `noop` does not fail",
                "write `check: false` into the command that takes its place",
            ),
            ("env", "a `noop` has no variables", "give them to the command that takes its place"),
        ],
    );
    Ok(Some(step))
}

/// The time limit, if it is a number.
pub(super) fn minutes(limit: &Field<'_>, report: &mut Report) -> Option<String> {
    let converted = limit.number().and_then(|minutes| duration(minutes * 60.0));
    if converted.is_none() {
        report.add(limit, "timeout-minutes", "a time limit is a number in a plan", "write `timeout: 10m`");
    }
    converted
}

struct Command<'n> {
    shell: Option<Field<'n>>,
    folder: Option<Field<'n>>,
    env: Option<Field<'n>>,
    check: Option<Field<'n>>,
}

fn command(
    id: &str,
    run: &Field<'_>,
    of: Command<'_>,
    defaults: &Defaults,
    context: &mut Context,
    report: &mut Report,
) -> Result<Step, Refusal> {
    // Variables of a step come before those of the job, for this step alone.
    let outer = context.env.clone();
    if let Some(env) = &of.env {
        variables(env, context, report);
    }
    let source = run.needed_text()?;
    let script = script(&source, run, context, report);
    let shell = of.shell.as_ref().and_then(Field::text).or_else(|| defaults.shell.clone());
    let words = words(shell.as_deref(), script);
    let mut step = match words {
        Some(words) => Step::command(id, &words),
        None => {
            let shell = shell.unwrap_or_default();
            let place = of.shell.as_ref().unwrap_or(run);
            report.add(
                place,
                format!("shell {shell}"),
                format!("the converter knows bash, sh and python: `{id}` does nothing"),
                "write the command for one of these",
            );
            context.env = outer;
            return Ok(Step::noop(id, Value::Null));
        }
    };
    let folder = match &of.folder {
        Some(field) => Some(context.text(&field.needed_text()?, field, report)),
        None => defaults.folder.as_ref().map(|folder| context.try_text(folder).0),
    };
    if let Some(folder) = folder {
        step.arguments.insert("cwd".to_owned(), json!(folder.template()));
    }
    let env: Map<String, Value> =
        context.env.iter().map(|(name, value)| (name.clone(), json!(value.template()))).collect();
    if !env.is_empty() {
        step.arguments.insert("env".to_owned(), Value::Object(env));
    }
    if let Some(check) = of.check {
        match check.boolean() {
            Some(true) => drop(step.arguments.insert("check".to_owned(), json!(false))),
            Some(false) => {}
            None => report.add(
                &check,
                "continue-on-error",
                "it depends on an expression",
                "write `check: false` if a failure is no failure",
            ),
        }
    }
    context.env = outer;
    Ok(step)
}

/// The script as text, with the variables of a runner that it uses.
fn script(source: &str, run: &Field<'_>, context: &mut Context, report: &mut Report) -> Text {
    for (name, why, instead) in RUNNER_FILES {
        if source.contains(name) {
            report.add(run, name, why, instead);
        }
    }
    if source.contains("GITHUB_OUTPUT") && source.contains("<<") {
        report.add(
            run,
            "outputs of several lines",
            "a line of $BELAY_OUTPUT is `NAME=VALUE` or a JSON object, not `NAME<<END`",
            "write a JSON object: `jq -cn …`",
        );
    }
    let mut script = Text::default();
    if source.contains("GITHUB_ENV") {
        script.push_literal("export GITHUB_ENV=\"$BELAY_OUTPUT\"\n");
    }
    if source.contains("GITHUB_OUTPUT") {
        script.push_literal("export GITHUB_OUTPUT=\"$BELAY_OUTPUT\"\n");
    }
    if source.contains("GITHUB_STEP_SUMMARY") {
        script.push_literal("export GITHUB_STEP_SUMMARY=/dev/stdout\n");
    }
    script.push(&context.text(source, run, report));
    script
}

/// Gives the steps that follow the variables that a script appends to the file of `GITHUB_ENV`, which are outputs of its command: those of lines such as
/// `echo "NAME=value" >> $GITHUB_ENV`. Others are reported.
fn set_variables(id: &str, run: &Field<'_>, context: &mut Context, report: &mut Report) {
    let source = run.text().unwrap_or_default();
    for line in source.lines().filter(|line| line.contains("GITHUB_ENV")) {
        let name = line
            .trim()
            .strip_prefix("echo ")
            .and_then(|rest| rest.trim_start().trim_start_matches(['"', '\'']).split_once('='));
        let name = name.map(|(name, _)| name).filter(|name| is_name(name) && line.contains(">>") && !is_reserved(name));
        let Some(name) = name else {
            report.add(
                run,
                "GITHUB_ENV",
                format!("`{}` sets a variable that the converter cannot give to later steps", line.trim()),
                "append it to $BELAY_OUTPUT, and give `${STEP.outputs.NAME}` to later steps as `env`",
            );
            continue;
        };
        // Where the step is skipped, the variable is as it was.
        let before = context.env.get(name).and_then(Text::constant).unwrap_or_default();
        context.env.insert(name.to_owned(), Text::reference(format!("{id}.outputs.{name} ?? {}", json!(before))));
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The program and its arguments for a shell, as a runner starts it; `None` when the shell is not known.
fn words(shell: Option<&str>, script: Text) -> Option<Vec<Text>> {
    let before: &[&str] = match shell {
        None => &["bash", "-e", "-c"],
        Some("bash") => &["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"],
        Some("sh") => &["sh", "-e", "-c"],
        Some("python") => &["python3", "-c"],
        Some(custom) if custom.starts_with("bash ") && custom.ends_with(" {0}") => {
            let options = custom.trim_start_matches("bash ").trim_end_matches(" {0}").split_whitespace();
            let words = ["bash"].into_iter().chain(options).chain(["-c"]).map(Text::literal);
            return Some(words.chain([script]).collect());
        }
        Some(_) => return None,
    };
    Some(before.iter().map(|word| Text::literal(*word)).chain([script]).collect())
}

/// Adds variables to those that commands get.
pub(super) fn variables(env: &Field<'_>, context: &mut Context, report: &mut Report) {
    if !env.is_mapping() {
        report.add(env, "env", "the variables are an expression", "write them out");
        return;
    }
    for (name, field) in env.members() {
        let text = field.text().unwrap_or_default();
        let (value, unknown) = context.try_text(&text);
        if is_reserved(&name) {
            let instead = "let the operator allow it: `commands.plans_may_set` in the settings";
            report.add(
                &field,
                format!("env {name}"),
                "programs and loaders obey this variable, and a plan may not set it",
                instead,
            );
        } else if !unknown.is_empty() {
            let why = format!("`{text}` has no value in a plan, so the variable is not set");
            report.add(
                &field,
                format!("env {}", kind(&unknown[0])),
                why,
                "give the value as an input, or let the operator set it",
            );
        } else {
            context.text(&text, &field, report);
            context.env.insert(name, value);
        }
    }
}

fn kind(expression: &str) -> &str {
    expression.split(['.', '(', ' ', '[']).next().unwrap_or(expression)
}

fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|pattern| match pattern.split_once('*') {
        None => name == *pattern,
        Some((beginning, "")) => name.starts_with(beginning),
        Some((beginning, _)) => name.starts_with(beginning) && name != "CARGO_TARGET_DIR",
    })
}
