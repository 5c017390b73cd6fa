//! Artifacts and their lineage, for people.

use belay_proto::v1::{Artifact, GetProvenanceResponse, artifact::Kind, path_change};

use super::{
    text::{Line, Style, name, table},
    time,
};
use crate::names;

/// A row for each artifact.
pub(crate) fn list(artifacts: &[Artifact]) -> Vec<Line> {
    table(&artifacts.iter().map(row).collect::<Vec<_>>())
}

/// The artifact, what it derives from, and what derives from it.
pub(crate) fn lineage(found: &GetProvenanceResponse) -> Vec<Line> {
    let mut lines: Vec<Line> = found.artifact.iter().map(heading).collect();
    let mut section = |title: &str, artifacts: &[Artifact], nothing: &str| {
        if artifacts.is_empty() {
            lines.push(Line::new(nothing));
            return;
        }
        lines.push(Line::new(title));
        lines.extend(table(&artifacts.iter().map(related).collect::<Vec<_>>()));
    };
    section("derives from, the nearest first:", &found.ancestors, "derives from no other artifact");
    section("from it derive, the nearest first:", &found.descendants, "nothing derives from it");
    lines.extend(truncated(found));
    lines
}

/// A line about a lineage that is not whole.
pub(crate) fn truncated(found: &GetProvenanceResponse) -> Vec<Line> {
    let lists = [
        (found.ancestors_truncated, "ancestors", &found.ancestors),
        (found.descendants_truncated, "descendants", &found.descendants),
    ];
    let said = lists.into_iter().filter(|(is_truncated, ..)| *is_truncated).map(|(_, what, list)| {
        let last = list.last().map(|last| names::id(&last.name)).unwrap_or_default();
        let more = format!("there are more {what} than these {}: show the lineage of {last} for the next", list.len());
        Line::default().and(Style::Warn, more)
    });
    said.collect()
}

fn heading(artifact: &Artifact) -> Line {
    Line::default()
        .and(Style::Strong, subject(artifact))
        .and(Style::Plain, format!("  {}", made_by(artifact)))
        .and(Style::Dim, format!("  {}", artifact.digest))
}

fn row(artifact: &Artifact) -> Vec<(Style, String)> {
    let mut row = related(artifact);
    let digest = artifact.digest.split_once(':').map(|(algorithm, digits)| {
        let digits: String = digits.chars().take(12).collect();
        format!("{algorithm}:{digits}…")
    });
    let time = artifact.create_time.as_ref().map(time::date_and_time).unwrap_or_default();
    row.extend([(Style::Plain, size(artifact)), (Style::Dim, digest.unwrap_or_default()), (Style::Dim, time)]);
    row
}

fn related(artifact: &Artifact) -> Vec<(Style, String)> {
    let (style, what) = change(artifact);
    vec![
        (Style::Dim, names::id(&artifact.name).to_owned()),
        (style, what.to_owned()),
        (Style::Strong, subject(artifact)),
        (Style::Plain, made_by(artifact)),
    ]
}

/// The path of a file, and the step of an output.
fn subject(artifact: &Artifact) -> String {
    match artifact.kind() {
        Kind::File => name(&artifact.path),
        Kind::Output | Kind::Unspecified => artifact.step_id.clone(),
    }
}

fn made_by(artifact: &Artifact) -> String {
    let attempt = match artifact.attempt {
        0 => "given".to_owned(),
        attempt => format!("attempt {attempt}"),
    };
    match artifact.kind() {
        Kind::File => format!("by {}, {attempt}", artifact.step_id),
        Kind::Output | Kind::Unspecified => attempt,
    }
}

fn change(artifact: &Artifact) -> (Style, &'static str) {
    match (artifact.kind(), artifact.change()) {
        (Kind::Output | Kind::Unspecified, _) => (Style::Plain, "output"),
        (Kind::File, path_change::Kind::Created) => (Style::Good, "created"),
        (Kind::File, path_change::Kind::Deleted) => (Style::Bad, "deleted"),
        (Kind::File, path_change::Kind::Modified | path_change::Kind::Unspecified) => (Style::Warn, "modified"),
    }
}

fn size(artifact: &Artifact) -> String {
    match artifact.digest.is_empty() {
        true => String::new(),
        false => format!("{} bytes", artifact.size_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(id: &str, kind: Kind, step: &str, path: &str) -> Artifact {
        Artifact {
            name: format!("namespaces/default/executions/e1/artifacts/{id}"),
            kind: kind.into(),
            step_id: step.into(),
            attempt: 1,
            path: path.into(),
            change: path_change::Kind::Created.into(),
            digest: format!("sha256:{}", "ab".repeat(32)),
            size_bytes: 7,
            ..Artifact::default()
        }
    }

    fn text(lines: Vec<Line>) -> String {
        lines.iter().map(|line| format!("{}\n", line.render(false))).collect()
    }

    #[test]
    fn a_list_has_a_row_for_each_artifact() {
        let artifacts = [artifact("5.1", Kind::File, "write", "out/a.txt"), artifact("6", Kind::Output, "write", "")];
        let shown = text(list(&artifacts));
        assert_eq!(
            shown.lines().map(str::trim_end).collect::<Vec<_>>(),
            [
                "  5.1  created  out/a.txt  by write, attempt 1  7 bytes  sha256:abababababab…",
                "  6    output   write      attempt 1            7 bytes  sha256:abababababab…",
            ]
        );
    }

    /// S3-14: what an artifact derives from and what derives from it are on one screen, and a cut is said with the way on.
    #[test]
    fn a_lineage_says_both_ways_and_what_is_missing() {
        let found = GetProvenanceResponse {
            artifact: Some(artifact("9", Kind::Output, "read", "")),
            ancestors: vec![artifact("6", Kind::Output, "write", "")],
            descendants: Vec::new(),
            ancestors_truncated: true,
            descendants_truncated: false,
        };
        let shown = text(lineage(&found));
        assert!(shown.starts_with("read  attempt 1  sha256:abab"), "{shown}");
        assert!(shown.contains("derives from, the nearest first:\n  6  output  write"), "{shown}");
        assert!(shown.contains("nothing derives from it\n"), "{shown}");
        assert!(
            shown.ends_with("there are more ancestors than these 1: show the lineage of 6 for the next\n"),
            "{shown}"
        );
    }
}
