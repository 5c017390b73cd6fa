//! The audit log, for people.

use belay_proto::v1::{AuditEntry, audit_entry::Severity};

use super::{
    text::{Line, Style, table},
    time,
};

/// A row for each entry.
pub(crate) fn list(entries: &[AuditEntry]) -> Vec<Line> {
    table(&entries.iter().map(row).collect::<Vec<_>>())
}

fn row(entry: &AuditEntry) -> Vec<(Style, String)> {
    let (style, severity) = match entry.severity() {
        Severity::Unspecified => (Style::Plain, ""),
        Severity::Info => (Style::Plain, "info"),
        Severity::Warn => (Style::Warn, "warn"),
        Severity::Error => (Style::Bad, "error"),
    };
    let by = if entry.principal.is_empty() { String::new() } else { format!(" (by {})", entry.principal) };
    vec![
        (Style::Dim, entry.record_time.as_ref().map(time::date_and_time).unwrap_or_default()),
        (style, severity.to_owned()),
        (Style::Plain, format!("{}{by}", entry.message)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_row_with_its_severity_and_who_asked() {
        let entry = |severity: Severity, message: &str, principal: &str| AuditEntry {
            severity: severity.into(),
            message: message.into(),
            principal: principal.into(),
            ..AuditEntry::default()
        };
        let entries = [
            entry(Severity::Info, "Execution started", ""),
            entry(Severity::Error, "Step `a` failed after 2 attempts: no\u{1b}[2J", ""),
            entry(Severity::Warn, "Cancellation requested", "unix:0"),
        ];
        let shown: Vec<String> = list(&entries).iter().map(|line| line.render(false).trim().to_owned()).collect();
        assert_eq!(
            shown,
            [
                "info   Execution started",
                "error  Step `a` failed after 2 attempts: no<U+001B>[2J",
                "warn   Cancellation requested (by unix:0)"
            ]
        );
    }
}
