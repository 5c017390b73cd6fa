//! The rules of one phase, compiled.

use std::borrow::Cow;

use crate::{
    ChangeFact, NetworkAccess, Verdict,
    document::{Phase, Rule},
    patterns::{Hits, Patterns, PatternsBuilder, Separator, glob, plain},
    protect,
};

/// The rules of one phase, in the order in which they were written.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The index of each in the document.
    places: Vec<usize>,
    programs: Patterns,
    arguments: Patterns,
    directories: Patterns,
    variables: Patterns,
    hosts: Patterns,
    paths: Patterns,
}

/// An invalid glob.
#[derive(Debug)]
pub(crate) struct InvalidGlob {
    /// The field, such as `rules[2].paths[0]`; `rules` when all globs together are too large.
    pub(crate) field: String,
    pub(crate) why: String,
}

impl Rules {
    /// Compiles the rules of this phase.
    pub(crate) fn compile(document: &[Rule], phase: Phase) -> Result<Self, Vec<InvalidGlob>> {
        let places: Vec<usize> = (0..document.len()).filter(|place| document[*place].on == phase).collect();
        let mut bad = Vec::new();
        let programs = condition(document, &places, "programs", Separator::Nothing, |rule| &rule.programs, &mut bad);
        let arguments = condition(document, &places, "arguments", Separator::Nothing, |rule| &rule.arguments, &mut bad);
        let directories = condition(document, &places, "cwd", Separator::Slash, |rule| &rule.cwd, &mut bad);
        let variables = condition(document, &places, "env", Separator::Nothing, |rule| &rule.env, &mut bad);
        let hosts = condition(document, &places, "hosts", Separator::Nothing, |rule| &rule.hosts, &mut bad);
        let paths = condition(document, &places, "paths", Separator::Slash, |rule| &rule.paths, &mut bad);
        match (programs, arguments, directories, variables, hosts, paths) {
            (Some(programs), Some(arguments), Some(directories), Some(variables), Some(hosts), Some(paths))
                if bad.is_empty() =>
            {
                Ok(Self { places, programs, arguments, directories, variables, hosts, paths })
            }
            _ => Err(bad),
        }
    }

    /// The rules that match the program that a command would start.
    pub(crate) fn programs(&self, program: Option<&str>) -> Hits {
        self.programs.hits(self.places.len(), program)
    }

    /// The rules that match a command's working directory.
    pub(crate) fn directories(&self, directory: &str) -> Hits {
        self.directories.hits(self.places.len(), [directory_name(directory).as_ref()])
    }

    /// The rules that match the name of an environment variable.
    pub(crate) fn variable(&self, name: &str) -> Hits {
        self.variables.hits(self.places.len(), [name])
    }

    /// The rules that match a host of a network profile.
    pub(crate) fn host(&self, host: &str) -> Hits {
        self.hosts.hits(self.places.len(), [host])
    }

    /// The rules that match a command's arguments.
    pub(crate) fn arguments(&self, command: &[String]) -> Hits {
        self.arguments.hits(self.places.len(), command.iter().skip(1).map(String::as_str))
    }

    /// Sets `hits` to the rules that match a path.
    pub(crate) fn path(&self, path: &str, hits: &mut Hits) {
        self.paths.match_any([path], hits);
    }

    /// An empty buffer for the hits of a path.
    pub(crate) fn new_hits(&self) -> Hits {
        Hits::new(self.places.len())
    }

    /// Each rule's index among these rules and in the document.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        self.places.iter().copied().enumerate()
    }
}

/// A condition of all rules of a phase.
fn condition(
    document: &[Rule],
    places: &[usize],
    name: &str,
    separator: Separator,
    entries: fn(&Rule) -> &[String],
    bad: &mut Vec<InvalidGlob>,
) -> Option<Patterns> {
    let mut builder = PatternsBuilder::default();
    for (index, place) in places.iter().enumerate() {
        for (entry, pattern) in entries(&document[*place]).iter().enumerate() {
            match spellings(pattern, separator).map(|pattern| glob(pattern, separator)).collect::<Result<Vec<_>, _>>() {
                Ok(globs) => globs.into_iter().for_each(|glob| builder.add(index, glob)),
                Err(error) => {
                    let field = format!("rules[{place}].{name}[{entry}]");
                    bad.push(InvalidGlob { field, why: format!("is not a valid glob: {}", error.kind()) });
                }
            }
        }
    }
    let refuse = |error: globset::Error| InvalidGlob {
        field: "rules".to_owned(),
        why: format!("have too many globs: {}", error.kind()),
    };
    builder.build().map_err(|error| bad.push(refuse(error))).ok()
}

/// The globs for a pattern. A path pattern for everything in a folder (`build/**`) also matches the folder itself, so that the rule covers its
/// creation.
pub(crate) fn spellings(pattern: &str, separator: Separator) -> impl Iterator<Item = &str> {
    let folder = pattern.strip_suffix("/**").filter(|folder| separator == Separator::Slash && !folder.is_empty());
    std::iter::once(pattern).chain(folder)
}

/// A program's name without its folder.
pub(crate) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// A working directory for matching: relative to the workspace, whose root is `.`.
pub(crate) fn directory_name(directory: &str) -> Cow<'_, str> {
    let plain = plain(directory);
    if plain.is_empty() { Cow::Borrowed(".") } else { plain }
}

/// Whether a rule's condition on the environment matches; `meets` returns whether the rule names a variable.
///
/// A rule that allows a command must name every variable that the command is given, because a variable can change what a program does
/// (`RUSTC_WRAPPER` for `cargo`). A rule that prompts or denies matches if it names any of them.
pub(crate) fn fits_environment(rule: &Rule, environment: &[String], meets: impl Fn(&str) -> bool) -> bool {
    let satisfies = rule.decide == Verdict::Auto && !rule.programs.is_empty();
    match rule.env.is_empty() {
        _ if satisfies => environment.iter().all(|name| meets(name)),
        true => true,
        false => environment.iter().any(|name| meets(name)),
    }
}

/// Whether a rule's conditions on the network match; `meets` returns whether the rule names a host.
///
/// A rule that allows must have every host of the profile. A rule that prompts or denies matches if it has any of them.
pub(crate) fn fits_network(rule: &Rule, network: NetworkAccess<'_>, meets: impl Fn(&str) -> bool) -> bool {
    names(&rule.networks, network.profile)
        && match rule.decide {
            _ if rule.hosts.is_empty() => true,
            Verdict::Auto => network.hosts.iter().all(|host| meets(host) && has_all_of(&rule.hosts, host)),
            Verdict::Preview | Verdict::Prompt | Verdict::Deny => {
                network.hosts.iter().any(|host| meets(host) || may_share(&rule.hosts, host))
            }
        }
}

/// Whether a rule's condition on credentials matches those of a call.
///
/// A rule that allows must have all of them, and matches no call without: its author has thought of one that has them. A rule that prompts or denies matches if it
/// has any of them.
pub(crate) fn fits_credentials(rule: &Rule, credentials: &[String]) -> bool {
    match rule.decide {
        _ if rule.credentials.is_empty() => true,
        Verdict::Auto => !credentials.is_empty() && credentials.iter().all(|name| rule.credentials.contains(name)),
        Verdict::Preview | Verdict::Prompt | Verdict::Deny => {
            credentials.iter().any(|name| rule.credentials.contains(name))
        }
    }
}

/// Whether one of the globs has every host that a profile's pattern opens: for `*.example.com` a glob that happens to match this text is not enough, such as
/// `?.example.com`.
fn has_all_of(globs: &[String], host: &str) -> bool {
    // Only `*` before plain text has whatever stands in its place.
    let has = |entry: &String| {
        let rest = entry.strip_prefix('*');
        rest.is_some_and(|rest| !rest.contains(['*', '?', '[', ']', '{', '}', '\\']) && host.ends_with(rest))
    };
    !host.starts_with('*') || globs.iter().any(has)
}

/// Whether one of the globs may have a host that a profile's pattern opens: `db.example.com` is one that `*.example.com` opens. A glob that ends with a wildcard
/// counts as one that may.
fn may_share(globs: &[String], host: &str) -> bool {
    let Some(suffix) = host.strip_prefix('*') else { return false };
    globs.iter().any(|entry| entry.ends_with(suffix) || entry.ends_with(['*', '?', ']', '}']))
}

/// Whether a list is empty (no condition) or contains the word.
pub(crate) fn names(list: &[String], word: &str) -> bool {
    list.is_empty() || list.iter().any(|name| name == word)
}

/// Whether a rule's conditions on the kind and the flags of a change match.
pub(crate) fn fits_change(rule: &Rule, change: &ChangeFact<'_>, protected: bool) -> bool {
    let has = |flag: &String| change.flags.contains(flag) || (protected && flag == protect::PROTECTED);
    (rule.changes.is_empty() || rule.changes.contains(&change.kind))
        && (rule.flags.is_empty() || rule.flags.iter().any(has))
}
