//! The simple settings: S2-X-18.

use crate::support::*;

const WORDS: [&str; 3] = ["auto", "prompt", "deny"];

// S2-X-18: `prompt` runs the call in a view and requires approval for its changes; `deny` never runs it.
#[test]
fn a_setting_decides_about_the_calls_of_its_tools() {
    for (setting, kind) in [("file_write", FileWrite), ("file_delete", FileDelete), ("terminal_commands", Terminal)] {
        for (word, verdict) in WORDS.into_iter().zip([Auto, Preview, Deny]) {
            // The other settings are auto: a command's call is auto only if every setting is.
            let settings = ["file_write", "file_delete", "terminal_commands"];
            let settings = settings.map(|name| format!("{name}: {}", if name == setting { word } else { "auto" }));
            let policy = policy(&settings.join("\n"));
            assert_eq!(brief(&intent(&policy, kind, "make", &["a"])), (verdict, setting), "{setting}: {word}");
            assert_eq!(intent(&policy, FileRead, "", &["a"]).verdict, Auto, "{setting}: {word}");
        }
    }
}

// S2-FR-050, S2-FR-051, S2-X-18, S2-X-19: of the tool's setting and the change's, the stricter one counts.
#[test]
fn a_change_by_a_command_takes_the_stricter_of_two_settings() {
    for (command_word, by_command) in WORDS.into_iter().zip([Auto, Prompt, Deny]) {
        for (change_word, by_change) in WORDS.into_iter().zip([Auto, Prompt, Deny]) {
            for (setting, change) in [("file_write", Created), ("file_write", Modified), ("file_delete", Deleted)] {
                let other = if setting == "file_write" { "file_delete" } else { "file_write" };
                let policy =
                    policy(&format!("{{terminal_commands: {command_word}, {setting}: {change_word}, {other}: auto}}"));
                assert_eq!(
                    outcome(&policy, Terminal, "make", &[("a", change, &[])]),
                    by_command.max(by_change),
                    "commands {command_word}, {setting} {change_word}"
                );
            }
        }
    }
}

// S2-X-18: `deny` forbids the change, whatever made it.
#[test]
fn a_denied_change_is_denied_to_every_tool() {
    let policy = policy("{file_write: deny, file_delete: deny}");
    for kind in [Other, FileRead, Terminal] {
        for said in [Auto, Preview, Prompt] {
            assert_eq!(
                brief(&effect(&policy, kind, said, &[("a", Modified, &[])])),
                (Deny, "file_write"),
                "{kind:?} {said:?}"
            );
            assert_eq!(
                brief(&effect(&policy, kind, said, &[("a", Deleted, &[])])),
                (Deny, "file_delete"),
                "{kind:?} {said:?}"
            );
        }
    }
    for said in [Auto, Preview, Prompt] {
        assert_eq!(effect(&policy, FileDelete, said, &[("a", Created, &[])]).verdict, Deny);
        assert_eq!(effect(&policy, FileWrite, said, &[("a", Deleted, &[])]).verdict, Deny);
    }
    for said in [Preview, Prompt] {
        assert_eq!(effect(&policy, FileWrite, said, &[("a", Created, &[])]).verdict, Deny);
    }
}

// S2-X-19: what is deleted is asked about, also when a tool that writes deletes it.
#[test]
fn an_auto_call_may_do_what_its_tool_is_for() {
    let prompt = policy("{file_write: prompt, file_delete: prompt}");
    // Only a rule can have said auto here.
    assert_eq!(brief(&effect(&prompt, FileWrite, Auto, &[("a", Modified, &[])])), (Auto, "intent"));
    assert_eq!(brief(&effect(&prompt, FileDelete, Auto, &[("a", Deleted, &[])])), (Auto, "intent"));
    assert_eq!(brief(&effect(&prompt, Terminal, Auto, &[("a", Modified, &[])])), (Auto, "intent"));
    assert_eq!(brief(&effect(&prompt, Terminal, Auto, &[("a", Deleted, &[])])), (Prompt, "file_delete"));
    assert_eq!(brief(&effect(&prompt, Other, Auto, &[("a", Created, &[])])), (Auto, "intent"));
    // Here a setting may have, and it spoke of writing.
    let preset = preset();
    assert_eq!(
        brief(&effect(&preset, FileWrite, Auto, &[("a", Created, &[]), ("b", Deleted, &[])])),
        (Prompt, "file_delete")
    );
    assert_eq!(brief(&effect(&preset, FileDelete, Auto, &[("a", Deleted, &[])])), (Auto, "intent"));
}

#[test]
fn tools_without_a_setting_require_approval() {
    let open = policy("{file_write: auto, file_delete: auto, terminal_commands: auto}");
    assert_eq!(brief(&intent(&open, Other, "", &["a"])), (Prompt, "no_match"));
    assert_eq!(brief(&effect(&open, Other, Prompt, &[("a", Created, &[])])), (Prompt, "no_match"));
    assert_eq!(brief(&effect(&open, FileRead, Auto, &[("a", Created, &[])])), (Prompt, "file_read"));
    assert_eq!(outcome(&open, Terminal, "make", &[("a", Deleted, &[])]), Auto);
}

// A person who approved a call approved its paths, and no others.
#[test]
fn a_granted_path_is_allowed_unless_a_rule_denies_it() {
    let strict = policy("{file_write: prompt, file_delete: prompt}");
    let one = |path| granted(&strict, Terminal, Prompt, &["src/a", "./out//b", "x/../c"], &[(path, Deleted, &[])]);
    for path in ["src/a", "out/b", "c"] {
        assert_eq!(brief(&one(path)), (Auto, "granted"), "{path}");
    }
    for path in ["src/a/b", "src", "src/A", "x", "a"] {
        assert_eq!(one(path).verdict, Prompt, "{path}");
    }
    let two = granted(&strict, Terminal, Prompt, &["a"], &[("a", Created, &[]), ("b", Created, &[])]);
    assert_eq!(brief(&two), (Prompt, "terminal_commands"));
    assert!(two.reason.contains("`b`"), "{two:?}");

    let denied =
        ruled(&["{id: no, on: effect, paths: [a], decide: deny}", "{id: ask, on: effect, paths: [b], decide: prompt}"]);
    assert_eq!(brief(&granted(&denied, FileWrite, Prompt, &["a", "b"], &[("a", Created, &[])])), (Deny, "no"));
    assert_eq!(brief(&granted(&denied, FileWrite, Prompt, &["a", "b"], &[("b", Created, &[])])), (Auto, "granted"));
}
