//! The grammar of the command line: the commands, and the policy, the format and the span of each.

use clap::{Parser, Subcommand};

use belay_all_in_one::PolicyChoice;

use crate::{
    args::{Format, GlobalArgs, execution_help},
    commands::{
        api, approvals, artifacts, audit, completions, config, doctor, executions, explain, logs, models, namespaces,
        network, plan, policy, principals, prune, run, schedules, serve, stats, store, tools, why,
    },
};

/// Carries out plans: steps with dependencies, run through tools that are confined to a workspace, recorded, and resumed after any loss.
#[derive(Debug, Parser)]
#[command(name = "belay", version, disable_help_subcommand = true, after_help = execution_help!("belay run plan.yaml"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Cli {
    /// The format of standard output: a shape for programs is never text.
    pub(crate) fn format(&self) -> Format {
        let given = self.global.output;
        match &self.command {
            Some(Command::Run(run::Run { shape: Some(_), .. }))
            | Some(Command::Executions(Executions::Watch(executions::watch::Watch { shape: Some(_), .. }))) => {
                Format::Jsonl
            }
            Some(Command::Executions(Executions::Events(executions::events::Events { shape: Some(_), .. })))
                if given == Format::Text =>
            {
                Format::Jsonl
            }
            Some(Command::Executions(Executions::Result(executions::result::Print { shape: Some(_), .. })))
                if given == Format::Text =>
            {
                Format::Json
            }
            _ => given,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Run),
    Serve(serve::Serve),
    Why(why::Why),
    Logs(logs::Print),
    #[command(subcommand)]
    Artifacts(Artifacts),
    Audit(audit::Audit),
    Approve(approvals::decide::Approve),
    Deny(approvals::decide::Deny),
    #[command(subcommand)]
    Approvals(Approvals),
    #[command(subcommand)]
    Plan(Plan),
    #[command(subcommand)]
    Executions(Executions),
    #[command(subcommand)]
    Schedules(Schedules),
    #[command(subcommand)]
    Namespaces(Namespaces),
    #[command(subcommand)]
    Tools(Tools),
    #[command(subcommand)]
    Models(Models),
    #[command(subcommand)]
    Policy(Policy),
    #[command(subcommand)]
    Network(Network),
    #[command(subcommand)]
    Config(Config),
    Principals(principals::Principals),
    Api(api::Api),
    #[command(subcommand)]
    Store(Store),
    Doctor(doctor::Doctor),
    Explain(explain::Explain),
    Completions(completions::Completions),
}

impl Command {
    /// The policy that the services are to start with, if they start in this process. Commands that only read, decide
    /// or resume keep the policy in force.
    pub(crate) fn policy(&self) -> PolicyChoice {
        match self {
            Command::Run(verb) => verb.policy.choice(),
            Command::Serve(verb) => verb.policy.choice(),
            Command::Schedules(Schedules::Create(verb)) => verb.policy.choice(),
            _ => PolicyChoice::Keep,
        }
    }

    /// The name of its span, if it changes something.
    pub(crate) fn span(&self) -> Option<&'static str> {
        Some(match self {
            Command::Run(verb) if !verb.dry_run => "belay run",
            Command::Executions(Executions::Cancel(_)) => "belay executions cancel",
            Command::Executions(Executions::Delete(_)) => "belay executions delete",
            Command::Executions(Executions::Pause(_)) => "belay executions pause",
            Command::Executions(Executions::Resume(_)) => "belay executions resume",
            Command::Executions(Executions::Signal(_)) => "belay executions signal",
            Command::Executions(Executions::Resolve(_)) => "belay executions resolve",
            Command::Executions(Executions::Retry(_)) => "belay executions retry",
            Command::Executions(Executions::Fork(_)) => "belay executions fork",
            Command::Executions(Executions::Skip(_)) => "belay executions skip",
            Command::Executions(Executions::SetOutput(_)) => "belay executions set-output",
            Command::Executions(Executions::RetryStep(_)) => "belay executions retry-step",
            Command::Executions(Executions::EditPlan(_)) => "belay executions edit-plan",
            Command::Schedules(Schedules::Create(_)) => "belay schedules create",
            Command::Schedules(Schedules::Pause(_)) => "belay schedules pause",
            Command::Schedules(Schedules::Resume(_)) => "belay schedules resume",
            Command::Schedules(Schedules::Trigger(_)) => "belay schedules trigger",
            Command::Schedules(Schedules::Backfill(_)) => "belay schedules backfill",
            Command::Schedules(Schedules::Delete(_)) => "belay schedules delete",
            Command::Approve(_) | Command::Approvals(Approvals::Approve(_)) => "belay approvals approve",
            Command::Deny(_) | Command::Approvals(Approvals::Deny(_)) => "belay approvals deny",
            Command::Approvals(Approvals::Skip(_)) => "belay approvals skip",
            Command::Approvals(Approvals::Answer(_)) => "belay approvals answer",
            _ => return None,
        })
    }
}

/// List, show and decide approvals, and answer forms
#[derive(Debug, Subcommand)]
pub(crate) enum Approvals {
    List(approvals::list::List),
    Show(approvals::show::Show),
    Approve(approvals::decide::Approve),
    Deny(approvals::decide::Deny),
    Skip(approvals::decide::Skip),
    Answer(approvals::answer::Answer),
}

/// List what an execution has produced, print it, and show what it derives from
#[derive(Debug, Subcommand)]
pub(crate) enum Artifacts {
    List(artifacts::list::List),
    Get(artifacts::get::Get),
    Lineage(artifacts::lineage::Lineage),
}

/// Check policies: what runs without approval, what needs approval, what is denied
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    Check(policy::Check),
}

/// Show the operator's settings: what commands see and may use
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    Show(config::Show),
}

/// Check and measure the stores in the state directory, and delete what is old
#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    Check(store::Check),
    Prune(prune::Prune),
    Stats(stats::Stats),
}

/// Show which hosts commands may reach, by network profile
#[derive(Debug, Subcommand)]
pub(crate) enum Network {
    List(network::list::List),
    Show(network::show::Show),
    Check(network::check::Check),
}

/// Check and draw plans without running them
#[derive(Debug, Subcommand)]
pub(crate) enum Plan {
    Validate(plan::Validate),
    Graph(plan::Draw),
}

/// List, watch and control executions
#[derive(Debug, Subcommand)]
pub(crate) enum Executions {
    List(executions::list::List),
    Get(executions::get::Get),
    Result(executions::result::Print),
    Diff(executions::diff::Diff),
    Watch(executions::watch::Watch),
    Events(executions::events::Events),
    Timeline(executions::timeline::Show),
    Cancel(executions::cancel::Cancel),
    Delete(executions::delete::Delete),
    Pause(executions::pause::Pause),
    Resume(executions::resume::Resume),
    Signal(executions::signal::Signal),
    Resolve(executions::resolve::Resolve),
    Retry(executions::retry::Retry),
    Fork(executions::fork::Fork),
    Skip(executions::step::Skip),
    SetOutput(executions::step::SetOutput),
    RetryStep(executions::step::RetryStep),
    EditPlan(executions::edit_plan::EditPlan),
}

/// Start executions of a plan at times: by a cron line in a time zone, or at an interval
#[derive(Debug, Subcommand)]
pub(crate) enum Schedules {
    Create(schedules::create::Create),
    List(schedules::list::List),
    Get(schedules::get::Get),
    Pause(schedules::control::Pause),
    Resume(schedules::control::Resume),
    Trigger(schedules::fire::Trigger),
    Backfill(schedules::fire::Backfill),
    Delete(schedules::delete::Delete),
}

/// Show what namespaces have used of their budgets
#[derive(Debug, Subcommand)]
pub(crate) enum Namespaces {
    List(namespaces::list::List),
}

/// Show the models that the settings have, and what their servers can do
#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    List(models::list::List),
    Check(models::check::Check),
}

/// Show the tools that steps can use
#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    List(tools::list::List),
    Describe(tools::describe::Describe),
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, CommandFactory as _, Parser as _};

    use super::*;
    use crate::address::Address;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    // A field of a command that has the name of one that every command takes would be read in its place.
    #[test]
    fn no_command_hides_what_every_command_takes() {
        let global = GlobalArgs::augment_args(clap::Command::new("belay"));
        let shared: Vec<&clap::Id> = global.get_arguments().map(clap::Arg::get_id).collect();
        fn check(command: &clap::Command, shared: &[&clap::Id]) {
            for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
                assert!(!shared.contains(&argument.get_id()), "{}: {}", command.get_name(), argument.get_id());
            }
            command.get_subcommands().for_each(|command| check(command, shared));
        }
        check(&Cli::command(), &shared);
    }

    #[test]
    fn every_command_has_an_example_and_its_exit_codes() {
        fn check(command: &clap::Command) {
            if command.has_subcommands() && command.get_name() != "belay" {
                command.get_subcommands().for_each(check);
                return;
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example:\n  ") && help.contains("Exit codes:\n"), "{}", command.get_name());
            assert!(command.get_about().is_some(), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn flags_that_every_command_takes_may_stand_anywhere() {
        let cli = Cli::parse_from([
            "belay",
            "executions",
            "list",
            "-o",
            "json",
            "--server",
            "http://h:1",
            "--namespace",
            "n",
        ]);
        assert_eq!((cli.global.output, cli.global.namespace.as_str()), (Format::Json, "n"));
        assert_eq!(cli.global.target(PolicyChoice::Keep).server, Some(Address::Http("http://h:1".to_owned())));
    }
}
