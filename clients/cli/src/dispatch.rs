//! Runs the command that was typed.

use clap::CommandFactory as _;

use crate::{
    cli::{
        Approvals, Artifacts, Cli, Command, Config, Executions, Models, Namespaces, Network, Plan, Policy, Schedules,
        Store, Tools,
    },
    commands::{
        api, approvals, artifacts, audit, completions, config, doctor, executions, explain, logs, models, namespaces,
        network, plan, policy, principals, prune, run, schedules, serve, stats, store, tools, why,
    },
    context::Context,
    exit::Exit,
    failure::Failure,
    render::text::{Line, Style},
    screen::Screen,
    signals::Signals,
    stopped::unless_stopped,
};

/// Runs a command. Long commands handle Ctrl-C themselves; the others end.
pub(crate) async fn dispatch(context: &Context, command: Command, signals: &mut Signals) -> Result<Exit, Failure> {
    match command {
        Command::Run(verb) => run::run(context, verb, signals).await,
        Command::Serve(verb) => serve::serve(context, verb, signals).await,
        Command::Executions(Executions::Watch(verb)) => executions::watch::watch(context, verb, signals).await,
        Command::Executions(Executions::Resume(verb)) => executions::resume::resume(context, verb, signals).await,
        Command::Executions(Executions::Retry(verb)) => executions::retry::retry(context, verb, signals).await,
        Command::Executions(Executions::Fork(verb)) => executions::fork::fork(context, verb, signals).await,
        short => unless_stopped(signals, dispatch_short(context, short)).await?,
    }
}

async fn dispatch_short(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Logs(verb) => logs::logs(context, verb).await,
        Command::Why(verb) => why::why(context, verb).await,
        Command::Artifacts(Artifacts::List(verb)) => artifacts::list::list(context, verb).await,
        Command::Artifacts(Artifacts::Get(verb)) => artifacts::get::get(context, verb).await,
        Command::Artifacts(Artifacts::Lineage(verb)) => artifacts::lineage::lineage(context, verb).await,
        Command::Audit(verb) => audit::audit(context, verb).await,
        Command::Plan(Plan::Validate(verb)) => plan::validate(context, verb).await,
        Command::Plan(Plan::Graph(verb)) => plan::graph(context, verb).await,
        Command::Executions(Executions::List(verb)) => executions::list::list(context, verb).await,
        Command::Executions(Executions::Get(verb)) => executions::get::get(context, verb).await,
        Command::Executions(Executions::Diff(verb)) => executions::diff::diff(context, verb).await,
        Command::Executions(Executions::Result(verb)) => executions::result::result(context, verb).await,
        Command::Executions(Executions::Events(verb)) => executions::events::events(context, verb).await,
        Command::Executions(Executions::Timeline(verb)) => executions::timeline::timeline(context, verb).await,
        Command::Executions(Executions::Cancel(verb)) => executions::cancel::cancel(context, verb).await,
        Command::Executions(Executions::Delete(verb)) => executions::delete::delete(context, verb).await,
        Command::Executions(Executions::Pause(verb)) => executions::pause::pause(context, verb).await,
        Command::Executions(Executions::Signal(verb)) => executions::signal::signal(context, verb).await,
        Command::Executions(Executions::Resolve(verb)) => executions::resolve::resolve(context, verb).await,
        Command::Executions(Executions::Skip(verb)) => executions::step::skip(context, verb).await,
        Command::Executions(Executions::SetOutput(verb)) => executions::step::set_output(context, verb).await,
        Command::Executions(Executions::RetryStep(verb)) => executions::step::retry_step(context, verb).await,
        Command::Executions(Executions::EditPlan(verb)) => executions::edit_plan::edit_plan(context, verb).await,
        Command::Schedules(Schedules::Create(verb)) => schedules::create::create(context, verb).await,
        Command::Schedules(Schedules::List(verb)) => schedules::list::list(context, verb).await,
        Command::Schedules(Schedules::Get(verb)) => schedules::get::get(context, verb).await,
        Command::Schedules(Schedules::Pause(verb)) => schedules::control::pause(context, verb).await,
        Command::Schedules(Schedules::Resume(verb)) => schedules::control::resume(context, verb).await,
        Command::Schedules(Schedules::Trigger(verb)) => schedules::fire::trigger(context, verb).await,
        Command::Schedules(Schedules::Backfill(verb)) => schedules::fire::backfill(context, verb).await,
        Command::Schedules(Schedules::Delete(verb)) => schedules::delete::delete(context, verb).await,
        Command::Approvals(Approvals::List(verb)) => approvals::list::list(context, verb).await,
        Command::Approvals(Approvals::Show(verb)) => approvals::show::show(context, verb).await,
        Command::Approvals(Approvals::Approve(verb)) | Command::Approve(verb) => {
            approvals::decide::approve(context, verb).await
        }
        Command::Approvals(Approvals::Deny(verb)) | Command::Deny(verb) => approvals::decide::deny(context, verb).await,
        Command::Approvals(Approvals::Skip(verb)) => approvals::decide::skip(context, verb).await,
        Command::Approvals(Approvals::Answer(verb)) => approvals::answer::answer(context, verb).await,
        Command::Policy(Policy::Check(verb)) => policy::check(context, verb).await,
        Command::Network(Network::List(verb)) => network::list::list(context, verb).await,
        Command::Network(Network::Show(verb)) => network::show::show(context, verb).await,
        Command::Network(Network::Check(verb)) => network::check::check(context, verb).await,
        Command::Config(Config::Show(verb)) => config::show(context, verb).await,
        Command::Api(verb) => api::api(context, verb).await,
        Command::Principals(verb) => principals::principals(context, &verb),
        Command::Store(Store::Check(verb)) => store::check(context, verb).await,
        Command::Store(Store::Stats(verb)) => stats::stats(context, verb).await,
        Command::Store(Store::Prune(verb)) => prune::prune(context, verb).await,
        Command::Doctor(verb) => doctor::doctor(context, verb).await,
        Command::Namespaces(Namespaces::List(verb)) => namespaces::list::list(context, verb).await,
        Command::Models(Models::List(verb)) => models::list::list(context, verb).await,
        Command::Models(Models::Check(verb)) => models::check::check(context, verb).await,
        Command::Tools(Tools::List(verb)) => tools::list::list(context, verb).await,
        Command::Tools(Tools::Describe(verb)) => tools::describe::describe(context, verb).await,
        Command::Explain(verb) => explain::explain(context, &verb),
        Command::Completions(verb) => completions::completions(verb, &mut Cli::command()),
        Command::Run(_)
        | Command::Serve(_)
        | Command::Executions(
            Executions::Watch(_) | Executions::Resume(_) | Executions::Retry(_) | Executions::Fork(_),
        ) => Err(Failure::internal("a long command was taken for a short one")),
    }
}

/// The output of `belay` alone: five commands to begin with.
pub(crate) fn overview(screen: &Screen) -> Result<Exit, Failure> {
    let row = |command: &str, what: &str| Line::new("  ").column(Style::Strong, command, 32).and(Style::Plain, what);
    screen.print(&[
        row("belay run plan.yaml", "carry out a plan, and watch it"),
        row("belay plan validate plan.yaml", "check a plan, run nothing"),
        row("belay tools list", "what a plan's steps can use"),
        row("belay executions get @last", "what became of the last one"),
        row("belay --help", "everything else"),
    ])?;
    Ok(Exit::OK)
}
