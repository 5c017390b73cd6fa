//! Invalid policies: all violations are reported at once, by field and line.

use belay_policy::{Policies, Violation};

use crate::support::policy;

/// The violations of a text, as `line field: message`.
fn violations(text: &str) -> Vec<String> {
    let violations = Policies::from_yaml(text).expect_err(text);
    violations.iter().map(|Violation { field, line, message }| format!("{line} {field}: {message}")).collect()
}

/// The only violation of a text.
fn one(text: &str) -> String {
    let said = violations(text);
    assert_eq!(said.len(), 1, "{text}\n{said:#?}");
    said.into_iter().next().unwrap()
}

/// A rule on its own line, the third of the text.
fn rule(fields: &str) -> String {
    format!("protect: true\nrules:\n  - {{{fields}}}\n")
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    for (text, expected) in [
        ("file_writes: auto", "1 file_writes: there is no key `file_writes` here; did you mean `file_write`?"),
        (
            "\n\nterminal_comands: auto",
            "3 terminal_comands: there is no key `terminal_comands` here; did you mean `terminal_commands`?",
        ),
        ("sandbox: {mintier: A}", "1 sandbox.mintier: there is no key `mintier` here; did you mean `min_tier`?"),
        (
            "approvals:\n  expires: 1h",
            "2 approvals.expires: there is no key `expires` here; use one of expire_after, separate_duties",
        ),
        (
            "colour: red",
            "1 colour: there is no key `colour` here; use one of preset, file_write, file_delete, terminal_commands, network, allowed_commands, non_interactive_policy, sandbox, approvals, protect, rules, namespaces",
        ),
    ] {
        assert_eq!(one(text), expected);
    }
    assert_eq!(
        one(&rule("id: a, on: intent, decide: deny, toolz: [x]")),
        "3 rules[0].toolz: there is no key `toolz` here; did you mean `tools`?"
    );
    assert_eq!(
        one(&rule("id: a, on: intent, decide: deny, match: [{commnd: x}]")).split(';').next_back().unwrap(),
        " did you mean `command`?"
    );
}

/// With separate duties, a policy cannot say that who starts an execution approves what it does; also not in a section that adds one of the two.
#[test]
fn separate_duties_and_approval_in_advance_exclude_each_other() {
    let why = "does not go with `non_interactive_policy: auto`, by which who starts an execution approves what it does: write `fail` or `skip` there, or \
               `separate_duties: false`";
    let both = "non_interactive_policy: auto\napprovals: {separate_duties: true}";
    assert!(one(both).ends_with(&format!("approvals.separate_duties: {why}")), "{}", one(both));
    let section = "non_interactive_policy: auto\nnamespaces: {infra: {approvals: {separate_duties: true}}}";
    assert!(one(section).contains("namespaces.infra.approvals.separate_duties: "), "{}", one(section));
    for fits in ["non_interactive_policy: skip\napprovals: {separate_duties: true}", "non_interactive_policy: auto"] {
        assert!(Policies::from_yaml(fits).is_ok(), "{fits}");
    }
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_the_expected_kind() {
    for (text, expected) in [
        ("file_write: maybe", "1 file_write: must be one of auto, prompt, deny"),
        ("file_write: promt", "1 file_write: must be one of auto, prompt, deny; did you mean `prompt`?"),
        ("file_write: Auto", "1 file_write: must be one of auto, prompt, deny; did you mean `auto`?"),
        ("file_write: preview", "1 file_write: must be one of auto, prompt, deny"),
        ("file_write:", "1 file_write: must be one of auto, prompt, deny"),
        ("file_write: [auto]", "1 file_write: must be one of auto, prompt, deny"),
        ("non_interactive_policy: deny", "1 non_interactive_policy: must be one of auto, skip, fail"),
        ("protect: yes", "1 protect: is text, and must be true or false"),
        ("protect: 1", "1 protect: is a number, and must be true or false"),
        ("sandbox: A", "1 sandbox: is text, and must be a mapping: `key: value`"),
        ("sandbox: {min_tier: D}", "1 sandbox.min_tier: must be one of A, B, C"),
        ("rules: {id: a}", "1 rules: is a mapping, and must be a list: write `[…]`"),
        ("rules:", "1 rules: is empty, and must be a list: write `[…]`"),
        ("rules: [deny]", "1 rules[0]: is text, and must be a rule: `{id: …, on: …, decide: …}`"),
        ("- file_write: auto", "1 : is a list, and must be a mapping: `key: value`"),
    ] {
        assert_eq!(one(text), expected, "{text}");
    }
    for time in [
        "24",
        "0.5h",
        "h",
        "-1h",
        "1 h",
        "1h30m",
        "1w",
        "1H",
        "''",
        "~",
        "99999999999999999999s",
        "9999999999999999999d",
        "１h",
    ] {
        let text = format!("approvals: {{expire_after: {time}}}");
        assert_eq!(
            one(&text),
            "1 approvals.expire_after: must be a whole number with a unit: 90s, 15m, 24h or 7d",
            "{time}"
        );
    }
    for time in ["0s", "0d", "366d", "31536001s"] {
        let text = format!("approvals: {{expire_after: {time}}}");
        assert_eq!(
            one(&text),
            "1 approvals.expire_after: must be between 1s and 365d; leave it out for never",
            "{time}"
        );
    }
}

#[test]
fn times_are_read_exactly() {
    for (time, seconds) in
        [("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("1s", 1), ("365d", 31_536_000)]
    {
        let policy = policy(&format!("approvals: {{expire_after: {time}}}"));
        assert_eq!(policy.approvals_expire_after(), Some(std::time::Duration::from_secs(seconds)), "{time}");
    }
}

#[test]
fn rules_that_make_no_sense_are_refused() {
    let good = "id: a, on: intent, decide: deny";
    for (fields, expected) in [
        ("on: intent, decide: deny".to_owned(), "3 rules[0]: has no `id`"),
        ("id: a, decide: deny".to_owned(), "3 rules[0]: has no `on`"),
        ("id: a, on: intent".to_owned(), "3 rules[0]: has no `decide`"),
        (
            "id: 7, on: intent, decide: deny".to_owned(),
            "3 rules[0].id: is a number, and must be text: put it in quotes",
        ),
        (
            "id: '', on: intent, decide: deny".to_owned(),
            "3 rules[0].id: must be 1 to 64 letters, digits, `-`, `_`, `.`",
        ),
        (
            "id: a b, on: intent, decide: deny".to_owned(),
            "3 rules[0].id: must be 1 to 64 letters, digits, `-`, `_`, `.`",
        ),
        (
            "id: protected, on: intent, decide: deny".to_owned(),
            "3 rules[0].id: `protected` is the id of a built-in rule: choose another",
        ),
        (
            "id: file_write, on: intent, decide: deny".to_owned(),
            "3 rules[0].id: `file_write` is the id of a built-in rule: choose another",
        ),
        (
            "id: a, on: intend, decide: deny".to_owned(),
            "3 rules[0].on: must be one of intent, effect; did you mean `intent`?",
        ),
        (
            "id: a, on: intent, decide: allow".to_owned(),
            "3 rules[0].decide: must be one of auto, preview, prompt, deny",
        ),
        (
            "id: a, on: effect, decide: preview".to_owned(),
            "3 rules[0].decide: an effect has been previewed already: write auto, prompt or deny",
        ),
        (
            "id: a, on: effect, decide: deny, programs: [git]".to_owned(),
            "3 rules[0].programs: belongs to rules `on: intent`: an effect is judged by its paths, changes and flags",
        ),
        (
            "id: a, on: effect, decide: deny, arguments: [push]".to_owned(),
            "3 rules[0].arguments: belongs to rules `on: intent`: an effect is judged by its paths, changes and flags",
        ),
        (
            format!("{good}, changes: [delete]"),
            "3 rules[0].changes: belongs to rules `on: effect`: they are not known before the call has run",
        ),
        (
            format!("{good}, flags: [executable]"),
            "3 rules[0].flags: belongs to rules `on: effect`: they are not known before the call has run",
        ),
        (format!("{good}, tools: run_terminal"), "3 rules[0].tools: is text, and must be a list: write `[…]`"),
        (format!("{good}, tools: [7]"), "3 rules[0].tools[0]: is a number, and must be text: put it in quotes"),
        (format!("{good}, paths: []"), "3 rules[0].paths: is empty: leave it out where there is no condition"),
        (format!("{good}, tools: ['']"), "3 rules[0].tools[0]: must be 1 to 256 bytes"),
        (
            format!("{good}, paths: [a, /etc/*]"),
            "3 rules[0].paths[1]: paths are relative to the workspace and have no `.`, `..` or empty names: write `etc/*`",
        ),
        (
            format!("{good}, paths: [deploy/]"),
            "3 rules[0].paths[0]: paths are relative to the workspace and have no `.`, `..` or empty names: write `deploy`",
        ),
        (
            format!("{good}, paths: [./a/../b]"),
            "3 rules[0].paths[0]: paths are relative to the workspace and have no `.`, `..` or empty names: write `b`",
        ),
        (
            format!("{good}, paths: [src**]"),
            "3 rules[0].paths[0]: `**` stands for folders and must be alone between slashes, as in `src/**/x`",
        ),
        (
            format!("{good}, paths: ['a[']"),
            "3 rules[0].paths[0]: is not a valid glob: unclosed character class; missing ']'",
        ),
        (
            format!("{good}, arguments: ['{{a']"),
            "3 rules[0].arguments[0]: is not a valid glob: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
        ),
        (
            format!("{good}, programs: [/bin/sh]"),
            "3 rules[0].programs[0]: programs are compared by name, without a folder: write `sh`",
        ),
        (
            "id: a, on: effect, decide: deny, flags: [exec]".to_owned(),
            "3 rules[0].flags[0]: `exec` is not a flag; use one of protected, link_leaves, set_id_stripped, odd_name, hidden_name, case_collision, bare_repository, named_by_config, executable, made_writable",
        ),
        (
            "id: a, on: effect, decide: deny, changes: [create, remove]".to_owned(),
            "3 rules[0].changes[1]: must be one of create, modify, delete",
        ),
        (
            format!("{good}, reason: \"a\\nb\""),
            "3 rules[0].reason: must be one line of at most 500 characters, all of them visible",
        ),
    ] {
        assert_eq!(one(&rule(&fields)), expected, "{fields}");
    }
    assert_eq!(
        one(
            "rules:\n  - {id: a, on: intent, decide: deny}\n  - {id: b, on: intent, decide: deny}\n  - id: a\n    on: effect\n    decide: deny\n"
        ),
        "4 rules[2].id: `a` is already the id of an earlier rule: choose another"
    );
}

/// A rule that does not do what its author thinks never becomes active.
#[test]
fn an_example_that_fails_refuses_the_policy_and_names_the_rule() {
    let misses = "the rule `r` does not match this example: correct the rule or the example";
    let hits = "the rule `r` matches this example, and should not: correct the rule or the example";
    for (conditions, examples, field, why) in [
        ("programs: [curl]", "match: [curl x, wget x]", "match[1]", misses),
        ("programs: [curl]", "not_match: [wget x, /bin/curl x]", "not_match[1]", hits),
        ("arguments: [push]", "match: [git push, git pull]", "match[1]", misses),
        ("programs: [git], arguments: [push]", "match: [{command: [git, pull]}]", "match[0]", misses),
        ("paths: ['deploy/**']", "match: [deploy/a, deployed]", "match[1]", misses),
        ("paths: ['deploy/**']", "not_match: [src, ./deploy/a]", "not_match[1]", hits),
        ("tools: [read_file]", "match: [read_file, read_files]", "match[1]", misses),
        ("tools: [t], paths: [a]", "match: [{tool: t, path: a}, {tool: t, path: b}]", "match[1]", misses),
        ("tools: [t], paths: [a]", "match: [{path: a}, {tool: u, path: a}]", "match[1]", misses),
        (
            "tools: [t]",
            "match: [t, {}]",
            "match[1]",
            "is empty: give it a tool, command, path, change, flags, cwd, env, network, hosts or credentials",
        ),
    ] {
        let text = format!(
            "rules:\n- id: r\n  on: intent\n  decide: deny\n  {}\n  {examples}\n",
            conditions.replace(", ", "\n  ")
        );
        let line = text.lines().count();
        assert_eq!(one(&text), format!("{line} rules[0].{field}: {why}"), "{text}");
    }
    for (examples, good) in [
        ("match: [{path: a, change: delete}]", true),
        ("match: [{path: a, change: create}]", false),
        ("not_match: [{change: modify}]", true),
        ("match: [{flags: [executable, odd_name]}]", true),
        ("match: [{flags: [odd_name]}]", false),
        ("match: [{flags: []}]", false),
    ] {
        let text = rule(&format!(
            "id: r, on: effect, decide: deny, paths: [a], changes: [delete], flags: [executable], {examples}"
        ));
        assert_eq!(Policies::from_yaml(&text).is_ok(), good, "{examples}");
    }
}

#[test]
fn all_violations_are_reported_in_the_order_of_the_lines() {
    let text = "
rules:
  - id: a
    on: intent
    decide: perhaps
    paths: a
  - on: effect
  -
    on: effect
    decide: nope
protect: no
file_rite: auto
";
    assert_eq!(
        violations(text),
        [
            "5 rules[0].decide: must be one of auto, preview, prompt, deny",
            "6 rules[0].paths: is text, and must be a list: write `[…]`",
            "7 rules[1]: has no `id`",
            "7 rules[1]: has no `decide`",
            "9 rules[2]: has no `id`",
            "10 rules[2].decide: must be one of auto, preview, prompt, deny",
            "11 protect: is text, and must be true or false",
            "12 file_rite: there is no key `file_rite` here; did you mean `file_write`?",
        ]
    );
    let many: String = (0..500).map(|n| format!("x{n}: 1\n")).collect();
    assert_eq!(violations(&many).len(), 100);
    let violation = Violation { field: "a".into(), line: 3, message: "is wrong".into() };
    assert_eq!(violation.to_string(), "line 3: a: is wrong");
}

#[test]
fn an_empty_policy_is_refused() {
    for text in ["", "\n", "# nothing\n", "~", "---\n", "null"] {
        assert!(one(text).contains("the policy is empty: write at least one key"), "{text:?}");
    }
}

#[test]
fn invalid_yaml_is_refused_with_its_line() {
    for (text, line) in [
        ("a: b: c", 1),
        ("file_write: auto\n  x: [", 2),
        ("file_write: auto\nfile_write: deny", 2),
        ("file_write: !secret auto", 1),
        ("file_write: *nowhere", 1),
        ("a: 'x", 1),
    ] {
        let said = one(text);
        assert!(said.starts_with(&format!("{line} : invalid YAML: ")), "{text}: {said}");
    }
    assert!(one("file_write: auto\nfile_write: deny").contains("file_write"));
    let two = one("file_write: auto\n---\nfile_write: deny\n");
    assert!(two.contains("invalid YAML"), "{two}");
}

#[test]
fn a_policy_beyond_its_limits_is_refused() {
    assert_eq!(
        one(&format!("# {}", "x".repeat(256 * 1024))),
        "0 : the policy has 262146 bytes, and the limit is 262144: shorten it"
    );
    let rules = |number: usize, rest: &str| {
        (0..number)
            .fold("rules:\n".to_owned(), |text, n| text + &format!("- {{id: r{n}, on: effect, decide: deny{rest}}}\n"))
    };
    assert!(Policies::from_yaml(&rules(1_000, "")).is_ok());
    assert_eq!(one(&rules(1_001, "")), "1 rules: there are 1001 rules and the limit is 1000: combine or remove some");
    let globs = vec!["a*"; 100].join(",");
    assert!(one(&rules(21, &format!(", paths: [{globs}]"))).contains("2100 globs in all rules and the limit is 2000"));
    let examples = vec!["x"; 100].join(",");
    assert!(
        one(&rules(51, &format!(", tools: [x], match: [{examples}]")))
            .contains("5100 examples in all rules and the limit is 5000")
    );
    let words = vec!["x"; 501].join(",");
    assert_eq!(
        one(&rule(&format!("id: r, on: effect, decide: deny, tools: [{words}]"))),
        "3 rules[0].tools: has 501 entries and the limit is 500"
    );
    let long = "x".repeat(257);
    assert_eq!(
        one(&rule(&format!("id: r, on: effect, decide: deny, paths: [{long}]"))),
        "3 rules[0].paths[0]: must be 1 to 256 bytes"
    );
    let stars = "a*".repeat(11);
    assert!(one(&rule(&format!("id: r, on: effect, decide: deny, paths: ['{stars}']"))).contains("more than 10 stars"));
    let reason = "é".repeat(501);
    assert!(one(&rule(&format!("id: r, on: effect, decide: deny, reason: {reason}"))).contains("500 characters"));
}

/// Every accepted policy can be signed, and every signed one parsed.
#[test]
fn a_policy_that_grows_when_it_is_signed_is_refused() {
    // Six bytes each as JSON, and repeated by every rule.
    let names = vec![format!("\"{}\"", "\\x01".repeat(250)); 60].join(",");
    let text = (1..12)
        .fold(format!("rules:\n- {{id: r0, on: effect, decide: deny, tools: &t [{names}]}}\n"), |text, n| {
            text + &format!("- {{id: r{n}, on: effect, decide: deny, tools: *t}}\n")
        });
    let said = one(&text);
    assert!(
        said.starts_with("0 : the policy has 10")
            && said.ends_with("in its signed form and the limit is 1048576: shorten it"),
        "{said}"
    );
}

/// A few bytes must not expand to gigabytes or overflow the stack.
#[test]
fn alias_bombs_and_deep_nesting_are_refused() {
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h", "i"].into_iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"])
    {
        laughs += &format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(", "));
    }
    assert!(one(&laughs).contains("nested deeper than 8 levels, or has too many values"), "{laughs}");
    let deep = |levels| format!("rules: {}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(one(&deep(20)).contains("nested deeper than 8 levels"));
    assert!(!violations(&deep(100_000)).is_empty());
    let flow = format!("rules: {}", "{a: ".repeat(60_000));
    assert!(!violations(&flow).is_empty());
}

#[test]
fn quoted_text_is_bounded_and_escaped() {
    let key = "\\u202e\\n".repeat(10_000);
    for text in [format!("\"{key}\": 1"), format!("rules: [{{id: \"{key}\", on: effect, decide: deny}}]")] {
        for violation in Policies::from_yaml(&text).unwrap_err() {
            let shown = violation.to_string();
            assert!(shown.chars().count() < 5_000 && !shown.contains(['\n', '\u{202e}']), "{shown}");
        }
    }
}

#[test]
fn yaml_as_people_write_it_is_read() {
    let plain = Policies::from_yaml("file_write: prompt\nprotect: false\n").unwrap();
    for text in [
        "\u{feff}file_write: prompt\nprotect: false\n",
        "file_write: prompt\r\nprotect: false\r\n",
        "---\n# comment\nfile_write: \"prompt\"   # more\nprotect: False\n...\n",
        r#"{"file_write": "prompt", "protect": false}"#,
    ] {
        assert_eq!(Policies::from_yaml(text).as_ref(), Ok(&plain), "{text:?}");
    }
    let anchors = "rules:\n- {id: a, on: effect, decide: deny, paths: &p [x, y]}\n- {id: b, on: effect, decide: prompt, paths: *p}\n";
    assert!(Policies::from_yaml(anchors).is_ok());
}
