//! The bytes that the gate signs.

use belay_policy::{InvalidPolicy, Policies, RevisedPolicies};

use crate::support::*;

const FULL: &str = "
file_write: prompt
file_delete: deny
terminal_commands: auto
non_interactive_policy: skip
sandbox: {min_tier: C}
approvals: {expire_after: 7d, separate_duties: true}
protect: false
allowed_commands: [git]
rules:
  - {id: a, on: intent, tools: [t], programs: [p], arguments: ['a*'], cwd: [src], env: [CI], paths: [x], decide: preview, match: [p ab], not_match: [{command: [p, b c], path: x}]}
  - {id: b, on: effect, paths: ['**'], changes: [create, modify, delete], flags: [executable], decide: prompt, reason: \"Wegen \u{201e}x\u{201c}.\", match: [{path: y, change: create, flags: [executable]}, {tool: t}]}
namespaces:
  team-a: {file_write: deny, approvals: {separate_duties: false}, rules: [{id: c, on: intent, decide: deny}]}
";

const PRESET: &str = concat!(
    r#"{"v":6,"revision":7,"policy":{"file_write":"auto","file_delete":"prompt","terminal_commands":"prompt","#,
    r#""non_interactive_policy":"fail","sandbox":{"min_tier":"A"},"#,
    r#""approvals":{"expire_after":null,"separate_duties":false},"protect":true,"rules":[],"allowed_commands":null,"network":"prompt"},"namespaces":{}}"#,
);

/// Runners store these bytes, and later versions read them.
#[test]
fn the_bytes_stay_as_they_are() {
    let preset = RevisedPolicies { revision: 7, policies: Policies::preset() };
    assert_eq!(String::from_utf8(preset.to_bytes()).unwrap(), PRESET);
    let full = RevisedPolicies { revision: 1, policies: policies(FULL) };
    let rules = concat!(
        r#""rules":[{"id":"a","on":"intent","tools":["t"],"programs":["p"],"arguments":["a*"],"paths":["x"],"changes":[],"flags":[],"#,
        r#""decide":"preview","reason":"","match":[{"tool":null,"command":["p","ab"],"path":null,"change":null,"flags":null,"cwd":null,"env":null}],"#,
        r#""not_match":[{"tool":null,"command":["p","b c"],"path":"x","change":null,"flags":null,"cwd":null,"env":null}],"cwd":["src"],"env":["CI"]},"#,
        r#"{"id":"b","on":"effect","tools":[],"programs":[],"arguments":[],"paths":["**"],"changes":["create","modify","delete"],"#,
        r#""flags":["executable"],"decide":"prompt","reason":"Wegen „x“.","#,
        r#""match":[{"tool":null,"command":null,"path":"y","change":"create","flags":["executable"],"cwd":null,"env":null},"#,
        r#"{"tool":"t","command":null,"path":null,"change":null,"flags":null,"cwd":null,"env":null}],"not_match":[],"cwd":[],"env":[]}],"allowed_commands":["git"],"network":"prompt"},"#,
        // A section has its own rules only.
        r#""namespaces":{"team-a":{"file_write":"deny","file_delete":"deny","terminal_commands":"auto","non_interactive_policy":"skip","#,
        r#""sandbox":{"min_tier":"C"},"approvals":{"expire_after":604800,"separate_duties":false},"protect":false,"rules":["#,
        r#"{"id":"c","on":"intent","tools":[],"programs":[],"arguments":[],"paths":[],"changes":[],"flags":[],"decide":"deny","reason":"","#,
        r#""match":[],"not_match":[],"cwd":[],"env":[]}],"allowed_commands":["git"],"network":"prompt"}}}"#,
    );
    let text = String::from_utf8(full.to_bytes()).unwrap();
    assert!(text.ends_with(rules), "{text}");
}

#[test]
fn what_is_written_is_read() {
    for text in ["{}", FULL] {
        for revision in [1, 2, i64::MAX] {
            let revised = RevisedPolicies { revision, policies: policies(text) };
            let read = RevisedPolicies::from_bytes(&revised.to_bytes()).unwrap();
            assert_eq!(read, revised);
            assert_eq!(read.to_bytes(), revised.to_bytes());
        }
    }
    assert_eq!(RevisedPolicies::from_bytes(PRESET.as_bytes()).unwrap().policies, Policies::preset());
}

#[test]
fn another_spelling_is_refused() {
    let at = |from: &str, to: &str| {
        assert!(PRESET.contains(from), "{from}");
        PRESET.replacen(from, to, 1)
    };
    for spelling in [
        format!("{PRESET}\n"),
        format!(" {PRESET}"),
        at(r#""v":6,"#, r#""v": 6,"#),
        at(r#""protect":true,"rules":[]"#, r#""rules":[],"protect":true"#),
        at(r#""expire_after":null,"#, ""),
        at(r#""auto""#, r#""\u0061uto""#),
    ] {
        assert_eq!(RevisedPolicies::from_bytes(spelling.as_bytes()), Err(InvalidPolicy::NotCanonical), "{spelling}");
    }
    for malformed in [
        String::new(),
        "{}".into(),
        PRESET.to_uppercase(),
        PRESET[..PRESET.len() - 1].into(),
        at(r#""v":6,"#, r#""v":6,"v":6,"#),
        at(r#""revision":7,"#, r#""revision":7,"revision":8,"#),
        at(r#""revision":7,"#, r#""revision":7.0,"#),
        at(r#""revision":7,"#, r#""revision":9223372036854775808,"#),
        at(r#""revision":7,"#, ""),
        at(r#""protect":true,"#, ""),
        at(r#""protect":true,"#, r#""protect":true,"protect":false,"#),
        at(r#""protect":true,"#, r#""protect":true,"protected":false,"#),
        at(r#""protect":true,"#, r#""protect":"true","#),
        at(r#""file_write":"auto""#, r#""file_write":"Auto""#),
        at(r#""file_write":"auto""#, r#""file_write":"preview""#),
        at(r#""expire_after":null"#, r#""expire_after":-1"#),
        at(r#""min_tier":"A""#, r#""min_tier":"D""#),
    ] {
        let found = RevisedPolicies::from_bytes(malformed.as_bytes());
        assert!(matches!(found, Err(InvalidPolicy::Malformed(_))), "{malformed}: {found:?}");
    }
}

#[test]
fn an_invalid_policy_in_canonical_form_is_refused() {
    let at = |from: &str, to: &str| PRESET.replacen(from, to, 1);
    assert_eq!(RevisedPolicies::from_bytes(at(r#""v":6"#, r#""v":7"#).as_bytes()), Err(InvalidPolicy::Version(7)));
    assert_eq!(RevisedPolicies::from_bytes(br#"{"v":1,"rest":"unknown"}"#), Err(InvalidPolicy::Version(1)));
    for revision in ["0", "-1"] {
        let found = RevisedPolicies::from_bytes(at(r#""revision":7"#, &format!("\"revision\":{revision}")).as_bytes());
        assert_eq!(found, Err(InvalidPolicy::Revision(revision.parse().unwrap())));
    }
    let rule = |id: &str, paths: &str| {
        format!(
            r#"[{{"id":"{id}","on":"effect","tools":[],"programs":[],"arguments":[],"paths":{paths},"changes":[],"flags":[],"decide":"auto","reason":"","match":[],"not_match":[],"cwd":[],"env":[]}}]"#
        )
    };
    let with = |rules: String| RevisedPolicies::from_bytes(at("[]", &rules).as_bytes());
    assert!(with(rule("good", r#"["a"]"#)).is_ok());
    for bad in [rule("", "[]"), rule("granted", "[]"), rule("x", r#"["["]"#), rule("x", r#"["/a"]"#)] {
        let found = with(bad.clone());
        assert!(matches!(&found, Err(InvalidPolicy::Refused(why)) if why.len() == 1), "{bad}: {found:?}");
    }
    let expiry = at(r#""expire_after":null"#, r#""expire_after":0"#);
    assert!(matches!(RevisedPolicies::from_bytes(expiry.as_bytes()), Err(InvalidPolicy::Refused(_))));
    let huge = vec![b' '; 2 << 20];
    assert_eq!(RevisedPolicies::from_bytes(&huge), Err(InvalidPolicy::TooLarge(2 << 20)));
}
