//! Values that the platform handed out, in whatever spelling they come back.

use belay_redaction::{LiteralRefusal, Redactor};

/// S2-FR-077a.
#[test]
fn a_value_is_hidden_in_every_spelling() {
    let secret = "pa/ss \"wörd\"+1";
    let redactor = Redactor::new().with_literals([secret]).unwrap();
    // Made with `printf … | base64`, `xxd -p`, Python's `quote`, `quote_plus` and `json.dumps`.
    let spellings = [
        "pa/ss \"wörd\"+1",
        "cGEvc3MgInfDtnJkIisx",
        "70612f73732022",
        "70612F73732022",
        "pa/ss%20%22w%C3%B6rd%22%2B1",
        "pa%2Fss+%22w%C3%B6rd%22%2B1",
        "pa/ss \\\"wörd\\\"+1",
        "pa/ss \\\"w\\u00f6rd\\\"+1",
        "pa\\/ss \\\"wörd\\\"+1",
    ];
    for spelling in spellings {
        let whole = match spelling.starts_with("7061") {
            true => {
                format!("{spelling}{}", if spelling.contains('F') { "77C3B67264222B31" } else { "77c3b67264222b31" })
            }
            false => spelling.to_owned(),
        };
        let shown = redactor.redact_text(&format!("before {whole} after")).text;
        assert_eq!(shown, "before [REDACTED] after", "{whole}");
    }
}

#[test]
fn a_value_inside_of_longer_base64_is_hidden() {
    let redactor = Redactor::new().with_literals(["correct-horse-battery"]).unwrap();
    // `printf 'ada:correct-horse-battery:x' | base64`, with one and with two letters before the colon as well.
    for encoded in [
        "YWRhOmNvcnJlY3QtaG9yc2UtYmF0dGVyeTp4",
        "YTpjb3JyZWN0LWhvcnNlLWJhdHRlcnk6eA==",
        "YWQ6Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5Ong=",
    ] {
        let shown = redactor.redact_text(&format!("x {encoded} y")).text;
        assert!(shown.contains("[REDACTED]") && !shown.contains("bmV") && shown.len() < encoded.len(), "{shown}");
    }
}

#[test]
fn values_add_up_and_the_rules_stay() {
    let redactor = Redactor::new().with_literals(["firstvalue"]).unwrap().with_literals(["second value"]).unwrap();
    let shown = redactor.redact_text("firstvalue, second value, password=hunter2, thirdvalue").text;
    assert_eq!(shown, "[REDACTED], [REDACTED], password=[REDACTED], thirdvalue");
    assert!(!format!("{redactor:?}").contains("firstvalue"));
}

#[test]
fn each_line_of_a_value_with_several_lines_is_hidden() {
    let key = "-----BEGIN X-----\nAAAABBBBCCCCDDDD0\nEEEEFFFFGGGGHHHH1\n-----END X-----\n";
    let redactor = Redactor::new().with_literals([key]).unwrap();
    assert_eq!(redactor.redact_text(&format!("a{key}b")).text, "a[REDACTED]b");
    assert_eq!(redactor.redact_text("  | EEEEFFFFGGGGHHHH1").text, "  | [REDACTED]");
}

#[test]
fn what_cannot_be_looked_for_is_refused() {
    let redactor = Redactor::new();
    assert_eq!(
        redactor.with_literals(["long enough", "abc"]).unwrap_err(),
        LiteralRefusal::TooShort { index: 1, length: 3 }
    );
    let long = "x".repeat(20_000);
    assert_eq!(redactor.with_literals([long]).unwrap_err(), LiteralRefusal::TooLong { index: 0, length: 20_000 });
    assert!(redactor.with_literals(Vec::<String>::new()).is_ok());
}

#[test]
fn values_have_no_number_beyond_which_they_are_dropped() {
    let mut redactor = Redactor::new();
    for n in 0..3000 {
        redactor = redactor.with_literals([format!("learned-value-{n:05}")]).unwrap();
    }
    let shown =
        redactor.redact_text("learned-value-00000 learned-value-01499 learned-value-02999 learned-value-3").text;
    assert_eq!(shown, "[REDACTED] [REDACTED] [REDACTED] learned-value-3");
    // `printf learned-value-02999 | base64`, and `xxd -p`.
    assert_eq!(redactor.redact_text("bGVhcm5lZC12YWx1ZS0wMjk5OQ==").text, "[REDACTED]Q==");
    assert_eq!(redactor.redact_text("6c6561726e65642d76616c75652d3032393939").text, "[REDACTED]");
}

#[test]
fn many_large_values_are_still_looked_for_as_they_are_and_in_json() {
    let values: Vec<String> = (0..200).map(|n| format!("{n:03}\"{}", " large value".repeat(200))).collect();
    let redactor = Redactor::new().with_literals(&values).unwrap();
    let last = values.last().unwrap();
    assert_eq!(redactor.redact_text(last).text, "[REDACTED]");
    let json = serde_json::to_string(last).unwrap();
    assert_eq!(redactor.redact_text(&json).text, "\"[REDACTED]\"");
}
