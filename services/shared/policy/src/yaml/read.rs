//! Converts the tree to a policy's values, and records the line of each.

use std::collections::BTreeMap;

use belay_yaml::{Node, Reader, Value};

use crate::{
    ChangeKind, NonInteractive, Tier, Verdict,
    document::{Document, Example, Phase, Rule, Setting},
};

const SETTINGS: &[(&str, Setting)] = &[("auto", Setting::Auto), ("prompt", Setting::Prompt), ("deny", Setting::Deny)];
const NON_INTERACTIVE: &[(&str, NonInteractive)] =
    &[("auto", NonInteractive::Auto), ("skip", NonInteractive::Skip), ("fail", NonInteractive::Fail)];
const TIERS: &[(&str, Tier)] = &[("A", Tier::A), ("B", Tier::B), ("C", Tier::C)];
const PHASES: &[(&str, Phase)] = &[("intent", Phase::Intent), ("effect", Phase::Effect)];
const VERDICTS: &[(&str, Verdict)] =
    &[("auto", Verdict::Auto), ("preview", Verdict::Preview), ("prompt", Verdict::Prompt), ("deny", Verdict::Deny)];
const CHANGES: &[(&str, ChangeKind)] =
    &[("create", ChangeKind::Created), ("modify", ChangeKind::Modified), ("delete", ChangeKind::Deleted)];

/// The keys of a policy file.
const FILE: &str = "preset file_write file_delete terminal_commands network allowed_commands non_interactive_policy sandbox approvals protect rules \
     namespaces";
/// The keys of a namespace's section.
const SECTION: &str = "preset file_write file_delete terminal_commands network allowed_commands non_interactive_policy sandbox approvals protect rules";
/// The commands that a preset allows to start: the default of S2-X-10, or everything.
const PRESETS: &[(&str, &[&str])] =
    &[("default", &[]), ("allow-list", &["dotnet", "npm", "yarn", "git", "make", "cargo", "go", "python", "node"])];
/// The keys of a rule.
const RULE: &str = "id on tools programs arguments cwd env networks hosts credentials paths changes flags decide exclusive reason match not_match";

/// The result of reading.
pub(super) struct PolicyReading {
    pub(super) document: Document,
    /// By namespace: its settings, and the rules that it adds.
    pub(super) sections: BTreeMap<String, Document>,
    /// The violations so far, and the line of each field.
    pub(super) reader: Reader,
}

/// Reads a policy's tree. An invalid value is recorded as a violation and replaced by the preset's.
pub(super) fn read(root: &Node) -> PolicyReading {
    let mut reader = Reader::default();
    let (mut document, mut sections) = (Document::default(), BTreeMap::new());
    if matches!(root.value, Value::Null) {
        reader.refuse("", root.line, "the policy is empty: write at least one key, such as `file_write: prompt`");
    } else {
        let namespaces = reader.file(root, &mut document);
        if let Some((node, field)) = namespaces {
            // What a section does not set is as at the top, also where that follows it.
            sections = reader.sections(node, &field, &document);
        }
    }
    PolicyReading { document, sections, reader }
}

/// Readers for the parts of a policy.
trait ReadPolicy: Sized {
    fn file<'n>(&mut self, root: &'n Node, document: &mut Document) -> Option<(&'n Node, String)>;
    fn sections(&mut self, node: &Node, field: &str, top: &Document) -> BTreeMap<String, Document>;
    fn setting(&mut self, key: &str, field: &str, node: &Node, document: &mut Document) -> bool;
    fn rule(&mut self, node: &Node, field: &str) -> Option<Rule>;
    fn example(&mut self, node: &Node, field: &str, rule: &Rule) -> Option<Example>;
}

impl ReadPolicy for Reader {
    /// Reads what applies to all namespaces. Returns where the sections are.
    fn file<'n>(&mut self, root: &'n Node, document: &mut Document) -> Option<(&'n Node, String)> {
        let mut namespaces = None;
        self.map(root, "", |reader, key, field, node| match key {
            "namespaces" => {
                namespaces = Some((node, field.to_owned()));
                Ok(())
            }
            _ if reader.setting(key, field, node, document) => Ok(()),
            _ => Err(FILE),
        });
        namespaces
    }

    fn sections(&mut self, node: &Node, field: &str, top: &Document) -> BTreeMap<String, Document> {
        let mut sections = BTreeMap::new();
        self.map(node, field, |reader, namespace, field, node| {
            let mut section = Document { rules: Vec::new(), ..top.clone() };
            reader.map(
                node,
                field,
                |reader, key, field, node| {
                    if reader.setting(key, field, node, &mut section) { Ok(()) } else { Err(SECTION) }
                },
            );
            sections.insert(namespace.to_owned(), section);
            Ok(())
        });
        sections
    }

    /// Reads a key of a policy; false when there is no such key.
    fn setting(&mut self, key: &str, field: &str, node: &Node, document: &mut Document) -> bool {
        match key {
            "file_write" => self.word(node, field, SETTINGS, &mut document.file_write),
            "file_delete" => self.word(node, field, SETTINGS, &mut document.file_delete),
            "preset" => {
                let mut programs: &[&str] = &[];
                self.word(node, field, PRESETS, &mut programs);
                // The file's own list holds, whichever of the two comes first.
                let list = format!("{}allowed_commands", field.strip_suffix("preset").unwrap_or_default());
                if !self.has_read(&list) {
                    let names: Vec<String> = programs.iter().map(|&name| name.to_owned()).collect();
                    document.allowed_commands = Some(names).filter(|names| !names.is_empty());
                }
            }
            "allowed_commands" => document.allowed_commands = Some(self.list(node, field, Self::text)),
            "terminal_commands" => self.word(node, field, SETTINGS, &mut document.terminal_commands),
            "network" => self.word(node, field, SETTINGS, &mut document.network),
            "non_interactive_policy" => self.word(node, field, NON_INTERACTIVE, &mut document.non_interactive_policy),
            "protect" => self.switch(node, field, &mut document.protect),
            "sandbox" => self.map(node, field, |reader, key, field, node| {
                match key {
                    "min_tier" => reader.word(node, field, TIERS, &mut document.sandbox.min_tier),
                    _ => return Err("min_tier"),
                }
                Ok(())
            }),
            "approvals" => self.map(node, field, |reader, key, field, node| {
                match key {
                    "expire_after" => document.approvals.expire_after = reader.duration(node, field),
                    "separate_duties" => reader.switch(node, field, &mut document.approvals.separate_duties),
                    _ => return Err("expire_after separate_duties"),
                }
                Ok(())
            }),
            "rules" => document.rules = self.list(node, field, Self::rule),
            _ => return false,
        }
        true
    }

    fn rule(&mut self, node: &Node, field: &str) -> Option<Rule> {
        if !matches!(node.value, Value::Map(_)) {
            let found = node.value.kind();
            self.refuse(field, node.line, format!("is {found}, and must be a rule: `{{id: …, on: …, decide: …}}`"));
            return None;
        }
        let (mut id, mut on, mut decide) = (None, None, None);
        let mut rule = Rule {
            id: String::new(),
            on: Phase::Intent,
            tools: Vec::new(),
            programs: Vec::new(),
            arguments: Vec::new(),
            paths: Vec::new(),
            changes: Vec::new(),
            flags: Vec::new(),
            decide: Verdict::Deny,
            reason: String::new(),
            matching: Vec::new(),
            not_match: Vec::new(),
            cwd: Vec::new(),
            env: Vec::new(),
            exclusive: false,
            networks: Vec::new(),
            hosts: Vec::new(),
            credentials: Vec::new(),
        };
        let (mut matching, mut not_match) = (None, None);
        self.map(node, field, |reader, key, field, node| {
            match key {
                "id" => id = reader.text(node, field),
                "on" => on = reader.one_of(node, field, PHASES),
                "tools" => rule.tools = reader.list(node, field, Self::text),
                "programs" => rule.programs = reader.non_empty_list(node, field, Self::text),
                "arguments" => rule.arguments = reader.non_empty_list(node, field, Self::text),
                "cwd" => rule.cwd = reader.non_empty_list(node, field, Self::text),
                "env" => rule.env = reader.non_empty_list(node, field, Self::text),
                "networks" => rule.networks = reader.non_empty_list(node, field, Self::text),
                "hosts" => rule.hosts = reader.non_empty_list(node, field, Self::text),
                "credentials" => rule.credentials = reader.non_empty_list(node, field, Self::text),
                "paths" => rule.paths = reader.non_empty_list(node, field, Self::text),
                "changes" => {
                    rule.changes =
                        reader.non_empty_list(node, field, |reader, node, field| reader.one_of(node, field, CHANGES))
                }
                "flags" => rule.flags = reader.non_empty_list(node, field, Self::text),
                "decide" => decide = reader.one_of(node, field, VERDICTS),
                "exclusive" => reader.switch(node, field, &mut rule.exclusive),
                "reason" => rule.reason = reader.text(node, field).unwrap_or_default(),
                "match" => matching = Some((node, field.to_owned())),
                "not_match" => not_match = Some((node, field.to_owned())),
                _ => {
                    return Err(RULE);
                }
            }
            Ok(())
        });
        // The meaning of a short example depends on the rule's conditions, which may follow it.
        if let Some((node, field)) = matching {
            rule.matching = self.list(node, &field, |reader, node, field| reader.example(node, field, &rule));
        }
        if let Some((node, field)) = not_match {
            rule.not_match = self.list(node, &field, |reader, node, field| reader.example(node, field, &rule));
        }
        for key in ["id", "on", "decide"] {
            if !self.has_read(&format!("{field}.{key}")) {
                self.refuse(field, node.line, format!("has no `{key}`"));
            }
        }
        Some(Rule { id: id?, on: on?, decide: decide?, ..rule })
    }

    /// Reads an example: a mapping, or text for the rule's main condition.
    fn example(&mut self, node: &Node, field: &str, rule: &Rule) -> Option<Example> {
        let mut example = Example::default();
        if let Value::Text(text) = &node.value {
            self.note_line(field, node.line);
            match rule {
                _ if !rule.programs.is_empty() || !rule.arguments.is_empty() => example.command = Some(words(text)),
                _ if !rule.paths.is_empty() => example.path = Some(text.clone()),
                _ => example.tool = Some(text.clone()),
            }
            return Some(example);
        }
        self.map(node, field, |reader, key, field, node| {
            match key {
                "tool" => example.tool = reader.text(node, field),
                "command" => {
                    example.command = match &node.value {
                        Value::Text(text) => Some(words(text)),
                        _ => Some(reader.list(node, field, Self::text)),
                    }
                }
                "path" => example.path = reader.text(node, field),
                "change" => example.change = reader.one_of(node, field, CHANGES),
                "flags" => example.flags = Some(reader.list(node, field, Self::text)),
                "cwd" => example.cwd = reader.text(node, field),
                "env" => example.env = Some(reader.list(node, field, Self::text)),
                "network" => example.network = reader.text(node, field),
                "hosts" => example.hosts = Some(reader.list(node, field, Self::text)),
                "credentials" => example.credentials = Some(reader.list(node, field, Self::text)),
                _ => return Err("tool command path change flags cwd env network hosts credentials"),
            }
            Ok(())
        });
        Some(example)
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
