//! Arguments of every command, and of several.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use belay_all_in_one::{ConfigSource, PolicyChoice};

use crate::{address::Address, connect::Target, next::CommandLine};

/// The end of a command's help: an example, and the exit codes of commands that ask or change something.
macro_rules! help {
    ($example:literal) => {
        concat!(
            "Example:\n  ",
            $example,
            "\n\nExit codes:\n  0    done\n  1    a fault of Belay or its surroundings\n  2    refused or used wrongly; nothing happened\n  \
             130  interrupted (143: terminated, 129: the terminal was closed)"
        )
    };
}

/// The end of the help of commands that end as the execution does.
macro_rules! execution_help {
    ($example:literal) => {
        concat!(
            "Example:\n  ",
            $example,
            "\n\nExit codes:\n  0    done; the execution completed\n  1    it was cancelled, or a fault of Belay or its surroundings\n  \
             2    refused or used wrongly; nothing happened\n  30   it failed (one failed step is enough)\n  \
             32   it failed: a tool reached out of its workspace\n  33   it failed: the policy or a person denied a call\n  \
             34   it failed: a time limit ran out; or --wait-timeout did, and then it continues or can be resumed\n  \
             35   it ended in part: nothing failed, and a step was skipped that others needed, or all were\n  \
             130  interrupted (143: terminated, 129: the terminal was closed, 141: the reader of the output has gone); it continues or can be resumed"
        )
    };
}
pub(crate) use {execution_help, help};

/// The flags of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// The state directory [default: $XDG_STATE_HOME/belay or ~/.local/state/belay]
    #[arg(long, global = true, value_name = "DIR", env = "BELAY_STATE_DIR", value_hint = clap::ValueHint::DirPath)]
    state_dir: Option<PathBuf>,
    /// The server to use: unix:/path or http://host:port [default: the process that holds the state directory, else this process]
    #[arg(long, global = true, value_name = "ADDR", env = "BELAY_SERVER")]
    server: Option<Address>,
    /// The approval gate, where it is not at the server's address: unix:/path or http://host:port
    #[arg(long, global = true, value_name = "ADDR", env = "BELAY_GATE")]
    gate: Option<Address>,
    /// The token for a server over TCP; BELAY_TOKEN keeps it out of the list of processes
    #[arg(long, global = true, value_name = "TOKEN", env = "BELAY_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The operator's settings, for services that start in this process [default: $XDG_CONFIG_HOME/belay/config.yaml, then
    /// /etc/belay/config.yaml]
    #[arg(long, global = true, value_name = "FILE", env = "BELAY_CONFIG", value_hint = clap::ValueHint::FilePath)]
    config: Option<PathBuf>,
    /// Output format
    #[arg(short, long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    pub(crate) output: Format,
    /// The namespace of the executions
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub(crate) namespace: String,
}

impl GlobalArgs {
    /// Where to look for the services, and the policy for those that start in this process.
    pub(crate) fn target(&self, policy: PolicyChoice) -> Target {
        Target {
            server: self.server.clone(),
            token: self.token.clone(),
            state_dir: self.state_dir.clone(),
            gate: self.gate.clone(),
            policy,
            config: ConfigSource::new(self.config.clone(), &|name| std::env::var_os(name)),
            trace: None,
        }
    }
}

/// The format of standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: one object
    Json,
    /// For programs: one object a line, events as they come
    Jsonl,
}

/// The policy for services that start in this process.
#[derive(Args, Debug)]
pub(crate) struct PolicyFile {
    /// The policy for services that start in this process [default: $XDG_CONFIG_HOME/belay/policy.yaml, else the built-in one]
    #[arg(long = "policy", value_name = "FILE", env = "BELAY_POLICY", value_hint = clap::ValueHint::FilePath)]
    named: Option<PathBuf>,
}

impl PolicyFile {
    /// The file that is named, if one is.
    pub(crate) fn named(&self) -> Option<&std::path::Path> {
        // A variable that is set to nothing names none.
        self.named.as_deref().filter(|path| !path.as_os_str().is_empty())
    }

    /// The policy that the services are to start with.
    pub(crate) fn choice(&self) -> PolicyChoice {
        match self.named() {
            Some(path) => PolicyChoice::File(path.to_owned()),
            None => PolicyChoice::of_user(&|name| std::env::var_os(name)),
        }
    }
}

/// The execution a command is about.
#[derive(Args, Debug)]
pub(crate) struct ExecutionArg {
    /// The execution: its id, the beginning of its id, its full name, or @last
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Reads `key=value`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value".to_owned()),
    }
}

/// Flags of every command that select the services and the state directory.
const CONTEXT: [&str; 5] = ["--state-dir", "--server", "--gate", "--config", "--namespace"];
/// Flags of every command that do not: a secret, which is never printed, and the output format.
const NO_CONTEXT: [&str; 3] = ["--token", "--output", "-o"];

/// Reads the words as typed, also when they cannot be parsed: the flags that lead to the same place, and all other words. The environment is
/// not included, since later commands see it as well.
pub(crate) fn command_line(arguments: &[String]) -> CommandLine {
    let mut typed = CommandLine::default();
    let mut rest = arguments.iter().skip(1);
    while let Some(word) = rest.next() {
        let (flag, joined) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            // `-ojson`
            None if word.starts_with("-o") => ("-o", word.get(2..).filter(|value| !value.is_empty())),
            None => (word.as_str(), None),
        };
        let known = CONTEXT.iter().chain(&NO_CONTEXT).find(|known| **known == flag);
        let Some(known) = known else {
            typed.words.push(word.clone());
            continue;
        };
        let value = joined.map(str::to_owned).or_else(|| rest.next().cloned());
        if let (true, Some(value)) = (CONTEXT.contains(known), value) {
            typed.context.push((known, value));
        }
    }
    typed
}

/// Whether the output is for programs, read from arguments that could not be parsed.
pub(crate) fn wants_json(arguments: &[String]) -> bool {
    let is_json = |value: &str| matches!(value, "json" | "jsonl");
    let joined = |argument: &String| {
        argument
            .strip_prefix("--output=")
            .or(argument.strip_prefix("-o"))
            .is_some_and(|v| is_json(v.trim_start_matches('=')))
    };
    arguments.iter().any(joined)
        || arguments.windows(2).any(|pair| matches!(pair[0].as_str(), "-o" | "--output") && is_json(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_known_even_when_nothing_else_is() {
        let given = |line: &str| wants_json(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(given("run -o json --nope") && given("-ojsonl x") && given("--output=json") && given("--output jsonl"));
        assert!(!given("run json") && !given("-o text json"));
    }

    #[test]
    fn what_was_typed_is_told_apart_from_where() {
        let read = |line: &str| {
            let typed = command_line(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
            let context: Vec<_> = typed.context.iter().map(|(flag, value)| format!("{flag} {value}")).collect();
            (typed.words.join(" "), context.join(" "))
        };
        assert_eq!(
            read("belay --server http://h:1 executions get e1 -ojson --namespace=n --token t"),
            ("executions get e1".to_owned(), "--server http://h:1 --namespace n".to_owned())
        );
        assert_eq!(read("belay run p.yaml --output json --id x").0, "run p.yaml --id x");
    }

    #[test]
    fn every_flag_of_every_command_is_context_or_not() {
        let command = GlobalArgs::augment_args(clap::Command::new("belay"));
        let long = command.get_arguments().filter_map(clap::Arg::get_long).map(|long| format!("--{long}"));
        let mut known: Vec<_> = CONTEXT.iter().chain(&NO_CONTEXT).filter(|flag| flag.starts_with("--")).collect();
        let mut flags: Vec<_> = long.collect();
        known.sort_unstable();
        flags.sort_unstable();
        assert_eq!(flags, known.into_iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>());
    }

    #[test]
    fn labels_are_pairs() {
        assert_eq!(label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(label("a").is_err() && label("=b").is_err());
    }
}
