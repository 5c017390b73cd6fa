//! The command to type next. Every `belay …` line on a screen is built here, so that it works when it is typed as printed: it is quoted for a
//! shell and has the flags that lead to the same services, state directory and namespace.

use std::{path::Path, sync::OnceLock};

use belay_reasons as reasons;
use clap::Command;

use crate::{
    address::Address,
    names::DEFAULT_NAMESPACE,
    render::text::{Line, Style},
};

/// Flags that select the services and the state directory, with their values: `("--state-dir", "/tmp/x")`. `--token` is not among them: a secret
/// is not printed.
pub(crate) type ContextFlag = (&'static str, String);

/// The command line as typed.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandLine {
    /// The context flags that were given.
    pub(crate) context: Vec<ContextFlag>,
    /// All other words, without `belay`.
    pub(crate) words: Vec<String>,
}

impl CommandLine {
    /// The same with this namespace in its context.
    fn in_namespace(mut self, namespace: &str) -> CommandLine {
        self.context.retain(|(flag, _)| *flag != "--namespace");
        if namespace != DEFAULT_NAMESPACE {
            self.context.push(("--namespace", namespace.to_owned()));
        }
        self
    }
}

/// The command line of this process, and the constructor of the grammar of `belay`. Set once, before anything is printed; tests that set nothing
/// see plain commands.
static STARTED: OnceLock<(CommandLine, fn() -> Command)> = OnceLock::new();

/// Remembers what was typed, and how it is read: the commands stand above all that suggests one of them.
pub(crate) fn remember(typed: CommandLine, grammar: fn() -> Command) {
    // It is called once; a second value would be dropped.
    drop(STARTED.set((typed, grammar)));
}

fn command_line() -> CommandLine {
    STARTED.get().map(|(typed, _)| typed.clone()).unwrap_or_default()
}

/// The context flags that a command needs to work at the same place.
fn needs(words: &[String]) -> &'static [&'static str] {
    const SERVICES: &[&str] = &["--state-dir", "--server", "--gate", "--config", "--namespace"];
    const STATE: &[&str] = &["--state-dir", "--config"];
    if words.iter().any(|word| word == "--help") {
        return &[];
    }
    match words.first().map(String::as_str) {
        Some(
            "run" | "executions" | "approvals" | "approve" | "deny" | "plan" | "tools" | "why" | "logs" | "artifacts"
            | "audit",
        ) => SERVICES,
        Some("serve" | "principals" | "doctor" | "config" | "network") => STATE,
        _ => &[],
    }
}

/// The line for these words in this context. A flag that the words give themselves is not given twice.
fn join(typed: &CommandLine, words: &[String]) -> String {
    let mut all = vec!["belay".to_owned()];
    all.extend(words.iter().map(|word| quote(word)));
    let needed = needs(words);
    for (flag, value) in &typed.context {
        if needed.contains(flag) && !words.iter().any(|word| word == flag) {
            all.extend([(*flag).to_owned(), quote(value)]);
        }
    }
    all.join(" ")
}

/// A word as a POSIX shell reads it back.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn owned<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

/// `belay` with these words, and what leads to the same place.
pub(crate) fn command<S: AsRef<str>>(words: &[S]) -> String {
    join(&command_line(), &owned(words))
}

/// A command about an execution or an approval, by its full name: `about(&["executions", "get"], name, &["-o", "json"])`. The namespace is the
/// name's own.
pub(crate) fn about(verb: &[&str], name: &str, rest: &[&str]) -> String {
    about_in(&command_line(), verb, name, rest)
}

fn about_in(typed: &CommandLine, verb: &[&str], name: &str, rest: &[&str]) -> String {
    let typed = match name.strip_prefix("namespaces/").and_then(|rest| rest.split('/').next()) {
        Some(namespace) => typed.clone().in_namespace(namespace),
        None => typed.clone(),
    };
    let id = crate::names::id(name);
    join(&typed, &owned(&[verb, &[id], rest].concat()))
}

/// `next: COMMAND`, on one row in any window, so that it can be copied.
pub(crate) fn line(command: impl AsRef<str>) -> Line {
    Line::default().and(Style::Dim, "next: ").and(Style::Strong, command).verbatim()
}

/// Another command below `next: COMMAND`.
pub(crate) fn also(command: impl AsRef<str>) -> Line {
    Line::new("      ").and(Style::Strong, command).verbatim()
}

/// The command that explains a code; the list of all codes for one that is not in the table.
pub(crate) fn explain(code: &str) -> String {
    match reasons::find(code) {
        Some(reason) => command(&["explain", reason.name]),
        None => command(&["explain"]),
    }
}

/// The help of the command that was typed.
pub(crate) fn help() -> String {
    let words = command_line().words;
    let is_verb = |word: &&String| {
        word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
    };
    let verbs = words.iter().take_while(is_verb).take(2);
    let grammar = STARTED.get().map_or_else(|| Command::new("belay"), |(_, grammar)| grammar());
    help_of(&grammar, &verbs.map(String::as_str).collect::<Vec<_>>())
}

/// The help of the longest beginning of these words that is a command.
pub(crate) fn help_of(grammar: &Command, words: &[&str]) -> String {
    let mut at = grammar;
    let mut found = Vec::new();
    for word in words {
        let Some(next) = at.find_subcommand(word) else { break };
        found.push(*word);
        at = next;
    }
    command(&[&found[..], &["--help"]].concat())
}

/// The command line as typed, with one word replaced.
pub(crate) fn instead(wrong: &str, right: &str) -> String {
    let words = command_line().words;
    command(&words.iter().map(|word| if word == wrong { right } else { word }).collect::<Vec<_>>())
}

/// The command line as typed, for another namespace.
pub(crate) fn in_namespace(namespace: &str) -> String {
    let typed = command_line().in_namespace(namespace);
    join(&typed, &typed.words)
}

/// The `belay run` that was typed, as a new execution with other flags for approvals; the typed ones stay when `flags` is empty.
/// `None` where something else was typed, or the plan came from standard input and is gone.
pub(crate) fn run_again(flags: &[&str]) -> Option<String> {
    const ID: [(&str, bool); 2] = [("--id", true), ("--request-id", true)];
    const APPROVALS: [(&str, bool); 2] = [("--approve", true), ("--no-input", false)];
    let words = command_line().words;
    let is_run = words.first().is_some_and(|word| word == "run") && !words.iter().any(|word| word == "-");
    let replaced = if flags.is_empty() { ID.to_vec() } else { [ID, APPROVALS].concat() };
    is_run.then(|| command(&reflagged(&words, &replaced, flags)))
}

/// Words without some flags (and their values, where they have one) and with others.
fn reflagged(words: &[String], without: &[(&str, bool)], with: &[&str]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match without.iter().find(|(flag, _)| word == flag || word.starts_with(&format!("{flag}="))) {
            Some((flag, true)) if word == flag => drop(words.next()),
            Some(_) => {}
            None => kept.push(word.clone()),
        }
    }
    kept.extend(owned(with));
    kept
}

/// The command that starts a server at the address; `None` if that is another machine.
pub(crate) fn serve(address: Option<&Address>) -> Option<String> {
    match address {
        None => Some(command(&["serve"])),
        Some(Address::Unix(path)) => match (path.file_name().and_then(|name| name.to_str()), path.parent()) {
            (Some("executor.sock"), Some(folder)) => {
                Some(command(&["serve", "--state-dir", &folder.to_string_lossy()]))
            }
            _ => None,
        },
        Some(Address::Http(url)) => {
            let listen = url.trim_start_matches("http://");
            let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
            matches!(host, "localhost" | "127.0.0.1" | "[::1]").then(|| {
                // `--listen` takes an address, not a host name.
                command(&["serve", "--listen", &listen.replacen("localhost", "127.0.0.1", 1)])
            })
        }
    }
}

/// A command that a service suggests, with the context flags of this one; `None` if it is not a `belay` command.
pub(crate) fn of_server(suggested: &str) -> Option<String> {
    let mut words = suggested.split_whitespace();
    (words.next() == Some("belay")).then(|| command(&words.collect::<Vec<_>>()))
}

/// Whether this line is what was just typed, so that typing it again would change nothing.
pub(crate) fn is_typed(next: &str) -> bool {
    STARTED.get().is_some_and(|(typed, _)| join(typed, &typed.words) == next)
}

/// The name in the same folder that a mistyped file name probably meant.
pub(crate) fn similar_file(path: &Path) -> Option<String> {
    /// How much a name must resemble another to be suggested; 1 is the same.
    const ALIKE: f64 = 0.85;
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let likely = names.map(|known| (strsim::jaro_winkler(&known, name), known)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let found = folder.map_or_else(|| likely.1.clone().into(), |folder| folder.join(&likely.1));
    (likely.0 >= ALIKE && found.is_file()).then(|| found.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(flags: &[(&'static str, &str)]) -> CommandLine {
        CommandLine {
            context: flags.iter().map(|(flag, value)| (*flag, (*value).to_owned())).collect(),
            words: Vec::new(),
        }
    }

    fn made(typed: &CommandLine, words: &str) -> String {
        join(typed, &owned(&words.split(' ').collect::<Vec<_>>()))
    }

    #[test]
    fn a_command_goes_to_where_this_one_worked() {
        let typed = context(&[
            ("--state-dir", "/tmp/my state"),
            ("--server", "http://h:1"),
            ("--namespace", "team"),
            ("--config", "c.yaml"),
        ]);
        assert_eq!(
            made(&typed, "executions list"),
            "belay executions list --state-dir '/tmp/my state' --server http://h:1 --namespace team --config c.yaml"
        );
        assert_eq!(made(&typed, "serve"), "belay serve --state-dir '/tmp/my state' --config c.yaml");
        assert_eq!(made(&typed, "serve --state-dir /s"), "belay serve --state-dir /s --config c.yaml");
        for alone in ["explain STORE_FULL", "run --help", "policy check p.yaml"] {
            assert_eq!(made(&typed, alone), format!("belay {alone}"));
        }
    }

    #[test]
    fn a_name_brings_its_own_namespace() {
        let name = |namespace: &str| format!("namespaces/{namespace}/executions/e1");
        let typed = context(&[("--namespace", "team")]);
        let get = |name: &str| about_in(&typed, &["executions", "get"], name, &["-o", "json"]);
        assert_eq!(get(&name("team")), "belay executions get e1 -o json --namespace team");
        assert_eq!(get(&name("other")), "belay executions get e1 -o json --namespace other");
        assert_eq!(get(&name("default")), "belay executions get e1 -o json");
    }

    #[test]
    fn words_are_read_back_by_a_shell() {
        for (word, quoted) in [("a-b/c.yaml", "a-b/c.yaml"), ("", "''"), ("it's", r"'it'\''s'"), ("a;rm", "'a;rm'")] {
            assert_eq!(quote(word), quoted);
        }
    }

    #[test]
    fn flags_are_replaced() {
        let words = owned(&["run", "p.yaml", "--approve", "fail", "--no-input", "--id", "x"]);
        let flags = [("--approve", true), ("--no-input", false)];
        assert_eq!(
            reflagged(&words, &flags, &["--approve", "prompt"]),
            ["run", "p.yaml", "--id", "x", "--approve", "prompt"]
        );
        let joined = owned(&["run", "p.yaml", "--approve=fail"]);
        assert_eq!(reflagged(&joined, &flags, &[]), ["run", "p.yaml"]);
    }

    #[test]
    fn only_belay_commands_are_repeated() {
        assert_eq!(of_server("belay executions get e1").as_deref(), Some("belay executions get e1"));
        assert_eq!(of_server("belay executions get $(reboot)").as_deref(), Some("belay executions get '$(reboot)'"));
        assert_eq!(of_server("rm -rf /"), None);
    }

    #[test]
    fn a_server_is_started_where_it_was_looked_for() {
        let at = |text: &str| serve(Some(&text.parse().unwrap()));
        assert_eq!(at("unix:/s/executor.sock").as_deref(), Some("belay serve --state-dir /s"));
        assert_eq!(at("http://localhost:7433").as_deref(), Some("belay serve --listen 127.0.0.1:7433"));
        assert_eq!(at("http://far:7433"), None);
        assert_eq!(serve(None).as_deref(), Some("belay serve"));
    }
}
