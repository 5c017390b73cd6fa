//! Approvals on the screen: what is asked, why, and what would change.

use std::time::Duration;

use belay_proto::v1::{Approval, Form, approval::State, approval_need};
use serde_json::Value;

use super::{
    diff::{self, Extent},
    form, json,
    text::{Line, Style, shorten, table, visible},
    time, words,
};
use crate::{
    names,
    next::{self, about},
};

/// The most warnings: the gravest come first, and each change has its own flags beside its difference.
const MAX_WARNINGS: usize = 8;
/// The longest operation in a list, in characters.
const MAX_OPERATION_CHARS: usize = 60;
/// The most lines of a headline.
const MAX_HEADLINE_LINES: usize = 20;

/// A question's place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Counted from 1.
    pub(crate) number: usize,
    /// This one, the earlier ones, and the pending ones.
    pub(crate) of: usize,
    /// Whether it comes from the execution of a step, and not from the one that is watched.
    pub(crate) is_of_child: bool,
}

impl Turn {
    /// The only question.
    pub(crate) const ONLY: Turn = Turn { number: 1, of: 1, is_of_child: false };
}

/// The question to a person, for a window of this many columns.
pub(crate) fn question(approval: &Approval, turn: Turn, columns: usize) -> Vec<Line> {
    let wants = match is_form(approval) {
        true => " asks you".to_owned(),
        false => format!(" wants to {}", wants(approval)),
    };
    let place = if turn.is_of_child { format!(" in {}", names::id(&approval.execution)) } else { String::new() };
    let wants = Line::default()
        .and(Style::Warn, "? ")
        .and(Style::Strong, visible(&approval.step_id))
        .and(Style::Plain, place)
        .and(Style::Plain, wants);
    let turn = match turn.of {
        ..=1 => Line::default(),
        of => Line::default().and(Style::Dim, format!("{} of {of}", turn.number)),
    };
    let mut lines = if turn.width() == 0 { vec![wants] } else { wants.with_right(turn, columns.saturating_sub(1)) };
    lines.extend(body(approval, Extent::Brief));
    lines
}

/// `modify 1 file`; of a call that has not run what it is.
fn wants(approval: &Approval) -> String {
    match (approval.kind(), &approval.effect) {
        (approval_need::Kind::Effect, Some(effect)) => words::would(effect),
        _ => format!("call {}", visible(&approval.tool)),
    }
}

/// Everything a person needs for the decision.
pub(crate) fn full(approval: &Approval, extent: Extent) -> Vec<Line> {
    let state = approval.state();
    let mut lines = vec![
        Line::default()
            .and(Style::Strong, names::id(&approval.name))
            .and(Style::Plain, "  ")
            .and(words::approval_style(state), words::approval_state(state)),
    ];
    lines.extend(body(approval, extent));
    lines
}

fn body(approval: &Approval, extent: Extent) -> Vec<Line> {
    let mut lines = headline(approval);
    if let Some(form) = &approval.form {
        lines.extend(form_lines(form));
    }
    lines.extend(table(&facts(approval, extent)));
    if is_form(approval) {
        return lines;
    }
    let preview = approval.preview.clone().unwrap_or_default();
    let mut warnings = diff::warnings(preview.files.iter().filter_map(|file| file.change.as_ref()));
    if warnings.len() > MAX_WARNINGS {
        let more = warnings.len() - MAX_WARNINGS;
        warnings.truncate(MAX_WARNINGS);
        warnings.push(Line::default().and(Style::Bad, format!("look twice: {more} more like these")));
    }
    let has_changes = !warnings.is_empty() || !preview.files.is_empty();
    if has_changes && extent == Extent::Brief {
        lines.push(Line::default());
    }
    lines.extend(warnings);
    lines.extend(diff::files(&preview.files, preview.more_files, extent));
    let left_out = preview.more_files > 0 || preview.files.iter().any(|file| file.count > 0);
    if left_out && is_open(approval) {
        lines.push(next::line(about(&["approvals", "show"], &approval.name, &["--all"])));
    }
    lines.push(what_it_is(approval, extent));
    lines
}

fn is_form(approval: &Approval) -> bool {
    approval.kind() == approval_need::Kind::Form
}

/// The description that a person has to know to answer, and the fields.
fn form_lines(asked: &Form) -> Vec<Line> {
    let said = asked.description.lines().map(|line| Line::new("  ").and(Style::Plain, visible(line)));
    let fields =
        form::fields(&asked.schema).into_iter().map(|field| Line::new("  - ").and(Style::Plain, visible(&field)));
    said.chain(fields).collect()
}

fn is_open(approval: &Approval) -> bool {
    matches!(approval.state(), State::Pending | State::Approved)
}

/// The operation asked for, as the gate rendered it from what is digested.
fn headline(approval: &Approval) -> Vec<Line> {
    let rendered = approval.preview.as_ref().map(|preview| preview.headline.as_str()).filter(|text| !text.is_empty());
    let text = rendered.unwrap_or(&approval.operation);
    let mut lines: Vec<Line> =
        text.lines().take(MAX_HEADLINE_LINES).map(|line| Line::new("  ").and(Style::Strong, visible(line))).collect();
    if let Some(more @ 1..) = text.lines().count().checked_sub(MAX_HEADLINE_LINES) {
        lines.push(Line::default().and(Style::Warn, format!("  … {more} more lines; -o json has them")));
    }
    lines
}

/// The facts about an approval; a brief view leaves out its id and time.
fn facts(approval: &Approval, extent: Extent) -> Vec<Vec<(Style, String)>> {
    let preview = approval.preview.clone().unwrap_or_default();
    let folder = match (preview.workspace.as_str(), preview.working_directory.as_str()) {
        (workspace, "") => workspace.to_owned(),
        (workspace, inside) => format!("{workspace}, in {inside}"),
    };
    let asked = approval.create_time.as_ref().map(time::date_and_time).unwrap_or_default();
    let id = names::id(&approval.name).to_owned();
    let by = if approval.requested_by.is_empty() { String::new() } else { format!(" for {}", approval.requested_by) };
    let of = format!("{} of {}", approval.step_id, names::id(&approval.execution));
    let is_brief = extent == Extent::Brief;
    let expires = approval.expire_time.as_ref().filter(|_| approval.state() == State::Pending);
    let mut decided = approval.decide_time.as_ref().map(time::date_and_time).unwrap_or_default();
    if !approval.decided_by.is_empty() {
        decided.push_str(&format!(" by {}", approval.decided_by));
    }
    if !approval.decide_reason.is_empty() {
        decided.push_str(&format!(": {}", approval.decide_reason));
    }
    let facts = [
        ("workspace", folder),
        ("can access", access(&preview.reach)),
        ("why", approval.decision.as_ref().map(words::decision).unwrap_or_default()),
        ("for", approval.request_reason.clone()),
        ("risk", words::risk(approval.risk()).to_owned()),
        ("step", if is_brief { of + &by } else { of }),
        ("approval", if is_brief { String::new() } else { id }),
        ("asked", if is_brief { String::new() } else { asked + &by }),
        ("expires", expires.map(time::date_and_time).unwrap_or_default()),
        ("decided", decided),
    ];
    facts
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![(Style::Dim, name.to_owned()), (Style::Plain, visible(&value))])
        .collect()
}

/// `this workspace (read and write), /usr (read); no network`.
fn access(reach: &[String]) -> String {
    match reach.split_last() {
        Some((network, rest))
            if (network.ends_with("network") || network.starts_with("network profile")) && !rest.is_empty() =>
        {
            format!("{}; {network}", rest.join(", "))
        }
        _ => reach.join(", "),
    }
}

/// Whether it has run, and in short what it would change; a brief view begins with that.
fn what_it_is(approval: &Approval, extent: Extent) -> Line {
    let is_open = is_open(approval);
    match approval.kind() {
        approval_need::Kind::Effect if is_open && extent == Extent::Brief => {
            Line::new("Ran in an isolated copy. Nothing has been written to your workspace yet.")
        }
        approval_need::Kind::Effect => {
            let effect = approval.effect.as_ref();
            match is_open {
                true => Line::new("Ran in an isolated copy. Would ")
                    .and(Style::Strong, effect.map_or_else(|| "change files".to_owned(), words::would))
                    .and(Style::Plain, ". Nothing has been written to your workspace yet."),
                false => Line::new("Ran in an isolated copy. The decision was about ")
                    .and(Style::Strong, effect.map_or_else(|| "files".to_owned(), words::effect))
                    .and(Style::Plain, "."),
            }
        }
        approval_need::Kind::Call if is_open => Line::new("Has not run yet."),
        _ => Line::default(),
    }
}

/// The commands to type next.
pub(crate) fn next_commands(approval: &Approval, is_attended: bool) -> Vec<Line> {
    // Without a terminal `approve` cannot ask, and what it would show has been shown here.
    let yes: &[&str] = if is_attended { &[] } else { &["--yes"] };
    let answer: &[&str] = if is_attended { &[] } else { &["--value", "…"] };
    match approval.state() {
        State::Pending if is_form(approval) => vec![
            next::line(about(&["approvals", "answer"], &approval.name, answer)),
            next::also(about(&["deny"], &approval.name, &["--reason", "…"])),
            next::also(about(&["approvals", "skip"], &approval.name, &[])),
        ],
        State::Pending => vec![
            next::line(about(&["approve"], &approval.name, yes)),
            next::also(about(&["deny"], &approval.name, &["--reason", "…"])),
            next::also(about(&["approvals", "skip"], &approval.name, &[])),
        ],
        _ => vec![next::line(about(&["executions", "get"], &approval.execution, &[]))],
    }
}

/// A table of approvals in BASIC view, the columns' names first.
pub(crate) fn list(approvals: &[Approval], now: Duration) -> Vec<Line> {
    let heading = ["ID", "STATE", "AGE", "STEP", "WANTS", "CHANGES"].map(|name| (Style::Dim, name.to_owned())).to_vec();
    let rows = approvals.iter().map(|approval| {
        let state = approval.state();
        let age = time::between(approval.create_time.as_ref(), Some(now)).map(time::short).unwrap_or_default();
        let changes = approval.effect.as_ref().filter(|_| approval.kind() == approval_need::Kind::Effect);
        let changes = changes.map(words::effect);
        vec![
            (Style::Strong, names::id(&approval.name).to_owned()),
            (words::approval_style(state), words::approval_state(state)),
            (Style::Plain, age),
            (Style::Plain, format!("{}/{}", names::id(&approval.execution), approval.step_id)),
            (Style::Plain, shorten(&visible(&approval.operation), MAX_OPERATION_CHARS)),
            (
                Style::Dim,
                if is_form(approval) {
                    "an answer".to_owned()
                } else {
                    changes.unwrap_or_else(|| "not run yet".to_owned())
                },
            ),
        ]
    });
    table(&std::iter::once(heading).chain(rows).collect::<Vec<_>>())
}

/// The approval for programs: canonical, with the subject as the JSON that it is instead of its bytes. Its digest is over the bytes, which
/// are the canonical form (RFC 8785) of that JSON.
pub(crate) fn json(approval: &Approval) -> Result<Value, json::JsonError> {
    let mut value = json::of(approval)?;
    if let Ok(subject) = serde_json::from_slice::<Value>(&approval.subject) {
        value["subject"] = subject;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::{EffectSummary, FileDiff, PathChange, PolicyDecision, Preview, path_change};
    use pbjson_types::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::render::text;

    fn approval() -> Approval {
        let change = PathChange {
            path: "notes.txt".to_owned(),
            kind: path_change::Kind::Deleted.into(),
            flags: vec!["odd_name".to_owned()],
            index: 0,
        };
        let unified = "@@ -1 +0,0 @@\n-hello\n".to_owned();
        Approval {
            name: "namespaces/default/approvals/x7k2".to_owned(),
            state: State::Pending.into(),
            kind: approval_need::Kind::Effect.into(),
            execution: "namespaces/default/executions/e1".to_owned(),
            step_id: "tidy".to_owned(),
            tool: "delete_file".to_owned(),
            operation: "delete_file notes.txt".to_owned(),
            subject: br#"{"big":9007199254740993,"labels":{"a":"1+00:00"}}"#.to_vec(),
            preview: Some(Preview {
                headline: "delete_file notes.txt".to_owned(),
                workspace: "/home/me/w".to_owned(),
                reach: vec!["this workspace (read and write)".to_owned(), "no network".to_owned()],
                files: vec![FileDiff { change: Some(change), unified, removed: 1, ..Default::default() }],
                ..Default::default()
            }),
            decision: Some(PolicyDecision {
                rule: "file_delete".to_owned(),
                reason: "Deleting asks first.".to_owned(),
                ..Default::default()
            }),
            effect: Some(EffectSummary { deleted: 1, ..Default::default() }),
            requested_by: "unix:1000".to_owned(),
            create_time: Some(Timestamp { seconds: 1_795_230_245, nanos: 0 }),
            ..Default::default()
        }
    }

    fn screen(lines: &[Line]) -> String {
        lines.iter().map(|line| line.render(false) + "\n").collect()
    }

    // S2-X-17: type, operation, files, reason and what to look at twice stand on one screen, with the content.
    #[test]
    fn an_approval_shows_what_why_and_what_would_change() {
        let mut lines = full(&approval(), Extent::Full);
        lines.extend(next_commands(&approval(), true));
        assert_eq!(
            screen(&lines),
            "x7k2  pending\n\
             \x20 delete_file notes.txt\n\
             \x20 workspace   /home/me/w\n\
             \x20 can access  this workspace (read and write); no network\n\
             \x20 why         Deleting asks first. (rule file_delete)\n\
             \x20 step        tidy of e1\n\
             \x20 approval    x7k2\n\
             \x20 asked       2026-11-21 03:04:05Z for unix:1000\n\
             look twice: notes.txt has a name with characters that cannot be seen or do not belong in names\n\
             deletes  notes.txt  [odd_name]  -1\n\
             \x20   1 - hello\n\
             Ran in an isolated copy. Would delete 1 file. Nothing has been written to your workspace yet.\n\
             next: belay approve x7k2\n\
             \x20     belay deny x7k2 --reason '…'\n\
             \x20     belay approvals skip x7k2\n"
        );
    }

    // S2-X-17: the question fits a narrow window and shows its place in the queue, what the call can access, and what would change.
    #[test]
    fn the_question_in_three_windows() {
        let shown = |columns| {
            let lines = question(&approval(), Turn { number: 2, of: 3, is_of_child: false }, columns);
            let rows = text::rows(&lines, Some(columns));
            assert!(rows.iter().all(|row| row.width() <= columns), "{rows:?}");
            screen(&rows)
        };
        assert_eq!(
            shown(40),
            "? tidy wants to delete 1 file    2 of 3\n\
             \x20 delete_file notes.txt\n\
             \x20 workspace   /home/me/w\n\
             \x20 can access  this workspace (read and\n\
             \x20             write); no network\n\
             \x20 why         Deleting asks first. (rule\n\
             \x20             file_delete)\n\
             \x20 step        tidy of e1 for unix:1000\n\
             \n\
             look twice: notes.txt has a name with\n\
             \x20 characters that cannot be seen or do\n\
             \x20 not belong in names\n\
             deletes  notes.txt  [odd_name]  -1\n\
             \x20   1 - hello\n\
             Ran in an isolated copy. Nothing has\n\
             \x20 been written to your workspace yet.\n"
        );
        for (columns, gap) in [(80, 44), (120, 84)] {
            let first = format!("? tidy wants to delete 1 file{}2 of 3\n", " ".repeat(gap));
            let facts = "  can access  this workspace (read and write); no network\n  why         Deleting asks first. (rule file_delete)\n";
            let shown = shown(columns);
            assert!(shown.starts_with(&first) && shown.contains(facts), "{shown}");
        }
        let only = screen(&question(&approval(), Turn::ONLY, 80));
        assert!(only.starts_with("? tidy wants to delete 1 file\n  delete_file"), "{only}");
    }

    #[test]
    fn a_form_shows_what_is_asked_and_how_it_is_answered() {
        let form = Form {
            title: "Which version?".to_owned(),
            description: "It is released\x1b[2J at once.\nThink.".to_owned(),
            schema: r#"{"type":"object","required":["version"],"properties":{"version":{"type":"string"}}}"#.to_owned(),
        };
        let asked = Approval {
            kind: approval_need::Kind::Form.into(),
            operation: form.title.clone(),
            form: Some(form),
            decision: None,
            effect: None,
            preview: None,
            tool: String::new(),
            step_id: "ask".to_owned(),
            ..approval()
        };
        assert_eq!(
            screen(&question(&asked, Turn::ONLY, 80)),
            "? ask asks you\n\
             \x20 Which version?\n\
             \x20 It is released<U+001B>[2J at once.\n\
             \x20 Think.\n\
             \x20 - version (text)\n\
             \x20 step  ask of e1 for unix:1000\n"
        );
        assert_eq!(
            screen(&next_commands(&asked, false)),
            "next: belay approvals answer x7k2 --value '…'\n\
             \x20     belay deny x7k2 --reason '…'\n\
             \x20     belay approvals skip x7k2\n"
        );
        let listed = screen(&list(&[asked], Duration::from_secs(1_795_230_305)));
        assert!(listed.ends_with("e1/ask  Which version?  an answer\n"), "{listed}");
    }

    #[test]
    fn a_decided_one_says_by_whom_and_why() {
        let decided = Approval {
            state: State::Denied.into(),
            decided_by: "unix:1000".to_owned(),
            decide_reason: "wrong\x1b[2J file".to_owned(),
            decide_time: Some(Timestamp { seconds: 1_795_230_300, nanos: 0 }),
            ..approval()
        };
        let shown = screen(&full(&decided, Extent::Full));
        assert!(shown.contains("decided     2026-11-21 03:05:00Z by unix:1000: wrong<U+001B>[2J file\n"), "{shown}");
        assert_eq!(screen(&next_commands(&decided, true)), "next: belay executions get e1\n");
    }

    #[test]
    fn a_call_that_has_not_run_says_so() {
        let call = Approval { kind: approval_need::Kind::Call.into(), effect: None, preview: None, ..approval() };
        assert!(screen(&full(&call, Extent::Brief)).contains("\nHas not run yet.\n"));
        assert!(
            screen(&list(&[call], Duration::from_secs(1_795_230_305)))
                .ends_with("delete_file notes.txt  not run yet\n")
        );
    }

    #[test]
    fn a_headline_of_many_lines_cannot_push_the_reason_off_the_screen() {
        let mut long = approval();
        long.preview.get_or_insert_default().headline = "x\n".repeat(500);
        let lines = full(&long, Extent::Brief);
        assert!(lines.len() < 40);
        assert!(screen(&lines).contains("  … 480 more lines; -o json has them\n"));
    }

    // The subject is shown as what it is, to the last digit, and not as base64.
    #[test]
    fn programs_get_the_subject_as_json() {
        let value = json(&approval()).unwrap();
        assert_eq!(value["subject"], json!({"big": 9_007_199_254_740_993_i64, "labels": {"a": "1+00:00"}}));
        assert_eq!((&value["state"], &value["decision"]["rule"]), (&json!("STATE_PENDING"), &json!("file_delete")));
        let foreign = Approval { subject: vec![0xff], ..approval() };
        assert_eq!(json(&foreign).unwrap()["subject"], "/w==", "bytes that are no JSON stay bytes");
    }
}
