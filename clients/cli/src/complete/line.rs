//! Reads a command that is being typed: which resource the word before the cursor names. Pure.

use clap::{Arg, Command};

/// A shell's request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompletionRequest {
    /// The kind of resource that the word names.
    pub(crate) kind: ResourceKind,
    /// The typed beginning of its name.
    pub(crate) prefix: String,
    /// The flags before it that lead to a server and a namespace.
    pub(crate) context: Vec<String>,
}

/// The kind of resource that a word names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    /// An execution.
    Execution,
    /// A step of an execution.
    Step {
        /// The execution, as it is typed.
        execution: String,
    },
    /// An approval that is pending.
    Approval,
    /// A tool.
    Tool,
    /// A namespace.
    Namespace,
}

/// Flags of every command that lead to a server or a namespace.
const CONTEXT: [&str; 5] = ["state-dir", "server", "gate", "token", "namespace"];

/// Reads the words after `belay`; the last one, which may be empty, is being typed. `None` where it names nothing that a server knows.
pub(crate) fn completion_request(belay: &Command, words: &[String]) -> Option<CompletionRequest> {
    let mut command = belay;
    let mut path: Vec<&str> = Vec::new();
    let mut positionals: Vec<&str> = Vec::new();
    let mut context = Vec::new();
    let mut flag: Option<&Arg> = None;
    let (current, before) = words.split_last()?;
    for word in before {
        if let Some(of) = flag.take() {
            keep(&mut context, of, word);
        } else if let Some((of, value)) = as_flag(belay, command, word) {
            match value {
                Some(value) => keep(&mut context, of, value),
                None => flag = Some(of).filter(|of| of.get_action().takes_values()),
            }
        } else if word.starts_with('-') && word.len() > 1 {
            // Not a flag of the command, which is going to be refused.
        } else if let Some(sub) = command.find_subcommand(word).filter(|_| positionals.is_empty()) {
            (command, flag) = (sub, None);
            path.push(sub.get_name());
        } else {
            positionals.push(word);
        }
    }
    let (arg, prefix) = match (flag, as_flag(belay, command, current)) {
        (Some(of), _) => (of, current.as_str()),
        (None, Some((of, Some(value)))) => (of, value),
        (None, _) if current.starts_with('-') => return None,
        (None, _) => (positional(command, positionals.len())?, current.as_str()),
    };
    let execution = positionals.first().map(|id| (*id).to_owned());
    let kind = kind(arg, &path, execution)?;
    Some(CompletionRequest { kind, prefix: prefix.to_owned(), context })
}

/// The flag that a word is, and the value that is joined to it.
fn as_flag<'a, 'w>(belay: &'a Command, command: &'a Command, word: &'w str) -> Option<(&'a Arg, Option<&'w str>)> {
    let mut all = command.get_arguments().chain(belay.get_arguments());
    if let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) {
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        return Some((all.find(|arg| arg.get_long() == Some(name))?, value));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let letter = letters.next()?;
    let joined = Some(letters.as_str()).filter(|value| !value.is_empty());
    Some((all.find(|arg| arg.get_short() == Some(letter))?, joined))
}

fn keep(context: &mut Vec<String>, flag: &Arg, value: &str) {
    if let Some(name) = flag.get_long().filter(|name| CONTEXT.contains(name)) {
        context.push(format!("--{name}={value}"));
    }
}

/// The positional argument after so many; the last one may be given more than once.
fn positional(command: &Command, before: usize) -> Option<&Arg> {
    let all: Vec<&Arg> = command.get_positionals().collect();
    let last = all.last().copied().filter(|arg| matches!(arg.get_action(), clap::ArgAction::Append));
    all.get(before).copied().or(last)
}

fn kind(arg: &Arg, path: &[&str], execution: Option<String>) -> Option<ResourceKind> {
    let value = arg.get_value_names()?.first()?.as_str();
    match (arg.get_long(), value) {
        (Some("namespace"), _) => Some(ResourceKind::Namespace),
        (Some("execution"), _) => Some(ResourceKind::Execution),
        // An id that does not exist yet.
        (Some("id"), _) => None,
        (_, "STEP") => Some(ResourceKind::Step { execution: execution? }),
        (None, "TOOL") => Some(ResourceKind::Tool),
        (None, "ID" | "A" | "B") => match path.first() {
            Some(&("approve" | "deny" | "approvals")) => Some(ResourceKind::Approval),
            Some(&("executions" | "why" | "logs")) => Some(ResourceKind::Execution),
            _ => None,
        },
        _ => None,
    }
}

/// The words of a command line after the command, as a shell separates them; the last one is what stands before the cursor.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let (mut quote, mut escaped) = (None, false);
    for c in line.chars() {
        let last = words.last_mut();
        match (quote, c) {
            _ if escaped => {
                escaped = false;
                last.into_iter().for_each(|word| word.push(c));
            }
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, _) if c.is_whitespace() => {
                if last.is_some_and(|word| !word.is_empty()) {
                    words.push(String::new());
                }
            }
            _ => last.into_iter().for_each(|word| word.push(c)),
        }
    }
    words.drain(1..).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn read(line: &str) -> Option<CompletionRequest> {
        completion_request(&Cli::command(), &words(line))
    }

    fn noun_of(line: &str) -> Option<ResourceKind> {
        read(line).map(|asked| asked.kind)
    }

    #[test]
    fn what_is_typed_names_something() {
        for line in [
            "belay why ",
            "belay logs ab",
            "belay executions get ",
            "belay executions get --calls ",
            "belay -o json executions get ",
            "belay executions delete e1 e2 ",
            "belay executions diff a ",
            "belay executions watch ",
            "belay approvals list --execution ",
            "belay approvals list --execution=a",
        ] {
            assert_eq!(noun_of(line), Some(ResourceKind::Execution), "{line}");
        }
        let step = |execution: &str| Some(ResourceKind::Step { execution: execution.to_owned() });
        assert_eq!(noun_of("belay logs @last "), step("@last"));
        assert_eq!(noun_of("belay executions skip e1 b"), step("e1"));
        assert_eq!(noun_of("belay executions get e1 --step "), step("e1"));
        assert_eq!(noun_of("belay executions get e1 --step=b"), step("e1"));
        assert_eq!(noun_of("belay executions retry e1 --from "), step("e1"));
        assert_eq!(noun_of("belay approve "), Some(ResourceKind::Approval));
        assert_eq!(noun_of("belay approvals answer a"), Some(ResourceKind::Approval));
        assert_eq!(noun_of("belay tools describe "), Some(ResourceKind::Tool));
        assert_eq!(noun_of("belay executions list --namespace "), Some(ResourceKind::Namespace));
    }

    #[test]
    fn what_no_server_knows_is_not_asked_for() {
        for line in [
            "",
            "belay",
            "belay ",
            "belay executions ",
            "belay executions get --st",
            "belay executions get --step ",
            "belay executions get e1 more ",
            "belay run ",
            "belay run plan.yaml --id ",
            "belay run --workspace ",
            "belay executions cancel e1 --reason ",
            "belay no such thing ",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn the_prefix_and_the_way_to_the_server_are_read() {
        let found = read("belay --state-dir '/a b' --token x executions --namespace=team get ab").unwrap();
        assert_eq!(found.prefix, "ab");
        assert_eq!(found.context, ["--state-dir=/a b", "--token=x", "--namespace=team"]);
        assert_eq!(read("belay executions get e1 --step=bu").unwrap().prefix, "bu");
    }

    #[test]
    fn a_line_is_separated_like_in_a_shell() {
        assert_eq!(words("belay why "), ["why", ""]);
        assert_eq!(words("belay  logs a"), ["logs", "a"]);
        assert_eq!(words(r#"belay x 'a b' "c\" d" e\ f"#), ["x", "a b", "c\" d", "e f"]);
        assert_eq!(words("belay '"), [""]);
        assert_eq!(words(""), [""; 0]);
    }
}
