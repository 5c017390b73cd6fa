//! `belay run`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use belay_proto::v1::{
    ApprovalMode, Execution, ExecutionView, GetExecutionRequest, Payload, StartExecutionRequest, ValidatePlanResponse,
    payload::Content, start_execution_request,
};
use belay_reasons as reasons;
use pbjson_types::Timestamp;
use serde_json::json;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use clap::ValueEnum;

use super::{plan, policy};
use crate::{
    args::{Format, PolicyFile, execution_help, label},
    ask,
    attend::{Attendance, attend},
    clock,
    connect::{Client, Requirement, Session},
    context::Context,
    copy_of,
    exit::Exit,
    failure::{Failure, Report, TASK},
    lookup, names, next,
    plan_file::PlanFile,
    render::{
        self,
        result::lines::EventShape,
        text::{Line, Style},
        time, words,
    },
    signals::Signals,
    stopped::unless_stopped,
};

/// Run a plan and watch it until it ends
///
/// Without a server, the services run inside this command and end with it; `belay executions resume` continues an execution that has not
/// ended.
#[derive(clap::Args, Debug)]
#[command(after_help = execution_help!("belay run plan.yaml --workspace . --label team=docs"))]
pub(crate) struct Run {
    /// The plan: a YAML or JSON file, or - for standard input
    #[arg(value_name = "PLAN", value_hint = clap::ValueHint::FilePath, required_unless_present = "task")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    task: TaskArgs,
    /// The folder its tools are confined to [default: a new one under the state directory; this one for --task]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    workspace: Option<PathBuf>,
    /// Work in a copy of this folder, which is made now and kept; a git repository is copied as it was committed
    #[arg(long, value_name = "DIR", conflicts_with_all = ["workspace", "request_id"], value_hint = clap::ValueHint::DirPath)]
    copy_of: Option<PathBuf>,
    /// The execution's id: lower-case letters, digits and - [default: one that the services make]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Idempotency key: the same request with the same id returns the same execution instead of starting another
    #[arg(long, value_name = "R")]
    request_id: Option<String>,
    /// A label, for filters; may be given more than once
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    inputs: InputArgs,
    /// Start at this time, such as 2026-12-01T09:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, conflicts_with = "after")]
    at: Option<Timestamp>,
    /// Start after this time, such as 10m or 2h
    #[arg(long, value_name = "D", value_parser = time::parse)]
    after: Option<Duration>,
    /// Start it and return; a server carries it out
    #[arg(long, conflicts_with_all = ["dry_run", "wait_timeout"])]
    detach: bool,
    /// Check everything and show what would run, without calling a tool
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Handle calls that need approval in this way [default: prompt on a terminal, else fail; auto in a copy]
    #[arg(long, value_name = "HOW", value_enum)]
    approve: Option<Approve>,
    /// Never ask: the same as --approve fail
    #[arg(long, conflicts_with = "approve")]
    no_input: bool,
    /// The time limit of each step in this run, such as 90s, instead of the plan's
    #[arg(long, value_name = "D", value_parser = time::parse)]
    step_timeout: Option<Duration>,
    /// Show the arguments and the result of each call, and every event
    #[arg(short, long, conflicts_with_all = ["shape", "detach", "dry_run"])]
    verbose: bool,
    #[command(flatten)]
    pub(crate) policy: PolicyFile,
    /// Wait for at most this long, such as 90s or 15m
    #[arg(long, value_name = "D", value_parser = time::parse)]
    wait_timeout: Option<Duration>,
    /// The lines that programs get, which `-o jsonl` is then
    #[arg(long = "as", value_name = "SHAPE", value_enum, conflicts_with_all = ["detach", "dry_run"])]
    pub(crate) shape: Option<EventShape>,
}

/// A goal instead of a plan.
#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("worker").args(["model", "agent"]).multiple(true)))]
struct TaskArgs {
    /// Instead of a plan: what a model or an agent is to achieve here, in words; what it changes is shown and committed as one
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["plan", "inputs"], requires = "worker")]
    task: Option<String>,
    /// The model for --task, by its name in the settings; with --agent, by the agent's own name for it
    #[arg(long, value_name = "NAME", requires = "task")]
    model: Option<String>,
    /// The agent for --task, by its name in the settings: a program such as codex or claude
    #[arg(long, value_name = "NAME", requires = "task")]
    agent: Option<String>,
    /// A tool that the model may call, for --task; may be given more than once [default: those that read, write and run commands]
    #[arg(long = "tool", value_name = "NAME", requires = "task", conflicts_with = "agent")]
    tools: Vec<String>,
    /// How often the model is asked at most, for --task [default: 30]
    #[arg(long, value_name = "N", requires = "task", conflicts_with = "agent", value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_turns: Option<u32>,
}

/// The tools of a task for which none are named.
const TOOLS: [&str; 8] = [
    "list_directory",
    "find_files",
    "search_code",
    "read_file",
    "write_file",
    "modify_file",
    "delete_file",
    "run_terminal",
];

/// How often the model of a task is asked at most where nothing is said: more than a plan's step, since a person looks on.
const TURNS: u32 = 30;

impl TaskArgs {
    /// The plan of a task: one step, whose whole work is one effect.
    fn plan(&self) -> Option<PlanFile> {
        let task = self.task.as_ref()?;
        // What a person types is no template.
        let task = task.replace("${", "$${");
        if let Some(agent) = &self.agent {
            let model = self.model.as_ref().map(|model| ("model".to_owned(), model.replace("${", "$${").into()));
            let arguments: serde_json::Map<_, _> =
                [("task".to_owned(), task.into())].into_iter().chain(model).collect();
            // A person looks on, who can have it done again.
            let step = json!({"id": "task", "tool": agent, "arguments": arguments, "retry": {"max_attempts": 1}});
            return Some(PlanFile::of_json(TASK, &json!({"id": "task", "steps": [step]})));
        }
        let tools = match &self.tools[..] {
            [] => TOOLS.map(str::to_owned).into(),
            named => named.to_owned(),
        };
        let agent = json!({
            "model": self.model,
            "task": task,
            "tools": tools,
            "max_turns": self.max_turns.unwrap_or(TURNS),
        });
        let step = json!({"id": "task", "agent": agent, "effects": "per_step"});
        Some(PlanFile::of_json(TASK, &json!({"id": "task", "steps": [step]})))
    }
}

/// The most steps of a plan that are shown before it runs.
const STEPS_PREVIEWED: usize = 20;

/// The treatment of a call that needs approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Approve {
    /// Calls that the policy allows without a person are approved, everything else is denied; never a protected or flagged change
    Auto,
    /// The execution waits for a decision: here on a terminal, or with `belay approve` from anywhere
    Prompt,
    /// The step fails
    Fail,
}

impl Run {
    /// Whether calls that need approval are approved automatically: the workspace is a copy, and there is no terminal to ask at.
    fn approves_in_copy(&self, is_attended: bool) -> bool {
        self.copy_of.is_some() && self.approve.is_none() && !self.no_input && !is_attended
    }

    fn approval_mode(&self, is_attended: bool) -> ApprovalMode {
        match self.approve {
            Some(Approve::Auto) => ApprovalMode::Auto,
            Some(Approve::Prompt) => ApprovalMode::Wait,
            None if is_attended && !self.no_input => ApprovalMode::Wait,
            None if self.approves_in_copy(is_attended) => ApprovalMode::Auto,
            Some(Approve::Fail) | None => ApprovalMode::Fail,
        }
    }
}

/// Starts the execution and watches it.
pub(crate) async fn run(context: &Context, verb: Run, signals: &mut Signals) -> Result<Exit, Failure> {
    let file = match (verb.task.plan(), &verb.plan) {
        (Some(file), _) => file,
        (None, plan) => unless_stopped(signals, PlanFile::read(plan.as_deref().unwrap_or(Path::new("-")))).await??,
    };
    // A task is for the folder in which it is given.
    let verb = match verb.task.task.is_some() && verb.workspace.is_none() && verb.copy_of.is_none() {
        true => Run { workspace: Some(PathBuf::from(".")), ..verb },
        false => verb,
    };
    let request = request(context, &verb, &file)?;
    if verb.dry_run {
        let shown = context.ask(Requirement::Services, async |client| dry_run(context, client, &file, request).await);
        return unless_stopped(signals, shown).await?;
    }

    let mut session = unless_stopped(signals, Session::open(&context.target, Requirement::StateDir)).await??;
    if verb.detach && session.is_embedded() {
        session.close().await;
        return Err(no_server("--detach"));
    }
    // The plan itself may ask for a dry run.
    let again = StartExecutionRequest { validate_only: true, ..request.clone() };
    let started = async {
        policy::note_if_ignored(context, &session, &verb.policy).await?;
        // A plan that is refused needs no copy.
        let checked = plan::check(&mut session.client, &context.namespace, &file).await?;
        if checked.plan.as_ref().is_some_and(|plan| plan.dry_run) {
            return Ok(None);
        }
        note_new_namespace(context, &mut session.client).await;
        let started = match &verb.copy_of {
            Some(original) => start_in_copy(context, &mut session.client, &file, request, original).await?,
            None => start(context, &mut session.client, &file, request).await?,
        };
        Ok(Some((started, checked)))
    };
    let started = tokio::select! {
        started = started => started,
        stop = signals.next() => Err(Report::new(reasons::INTERRUPTED, "stopped before the answer came: it may have started")
            .exit(stop.exit())
            .next(next::command(&["executions", "list"]))
            .into()),
    };
    let (started, checked) = match started {
        Ok(Some((started, checked))) => (context.target.with_workspace(started), checked),
        Ok(None) => {
            let shown = dry_run(context, &mut session.client, &file, again).await;
            session.close().await;
            return shown;
        }
        Err(failure) => {
            session.close().await;
            return Err(failure);
        }
    };
    if context.screen.format == Format::Text {
        preview(context, checked, &file);
        begun(context, &verb, &started);
    }
    if verb.detach {
        session.close().await;
        context
            .screen
            .show(&started, || vec![next::line(next::about(&["executions", "watch"], &started.name, &[]))])?;
        return Ok(Exit::OK);
    }
    let asks = ask::is_attended() && !verb.no_input;
    let attendance = Attendance {
        name: started.name,
        after: 0,
        drive: true,
        asks,
        max_wait: verb.wait_timeout,
        shape: verb.shape.unwrap_or_default(),
        verbose: verb.verbose,
    };
    attend(context, session, signals, attendance).await
}

/// Warns where the namespace is new and its name resembles that of another: it may be mistyped.
async fn note_new_namespace(context: &Context, client: &mut Client) {
    if context.namespace == names::DEFAULT_NAMESPACE || context.screen.format != Format::Text {
        return;
    }
    let known = lookup::namespaces(client).await;
    if known.contains(&context.namespace) {
        return;
    }
    if let Some(similar) = lookup::similar(&context.namespace, &known) {
        let said = format!("namespace `{}` is new; there is also `{similar}`", context.namespace);
        context.screen.say(&Line::default().and(Style::Warn, said));
    }
}

/// Shows the plan before it runs.
fn preview(context: &Context, checked: ValidatePlanResponse, file: &PlanFile) {
    let mut lines = plan::warnings(&checked, file);
    lines.extend(render::plan::preview(&checked.plan.unwrap_or_default(), STEPS_PREVIEWED));
    lines.iter().for_each(|line| context.screen.say(line));
}

/// Prints the execution's id, its workspace, and whether approvals are automatic.
fn begun(context: &Context, verb: &Run, started: &Execution) {
    let mut line = Line::new("execution ").and(Style::Strong, names::id(&started.name));
    if !started.workspace.is_empty() {
        let kind = match (&verb.workspace, &verb.copy_of) {
            (Some(_), _) => "",
            (None, Some(_)) => ", a copy that is kept",
            (None, None) => ", a new folder (--workspace names another)",
        };
        line = line.and(Style::Dim, " works in ").and(Style::Plain, &started.workspace).and(Style::Dim, kind);
    }
    context.screen.say(&line);
    if verb.approves_in_copy(ask::is_attended()) {
        let said = "no terminal, and the workspace is a copy: what needs approval is approved, except protected and flagged changes";
        context.screen.say(&Line::default().and(Style::Warn, said));
    }
}

fn request(context: &Context, verb: &Run, file: &PlanFile) -> Result<StartExecutionRequest, Failure> {
    Ok(StartExecutionRequest {
        parent: names::parent(&context.namespace),
        execution_id: verb.id.clone().unwrap_or_default(),
        source: Some(start_execution_request::Source::Document(file.document())),
        request_id: verb.request_id.clone().unwrap_or_default(),
        validate_only: verb.dry_run,
        labels: verb.labels.iter().cloned().collect(),
        approval_mode: verb.approval_mode(ask::is_attended()).into(),
        workspace: verb
            .workspace
            .as_deref()
            .map(|folder| workspace(folder, context.target.is_local()))
            .transpose()?
            .unwrap_or_default(),
        start_paused: false,
        inputs: verb.inputs.values()?,
        step_timeout: verb.step_timeout.map(belay_proto::duration),
        start_time: verb.at.or_else(|| verb.after.map(|after| time::timestamp(clock::now().saturating_add(after)))),
    })
}

/// The values for the inputs of a plan.
#[derive(clap::Args, Debug)]
pub(super) struct InputArgs {
    /// A value for an input of the plan; may be given more than once
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = label)]
    inputs: Vec<(String, String)>,
    /// A JSON file with values for the plan's inputs, by their names; --input comes before it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    input_file: Option<PathBuf>,
}

impl InputArgs {
    /// The values as one object; `None` when there are none.
    pub(super) fn values(&self) -> Result<Option<Payload>, Failure> {
        inputs(self.input_file.as_deref(), &self.inputs)
    }
}

/// The values for the plan's inputs as one object; `None` when there are none.
fn inputs(file: Option<&Path>, given: &[(String, String)]) -> Result<Option<Payload>, Failure> {
    let mut values = match file {
        None => serde_json::Map::new(),
        Some(path) => {
            let name = path.display();
            let invalid = |why: String| Report::new(reasons::INVALID_ARGUMENT, format!("the inputs in {name} {why}"));
            let text = std::fs::read(path).map_err(|error| invalid(format!("cannot be read: {error}")))?;
            match belay_all_in_one::json::read_bytes(&text) {
                Ok(serde_json::Value::Object(values)) => values,
                Ok(_) => return Err(invalid("are not a JSON object with a value for each input".to_owned()).into()),
                Err(refused) => {
                    let why = refused.to_string();
                    let why = match why.strip_prefix("is ") {
                        Some(rest) => format!("are {rest}"),
                        None => format!("is not accepted: {why}"),
                    };
                    return Err(invalid(why).into());
                }
            }
        }
    };
    values.extend(given.iter().map(|(name, value)| (name.clone(), value.clone().into())));
    let text = serde_json::Value::from(values.clone()).to_string();
    Ok((!values.is_empty()).then_some(Payload { content: Some(Content::Json(text)) }))
}

/// Without a server nothing would carry the execution out once the command has returned.
pub(super) fn no_server(what: &str) -> Failure {
    let message =
        format!("{what} needs a server that carries out what is started; without one it would stop with this command");
    Report::new(reasons::INVALID_USAGE, message).next(next::command(&["serve"])).into()
}

/// The folder's path for the services. A folder on another machine cannot be resolved here, so its path must be absolute.
pub(super) fn workspace(folder: &Path, is_local: bool) -> Result<String, Failure> {
    let refused = |why: &str| -> Failure {
        let message = format!("the workspace {}: {why}", folder.display());
        Report::new(reasons::WORKSPACE_INVALID, message).next(next::help()).into()
    };
    let path = match is_local {
        true => {
            let path = folder.canonicalize().map_err(|error| refused(&error.to_string()))?;
            if !path.is_dir() {
                return Err(refused("it is a file, and a workspace is a folder"));
            }
            path
        }
        false if folder.is_absolute() => folder.to_owned(),
        false => {
            return Err(refused("over TCP it must be an absolute path, as the server's machine names it"));
        }
    };
    path.into_os_string().into_string().map_err(|_| refused("its path is not UTF-8"))
}

/// Starts the execution in a copy of a folder; removes the copy if the start is refused.
async fn start_in_copy(
    context: &Context,
    client: &mut Client,
    file: &PlanFile,
    request: StartExecutionRequest,
    original: &Path,
) -> Result<Execution, Failure> {
    if !context.target.is_local() {
        return Err(
            Report::new(reasons::WORKSPACE_INVALID, "--copy-of: the server over TCP may be another machine").into()
        );
    }
    let (original, home) = (original.to_owned(), copy_of::home(&|name| std::env::var_os(name))?);
    let copy = tokio::task::spawn_blocking(move || copy_of::make(&original, &home)).await;
    let copy = copy.map_err(|error| Failure::internal(error.to_string()))??;
    let started = match workspace(&copy, true) {
        Ok(workspace) => start(context, client, file, StartExecutionRequest { workspace, ..request }).await,
        Err(refused) => Err(refused),
    };
    // Only after a refusal: if the reply was lost, the execution may have started. A copy that cannot be removed does no harm.
    if matches!(&started, Err(Failure::Report(report)) if report.exit == Exit::REFUSED) {
        drop(std::fs::remove_dir_all(&copy));
    }
    started
}

async fn start(
    context: &Context,
    client: &mut Client,
    file: &PlanFile,
    request: StartExecutionRequest,
) -> Result<Execution, Failure> {
    let name = format!("{}/executions/{}", request.parent, request.execution_id);
    match client.start_execution(request).await {
        Ok(started) => Ok(started.into_inner()),
        Err(status) if status.code() == Code::InvalidArgument => {
            // The refusal names fields; the plan's own check knows their lines, too.
            plan::check(client, &context.namespace, file).await?;
            Err(status.into())
        }
        Err(status) if status.code() == Code::AlreadyExists => Err(already_exists(client, name, &status).await.into()),
        Err(status) => Err(status.into()),
    }
}

/// Reports that the id or the request id is in use, and by which execution; the server names it where it is not the requested one.
async fn already_exists(client: &mut Client, asked: String, status: &Status) -> Report {
    let mut report = Report::of_status(status);
    let named = status.get_details_error_info().and_then(|mut info| info.metadata.remove("existing"));
    let request = GetExecutionRequest { name: named.unwrap_or(asked), view: ExecutionView::Basic.into() };
    if let Ok(existing) = client.get_execution(request).await.map(tonic::Response::into_inner) {
        let accepted =
            existing.create_time.as_ref().map(|created| format!(", accepted {}", time::date_and_time(created)));
        report.details = vec![format!(
            "{}: {}, plan {}{}",
            names::id(&existing.name),
            words::execution_state(existing.state()),
            existing.plan_id,
            accepted.unwrap_or_default(),
        )];
        report.next = Some(next::about(&["executions", "get"], &existing.name, &[]));
    }
    report
}

async fn dry_run(
    context: &Context,
    client: &mut Client,
    file: &PlanFile,
    request: StartExecutionRequest,
) -> Result<Exit, Failure> {
    let checked = plan::check(client, &context.namespace, file).await?;
    let warnings = plan::warnings(&checked, file);
    let plan = checked.plan.unwrap_or_default();
    let mut execution = start(context, client, file, request).await?;
    let workspace = execution.workspace.clone();
    let shown = execution.plan.get_or_insert(plan).clone();
    if context.screen.format != Format::Text {
        let mut value = render::json::of(&execution)?;
        value["success"] = true.into();
        value["output"] = "(dry run)".into();
        context.screen.print_json(&value)?;
        return Ok(Exit::OK);
    }
    let mut lines = render::plan::preview(&shown, usize::MAX);
    let of_calls = render::planned::lines(&execution.planned_calls);
    if !of_calls.is_empty() {
        lines.push(Line::default());
        lines.extend(of_calls);
    }
    lines.extend(warnings);
    if !workspace.is_empty() {
        lines.push(Line::default().and(Style::Dim, "workspace: ").and(Style::Plain, &workspace));
    }
    let result = match render::planned::denied(&execution.planned_calls) {
        0 => " everything is in order; nothing was run".to_owned(),
        1 => " the policy denies 1 call; nothing was run".to_owned(),
        calls => format!(" the policy denies {calls} calls; nothing was run"),
    };
    lines.push(Line::default().and(Style::Strong, "(dry run)").and(Style::Plain, result));
    context.screen.print(&lines)?;
    Ok(Exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_workspace_is_made_absolute_and_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("w")).unwrap();
        let winding = folder.path().join("w/../w");
        let plain = folder.path().canonicalize().unwrap().join("w");
        assert_eq!(workspace(&winding, true).unwrap(), plain.to_str().unwrap());
        let missing = workspace(&folder.path().join("x"), true).unwrap_err().report();
        assert_eq!((missing.exit, missing.code.as_str()), (Exit::REFUSED, "WORKSPACE_INVALID"));
        std::fs::write(folder.path().join("f"), "").unwrap();
        let file = workspace(&folder.path().join("f"), true).unwrap_err().report();
        assert!(file.message.ends_with("/f: it is a file, and a workspace is a folder"), "{}", file.message);
    }

    // S2-X-18: without a terminal no execution waits for a person, unless a flag says so.
    #[test]
    fn without_a_terminal_approvals_fail_unless_a_flag_says_otherwise() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            run: Run,
        }
        let mode = |flags: &[&str], is_attended| {
            let line = ["run", "plan.yaml"].iter().chain(flags);
            <Line as clap::Parser>::try_parse_from(line).map(|line| line.run.approval_mode(is_attended)).ok()
        };
        assert_eq!(mode(&[], true), Some(ApprovalMode::Wait));
        assert_eq!(mode(&[], false), Some(ApprovalMode::Fail));
        assert_eq!(mode(&["--no-input"], true), Some(ApprovalMode::Fail));
        assert_eq!(mode(&["--approve", "prompt"], false), Some(ApprovalMode::Wait));
        assert_eq!(mode(&["--approve", "auto"], true), Some(ApprovalMode::Auto));
        assert_eq!(mode(&["--approve", "fail"], true), Some(ApprovalMode::Fail));
        assert_eq!(mode(&["--approve", "fail", "--no-input"], true), None);
        // What needs approval is approved automatically in a copy.
        assert_eq!(mode(&["--copy-of", "."], false), Some(ApprovalMode::Auto));
        assert_eq!(mode(&["--copy-of", "."], true), Some(ApprovalMode::Wait));
        assert_eq!(mode(&["--copy-of", ".", "--no-input"], false), Some(ApprovalMode::Fail));
        assert_eq!(mode(&["--copy-of", ".", "--approve", "prompt"], false), Some(ApprovalMode::Wait));
    }

    #[test]
    fn a_workspace_on_another_machine_is_taken_as_it_is() {
        assert_eq!(workspace(Path::new("/srv/w"), false).unwrap(), "/srv/w");
        assert!(workspace(Path::new("."), false).unwrap_err().report().message.contains("absolute path"));
    }
}
