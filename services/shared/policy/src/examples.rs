//! Runs rules on the examples that their authors gave.

use globset::GlobMatcher;

use crate::{
    NetworkAccess,
    document::{Example, Rule},
    patterns::{Separator, glob, plain},
    rules::{base_name, directory_name, fits_credentials, fits_environment, fits_network, names, spellings},
};

/// The examples that a rule fails, by field. Its globs have already been checked.
pub(crate) fn failing(rule: &Rule) -> Vec<(String, String)> {
    if rule.matching.is_empty() && rule.not_match.is_empty() {
        return Vec::new();
    }
    let tried = CompiledRule::new(rule);
    let mut failing = Vec::new();
    for (name, list, wanted) in [("match", &rule.matching, true), ("not_match", &rule.not_match, false)] {
        for (index, example) in list.iter().enumerate() {
            let why = if *example == Example::default() {
                "is empty: give it a tool, command, path, change, flags, cwd, env, network, hosts or credentials"
                    .to_owned()
            } else if tried.matches(example) != wanted {
                let does = if wanted { "does not match this example" } else { "matches this example, and should not" };
                format!("the rule `{}` {does}: correct the rule or the example", rule.id)
            } else {
                continue;
            };
            failing.push((format!("{name}[{index}]"), why));
        }
    }
    failing
}

/// A rule with its globs compiled separately.
struct CompiledRule<'a> {
    rule: &'a Rule,
    programs: Vec<GlobMatcher>,
    arguments: Vec<GlobMatcher>,
    directories: Vec<GlobMatcher>,
    variables: Vec<GlobMatcher>,
    hosts: Vec<GlobMatcher>,
    paths: Vec<GlobMatcher>,
}

impl<'a> CompiledRule<'a> {
    fn new(rule: &'a Rule) -> Self {
        let compiled = |list: &[String], separator| {
            let patterns = list.iter().flat_map(|pattern| spellings(pattern, separator));
            patterns.filter_map(|pattern| glob(pattern, separator).ok()).map(|glob| glob.compile_matcher()).collect()
        };
        Self {
            rule,
            programs: compiled(&rule.programs, Separator::Nothing),
            arguments: compiled(&rule.arguments, Separator::Nothing),
            directories: compiled(&rule.cwd, Separator::Slash),
            variables: compiled(&rule.env, Separator::Nothing),
            hosts: compiled(&rule.hosts, Separator::Nothing),
            paths: compiled(&rule.paths, Separator::Slash),
        }
    }

    /// Whether the rule matches. Conditions on fields that the example leaves out count as met.
    fn matches(&self, example: &Example) -> bool {
        let any = |globs: &[GlobMatcher], text: &str| globs.is_empty() || globs.iter().any(|glob| glob.is_match(text));
        let command = |command: &[String]| {
            let (program, arguments) = match command {
                [program, arguments @ ..] => (program.as_str(), arguments),
                [] => ("", &[][..]),
            };
            // The PATH is not known here: a program with an absolute path outside the workspace is assumed to be on it.
            let lies_outside = program.starts_with('/') && !program.starts_with("/workspace/");
            let is_found = lies_outside || !program.contains('/');
            (self.programs.is_empty() || is_found && any(&self.programs, base_name(program)))
                && (self.arguments.is_empty() || arguments.iter().any(|argument| any(&self.arguments, argument)))
        };
        let rule = self.rule;
        example.tool.as_ref().is_none_or(|tool| names(&rule.tools, tool))
            && example.command.as_deref().is_none_or(command)
            && example.cwd.as_ref().is_none_or(|cwd| any(&self.directories, &directory_name(cwd)))
            && example.env.as_ref().is_none_or(|names| {
                fits_environment(rule, names, |name| self.variables.iter().any(|glob| glob.is_match(name)))
            })
            && example.network.as_ref().is_none_or(|network| names(&rule.networks, network))
            && example.hosts.as_ref().is_none_or(|hosts| {
                let meets = |host: &str| self.hosts.iter().any(|glob| glob.is_match(host));
                let profile = rule.networks.first().map_or("", String::as_str);
                fits_network(rule, NetworkAccess { profile, hosts }, meets)
            })
            && example.credentials.as_ref().is_none_or(|credentials| fits_credentials(rule, credentials))
            && example.path.as_ref().is_none_or(|path| any(&self.paths, &plain(path)))
            && example.change.is_none_or(|change| rule.changes.is_empty() || rule.changes.contains(&change))
            && example
                .flags
                .as_ref()
                .is_none_or(|flags| rule.flags.is_empty() || rule.flags.iter().any(|flag| flags.contains(flag)))
    }
}
