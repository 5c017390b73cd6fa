//! Builds the subject of an approval from a call and its effect. Pure.

use belay_defects::{Defect, is_planted};
use std::collections::BTreeMap;

use belay_grant::{CallWords, Change, ChangeKind, Folder, HiddenWords, Kind, Network, Risk, Subject, digest_of};
use belay_network::Profile;
use belay_policy::Decision;
use belay_proto::{runner_v1, v1};
use belay_workspace::Content;
use serde::{Deserialize, Serialize};

use crate::json_of::json_of;
use crate::{
    CallIntent, Recovery,
    changes::{self, Changes},
    facts::Fact,
    secrets::CallSecrets,
};

/// The limit of a subject, in bytes: what the gate accepts.
pub(crate) const MAX_SUBJECT_BYTES: usize = 8 << 20;

/// The limit of paths in a summary.
const MAX_NAMED_PATHS: usize = 100;

/// The limit of entries in a receipt, and of the bytes of their paths.
const MAX_LISTED_FILES: usize = 1_000;
const MAX_LISTED_PATH_BYTES: usize = 64 * 1024;

/// The files that an effect commits, path by path, as a receipt lists them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommittedFiles {
    /// In the order of the paths.
    pub(crate) files: Vec<v1::CommittedFile>,
    /// The number of entries that are not listed.
    pub(crate) unlisted: i64,
}

/// The facts as a receipt lists them: the gravest, when there are more than it has room for. `changes` are the same facts, the gravest first, as a subject
/// lists them.
pub(crate) fn committed(facts: &[Fact], changes: &[Change]) -> CommittedFiles {
    let gravest = facts.iter().zip(changes);
    let mut bytes = 0;
    let has_room = |(_, change): &(&Fact, &Change)| {
        bytes += change.path.len();
        bytes <= MAX_LISTED_PATH_BYTES
    };
    let mut listed: Vec<(&Fact, &Change)> = gravest.take(MAX_LISTED_FILES).take_while(has_room).collect();
    listed.sort_by_key(|(fact, _)| &fact.path);
    CommittedFiles {
        unlisted: i64::try_from(facts.len() - listed.len()).unwrap_or(i64::MAX),
        files: listed.into_iter().map(|(fact, change)| committed_file(fact, change)).collect(),
    }
}

fn committed_file(fact: &Fact, change: &Change) -> v1::CommittedFile {
    use v1::committed_file::Type;
    let kind = match (fact.after.as_ref().or(fact.before.as_ref()).map(|node| &node.content), fact.mode) {
        (Some(Content::File { .. }), _) => Type::File,
        (Some(Content::Directory), _) | (None, Some(_)) => Type::Directory,
        (Some(Content::Symlink { .. }), _) => Type::Symlink,
        (Some(Content::Special { .. }), _) | (None, None) => Type::Unspecified,
    };
    let size = match fact.after.as_ref().map(|node| &node.content) {
        Some(Content::File { size, .. }) => *size,
        Some(Content::Directory | Content::Symlink { .. } | Content::Special { .. }) | None => 0,
    };
    let mode = fact.after.as_ref().map(|node| node.mode).or(fact.mode).unwrap_or_default();
    v1::CommittedFile {
        path: change.path.clone(),
        change: wire_kind(change.kind).into(),
        file_type: kind.into(),
        digest: change.after.clone(),
        size_bytes: i64::try_from(size).unwrap_or(i64::MAX),
        mode: i32::try_from(mode).unwrap_or_default(),
        previous_digest: change.before.clone(),
    }
}

fn wire_kind(kind: ChangeKind) -> v1::path_change::Kind {
    match kind {
        ChangeKind::Created => v1::path_change::Kind::Created,
        ChangeKind::Modified => v1::path_change::Kind::Modified,
        ChangeKind::Deleted => v1::path_change::Kind::Deleted,
    }
}

/// A summary of the changes, which are the gravest first.
pub(crate) fn summary(changes: &[Change]) -> v1::EffectSummary {
    let count = |kind| i32::try_from(changes.iter().filter(|change| change.kind == kind).count()).unwrap_or(i32::MAX);
    let named = changes.iter().take(MAX_NAMED_PATHS).zip(0..).map(|(change, index)| v1::PathChange {
        path: change.path.clone(),
        kind: wire_kind(change.kind).into(),
        flags: change.all_flags().map(str::to_owned).collect(),
        index,
    });
    v1::EffectSummary {
        created: count(ChangeKind::Created),
        modified: count(ChangeKind::Modified),
        deleted: count(ChangeKind::Deleted),
        changes: named.collect(),
    }
}

/// The context of a subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubjectContext<'a> {
    pub(crate) call: &'a runner_v1::ToolCall,
    /// Redacts the subject, which people read.
    pub(crate) secrets: &'a CallSecrets,
    pub(crate) intent: &'a CallIntent,
    pub(crate) workspace: &'a str,
    pub(crate) enforced: &'a [String],
    pub(crate) decision: &'a Decision,
    pub(crate) policy_revision: i64,
    /// How to recover the call.
    pub(crate) recovery: Recovery,
    /// The network profile of its command; `None` for its own loopback alone.
    pub(crate) network: Option<&'a Profile>,
    /// The credentials whose values its program gets.
    pub(crate) reveals: &'a [String],
}

/// The network of a call, as an approval binds it.
pub(crate) fn network(profile: Option<&Profile>) -> Option<Network> {
    profile.map(|profile| Network { profile: profile.name.clone(), reach: profile.lines() })
}

/// How much harm an effect may do, or a call that has not run: what it does outside of the workspace cannot be discarded.
fn risk(effect: Option<&ObservedEffect>, recovery: Recovery) -> Risk {
    match (effect, recovery) {
        (Some(effect), _) => effect.changes.list.iter().map(|change| change.gravity.risk()).max().unwrap_or(Risk::Low),
        (None, Recovery::ReadOnly) => Risk::Low,
        (None, Recovery::Transactional) => Risk::Medium,
        (None, Recovery::Idempotent | Recovery::Manual) => Risk::High,
    }
}

/// The effect of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedEffect {
    /// The manifest's digest, as the contract writes it.
    pub(crate) digest: String,
    pub(crate) changes: Changes,
    /// The changes as a receipt lists them.
    pub(crate) committed: CommittedFiles,
}

impl SubjectContext<'_> {
    /// The subject of an approval of the call, or of its effect if `observed` is set.
    pub(crate) fn subject(self, observed: Option<ObservedEffect>) -> Subject {
        let (execution, step) = parts(&self.call.name);
        let kind = if observed.is_some() { Kind::Effect } else { Kind::Call };
        let risk = risk(observed.as_ref(), self.recovery);
        let ObservedEffect { digest, changes, .. } = observed.unwrap_or_default();
        let words = |text: &str| self.secrets.text(text);
        let shown = |change: Change| {
            let path = words(&change.path);
            let path_digest = if path == change.path { String::new() } else { digest_of(change.path.as_bytes()) };
            let change = match is_planted(Defect::ShownPathJudged) && path != change.path {
                true => changes::judged_as_shown(change, &path),
                false => change,
            };
            Change { path, path_digest, what: words(&change.what), ..change }
        };
        let shown_folder = |folder: Folder| Folder { path: words(&folder.path), ..folder };
        Subject {
            v: Subject::VERSION,
            kind,
            execution: execution.to_owned(),
            step: step.to_owned(),
            tool: self.call.tool.clone(),
            arguments: self.secrets.arguments(&json_of(self.call.arguments.as_ref())),
            arguments_digest: self.call.arguments_digest.clone(),
            command: self.secrets.command(&self.intent.command),
            working_directory: words(&self.intent.working_directory),
            hidden: self.hidden(kind).map(|(hidden, _)| hidden),
            workspace: self.workspace.to_owned(),
            enforced: self.enforced.to_vec(),
            policy_revision: self.policy_revision,
            rule: self.decision.rule.clone(),
            reason: words(&self.decision.reason),
            effect_digest: digest,
            risk,
            changes: changes.list.into_iter().map(shown).collect(),
            folders: changes.folders.into_iter().map(shown_folder).collect(),
            network: network(self.network),
            reveals: self.reveals.to_vec(),
        }
    }
}

impl SubjectContext<'_> {
    /// The call's words that a subject of this kind hides, and these as they are; `None` when it hides nothing.
    ///
    /// The actions of an effect are in its changes, so that its subject shows no arguments but a command.
    pub(crate) fn hidden(self, kind: Kind) -> Option<(HiddenWords, CallWords)> {
        let arguments = json_of(self.call.arguments.as_ref());
        let CallIntent { command, working_directory, .. } = self.intent;
        let in_arguments = match kind {
            Kind::Call => self.secrets.hidden_arguments(&arguments),
            Kind::Effect => BTreeMap::new(),
        };
        let mut rules = match in_arguments.is_empty() {
            // The arguments of a command have its words, which count once.
            false => in_arguments,
            true => self.secrets.hidden_words(command),
        };
        for (rule, count) in self.secrets.hidden_text(working_directory) {
            *rules.entry(rule).or_default() += count;
        }
        if rules.is_empty() {
            return None;
        }
        let words = CallWords {
            arguments: arguments.clone(),
            command: command.clone(),
            working_directory: working_directory.clone(),
        };
        Some((HiddenWords { digest: digest_of(&words.canonical_bytes()), rules }, words))
    }
}

/// The namespace of a validated call name.
pub(crate) fn namespace(call: &str) -> &str {
    call.split('/').nth(1).unwrap_or_default()
}

/// The execution and the step id of a validated call name.
pub(crate) fn parts(call: &str) -> (&str, &str) {
    let (execution, rest) = call.split_once("/steps/").unwrap_or((call, ""));
    (execution, rest.split_once("/calls/").map_or(rest, |(step, _)| step))
}

#[cfg(test)]
mod tests {
    use belay_defects::assert_attack_needs;
    use belay_grant::Gravity;
    use belay_policy::Verdict;
    use belay_redaction::{MasterKey, Redactor};
    use belay_workspace::{
        Act, Change as ChangedPath, Digest, FileTime, Fingerprint, Flag, FlaggedPath, Manifest, Node, RelPath,
    };

    use super::*;
    use crate::{
        Registry, Secrets,
        changes::{changes, flag_hidden, order},
        facts::facts,
    };

    fn ordered(manifest: &Manifest) -> Vec<Fact> {
        let mut facts = facts(manifest);
        order(&mut facts);
        facts
    }

    fn node(path: &str, mode: u32, content: Content) -> Node {
        Node { path: RelPath::parse(path).unwrap(), mode, content }
    }

    fn file(path: &str, text: &str) -> Node {
        node(path, 0o644, Content::File { size: text.len() as u64, digest: Digest::of(text.as_bytes()) })
    }

    fn fingerprint() -> Fingerprint {
        let time = FileTime(0, 0);
        Fingerprint { digest: Digest::of(b""), inode: 1, mode: 0o755, size: 0, modified: time, seen: time }
    }

    fn touched(path: &str, act: Act, before: Vec<Node>, after: Vec<Node>) -> ChangedPath {
        ChangedPath { path: RelPath::parse(path).unwrap(), act, before, after, flags: Vec::new() }
    }

    /// B-03: a person sees every single path, also in a directory that is created or removed as a whole.
    #[test]
    fn a_replaced_directory_is_listed_path_by_path() {
        let folder = |path| node(path, 0o755, Content::Directory);
        let put = Act::Put { base: Some(fingerprint()), staged: fingerprint() };
        let mut replaced = touched(
            "d",
            put,
            vec![folder("d"), file("d/gone", "1"), file("d/kept", "2"), file("d/other", "3")],
            vec![
                folder("d"),
                file("d/kept", "2"),
                node("d/link", 0, Content::Symlink { target: b"../x\xff".to_vec() }),
                file("d/other", "4"),
            ],
        );
        replaced.flags = [("d/kept", Flag::OddName), ("d/link", Flag::LinkLeaves)]
            .map(|(path, flag)| FlaggedPath { path: RelPath::parse(path).unwrap(), flag })
            .into();
        let manifest = Manifest {
            changes: vec![
                touched("a", Act::Away { base: fingerprint() }, vec![file("a", "1")], Vec::new()),
                replaced,
                touched("m", Act::Meta { inode: 1, old: 0o700, new: 0o755 }, Vec::new(), Vec::new()),
            ],
            ..Manifest::default()
        };
        let changes = changes(&ordered(&manifest)).list;
        let listed: Vec<_> = changes
            .iter()
            .map(|change| (change.path.as_str(), change.kind, change.what.as_str(), change.flags.join(",")))
            .collect();
        assert_eq!(
            listed,
            [
                ("d/kept", ChangeKind::Modified, "file 0644", "odd_name".into()),
                ("d/link", ChangeKind::Created, "link to ../x\\xff", "link_leaves".into()),
                ("a", ChangeKind::Deleted, "file 0644", String::new()),
                ("d/gone", ChangeKind::Deleted, "file 0644", String::new()),
                ("d/other", ChangeKind::Modified, "file 0644", String::new()),
                ("m", ChangeKind::Modified, "folder 0755", String::new()),
            ]
        );
        assert_eq!(changes[4].before, belay_grant::digest_of(b"3"));
        assert_eq!(changes[4].after, belay_grant::digest_of(b"4"));
        let summary = summary(&changes);
        assert_eq!((summary.created, summary.modified, summary.deleted), (1, 3, 2));
    }

    /// B-29, S2-X-18: what looks like a secret of the call in a protected path does not keep the gate from seeing that it is protected.
    #[test]
    fn a_protected_path_is_signed_as_one_however_it_is_shown() {
        assert_attack_needs(Defect::ShownPathJudged, "`.git/hooks/pre-commit`, shown as `[REDACTED]`", || {
            let by_variable = |name: &str, path| (path, format!(r#"{{"command":["sh"],"env":{{"{name}":"{path}"}}}}"#));
            let attacks = [
                by_variable("API_TOKEN", ".git/hooks/pre-commit"),
                by_variable("API_TOKEN", ".vscode/tasks.json"),
                by_variable("DB_PASSWORD", ".envrc"),
                by_variable("CLIENT_SECRET", "CLAUDE.md"),
                ("Jenkinsfile", r#"{"command":["sh","--password","Jenkinsfile"]}"#.to_owned()),
                ("token=abc123XYZ9/CLAUDE.md", r#"{"path":"token=abc123XYZ9/CLAUDE.md"}"#.to_owned()),
            ];
            attacks.iter().try_for_each(|(path, arguments)| creation_of(path, arguments))
        });
    }

    /// Has a call with these arguments create a file, and looks for that in the subject of its approval.
    fn creation_of(path: &str, arguments: &str) -> Result<(), String> {
        let registry = Registry::new(Vec::new()).unwrap();
        let secrets = Secrets::new(Redactor::new(), MasterKey::new([8; 32]), registry, || [1; 32]);
        let secrets = secrets.of_call("run_terminal", arguments);
        let put = Act::Put { base: None, staged: fingerprint() };
        let mut facts = facts(&manifest(vec![touched(path, put, Vec::new(), vec![file(path, "x")])]));
        flag_hidden(&mut facts, &secrets);
        order(&mut facts);
        let observed = ObservedEffect { changes: changes(&facts), ..ObservedEffect::default() };
        let decision = Decision {
            verdict: Verdict::Prompt,
            rule: "protected".to_owned(),
            reason: String::new(),
            exclusive: false,
        };
        let context = SubjectContext {
            call: &runner_v1::ToolCall::default(),
            secrets: &secrets,
            intent: &CallIntent::default(),
            workspace: "/w",
            enforced: &[],
            decision: &decision,
            policy_revision: 1,
            recovery: Recovery::Transactional,
            network: None,
            reveals: &[],
        };
        let change = context.subject(Some(observed)).changes.remove(0);
        assert_ne!(change.path, path, "it is hidden");
        match change.gravity {
            Gravity::Protected if !change.protection.is_empty() => Ok(()),
            other => Err(format!("`{path}`, shown as `{}`, is signed as {other:?}", change.path)),
        }
    }

    #[test]
    fn a_summary_counts_all_and_names_the_first() {
        let nodes: Vec<_> = (0..150).map(|n| file(&format!("f{n:03}"), "x")).collect();
        let put = Act::Put { base: None, staged: fingerprint() };
        let created = nodes.into_iter().map(|node| touched(&node.path.to_string(), put, Vec::new(), vec![node]));
        let summary = summary(&changes(&ordered(&manifest(created.collect()))).list);
        assert_eq!(
            (summary.created, summary.changes.len(), summary.changes[99].path.as_str()),
            (150, MAX_NAMED_PATHS, "f099")
        );
    }

    fn manifest(changes: Vec<ChangedPath>) -> Manifest {
        Manifest { changes, ..Manifest::default() }
    }

    fn listed(manifest: &Manifest) -> CommittedFiles {
        let facts = ordered(manifest);
        committed(&facts, &changes(&facts).list)
    }

    /// S2-X-29: a receipt lists each path with what is there now, and what was there before.
    #[test]
    fn a_receipt_lists_what_was_committed() {
        use v1::{committed_file::Type, path_change::Kind};
        let put = Act::Put { base: None, staged: fingerprint() };
        let link = node("l", 0o777, Content::Symlink { target: b"a".to_vec() });
        let CommittedFiles { files, unlisted } = listed(&manifest(vec![
            touched("a", put, vec![file("a", "1")], vec![file("a", "22")]),
            touched("gone", Act::Away { base: fingerprint() }, vec![file("gone", "3")], Vec::new()),
            touched("l", put, Vec::new(), vec![link]),
            touched("m", Act::Meta { inode: 1, old: 0o700, new: 0o755 }, Vec::new(), Vec::new()),
        ]));
        let brief =
            |file: &v1::CommittedFile| (file.path.clone(), file.change(), file.file_type(), file.size_bytes, file.mode);
        assert_eq!(
            files.iter().map(brief).collect::<Vec<_>>(),
            [
                ("a".to_owned(), Kind::Modified, Type::File, 2, 0o644),
                ("gone".to_owned(), Kind::Deleted, Type::File, 0, 0),
                ("l".to_owned(), Kind::Created, Type::Symlink, 0, 0o777),
                ("m".to_owned(), Kind::Modified, Type::Directory, 0, 0o755),
            ]
        );
        let digests: Vec<_> = files.iter().map(|file| (file.digest.as_str(), file.previous_digest.as_str())).collect();
        let [one, two, three] = [b"1".as_slice(), b"22", b"3"].map(belay_grant::digest_of);
        assert_eq!(digests, [(two.as_str(), one.as_str()), ("", three.as_str()), ("", ""), ("", "")]);
        assert_eq!(unlisted, 0);
    }

    /// The paths of an effect in an event are bounded, and those left out are counted and are the least grave.
    #[test]
    fn a_receipt_lists_at_most_a_thousand_paths_and_counts_the_rest() {
        let put = Act::Put { base: None, staged: fingerprint() };
        let created = |path: String| touched(&path, put, Vec::new(), vec![file(&path, "x")]);
        let mut changes: Vec<_> = (0..1_200).map(|n| created(format!("f{n:04}"))).collect();
        changes.push(touched("z", Act::Away { base: fingerprint() }, vec![file("z", "1")], Vec::new()));
        let CommittedFiles { files, unlisted } = listed(&manifest(changes));
        assert_eq!((files.len(), unlisted), (MAX_LISTED_FILES, 201));
        let (first, last) = (&files[0].path, &files[MAX_LISTED_FILES - 1].path);
        assert_eq!((first.as_str(), last.as_str()), ("f0000", "z"), "in order, and the deletion is one of them");

        let long = (0..100).map(|n| created(format!("{n:03}/{}", vec!["d".repeat(200); 10].join("/"))));
        let CommittedFiles { files, unlisted } = listed(&manifest(long.collect()));
        let bytes: usize = files.iter().map(|file| file.path.len()).sum();
        assert!(bytes <= MAX_LISTED_PATH_BYTES && bytes > MAX_LISTED_PATH_BYTES - 3_000, "{bytes}");
        assert_eq!(unlisted, 100 - i64::try_from(files.len()).unwrap());
    }

    #[test]
    fn a_call_name_holds_its_execution_and_step() {
        assert_eq!(parts("namespaces/n/executions/e/steps/s/calls/1.2"), ("namespaces/n/executions/e", "s"));
        assert_eq!(namespace("namespaces/n/executions/e/steps/s/calls/1.2"), "n");
    }
}
