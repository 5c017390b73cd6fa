//! Lines that hold secrets, and lines that only look like it.

use belay_redaction::{REDACTED, Redactor};

const SECRETS: &str = include_str!("../fixtures/secrets.txt");
const CLEAN: &str = include_str!("../fixtures/clean.txt");

/// A line as a program would write it, as it has to be shown, and the secrets in it.
pub(crate) struct Line {
    pub(crate) written: String,
    pub(crate) shown: String,
    pub(crate) secrets: Vec<String>,
}

pub(crate) fn secret_lines() -> Vec<Line> {
    let lines = SECRETS.lines().filter(|line| !line.starts_with("# "));
    lines
        .map(|line| {
            let line = line.replace('¦', "");
            let mut shown = String::new();
            let mut secrets = Vec::new();
            for (index, part) in line.split(['«', '»']).enumerate() {
                match index % 2 {
                    0 => shown.push_str(part),
                    _ => {
                        shown.push_str(REDACTED);
                        secrets.push(part.to_owned());
                    }
                }
            }
            Line { written: line.replace(['«', '»'], ""), shown, secrets }
        })
        .collect()
}

pub(crate) fn clean_lines() -> Vec<&'static str> {
    CLEAN.lines().filter(|line| !line.starts_with("# ")).collect()
}

/// S2-FR-077, S2-FR-077a, S2-X-16.
#[test]
fn what_is_a_secret_is_hidden_and_nothing_else_of_its_line() {
    let redactor = Redactor::new();
    let lines = secret_lines();
    assert!(lines.len() >= 150, "{}", lines.len());
    let mut wrong = Vec::new();
    for line in &lines {
        let redacted = redactor.redact_text(&line.written);
        if redacted.text != line.shown {
            wrong.push(format!("{}\n  shown  {}\n  wanted {}", line.written, redacted.text, line.shown));
        }
    }
    assert!(wrong.is_empty(), "{} of {} lines:\n{}", wrong.len(), lines.len(), wrong.join("\n"));
}

#[test]
fn what_is_no_secret_stays() {
    let redactor = Redactor::new();
    let lines = clean_lines();
    assert!(lines.len() >= 200, "{}", lines.len());
    let mut wrong = Vec::new();
    for line in lines {
        let redacted = redactor.redact_text(line);
        if redacted.text != line {
            wrong.push(format!("{line}\n  {} {:?}", redacted.text, redacted.found));
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn redacting_again_changes_nothing() {
    let redactor = Redactor::new();
    for line in secret_lines() {
        assert_eq!(redactor.redact_text(&line.shown).text, line.shown);
    }
}

/// A rule that finds nothing of the fixtures is not known to work.
#[test]
fn the_found_places_are_those_of_the_secrets() {
    let redactor = Redactor::new();
    for line in secret_lines() {
        let found = redactor.redact_text(&line.written).found;
        let places: Vec<&str> = found.iter().map(|found| &line.written[found.start..found.end]).collect();
        assert_eq!(places, line.secrets, "{}", line.written);
    }
}

#[test]
fn a_key_of_many_lines_is_hidden_with_its_lines() {
    let redactor = Redactor::new();
    let body = "MIIEowIBAAKCAQEAFAKEfakeFAKEfakeFAKEfakeFAKEfakeFAKEfakeFAKEfake\n".repeat(25);
    let key = format!(
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{body}FAKE==\n-----END RSA PRIVATE KEY-----"
    );
    let shown = redactor.redact_text(&format!("before\n{key}\nafter")).text;
    assert_eq!(shown, "before\n-----BEGIN RSA PRIVATE KEY-----\n[REDACTED]\n-----END RSA PRIVATE KEY-----\nafter");
    // Cut off in the middle, as a limit on output does it.
    let shown = redactor.redact_text(&format!("-----BEGIN PRIVATE KEY-----\n{body}FAK\nDone in 3 s")).text;
    assert_eq!(shown, "-----BEGIN PRIVATE KEY-----\n[REDACTED]\nDone in 3 s");
}
