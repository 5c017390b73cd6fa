use proptest::prelude::*;

use serde_json::Value;

use super::*;
use crate::{Class, End, Patterns, Usage, judge};

/// The report of these lines, and what people are shown.
fn read(format: Format, lines: &str) -> (Report, String) {
    let mut reader = Reader::new(format);
    let shown = lines.lines().map(|line| reader.line(line)).collect();
    (reader.finish().0, shown)
}

const CODEX: &str = r#"{"type":"thread.started","thread_id":"01a2"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata for `m` not found."}}
{"type":"turn.started"}
{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'make'","aggregated_output":"","exit_code":null,"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'make'","aggregated_output":"429 permission denied","exit_code":2,"status":"failed"}}
{"type":"item.completed","item":{"id":"item_2","type":"agent_message","text":"I made the file."}}
{"type":"turn.completed","usage":{"input_tokens":200,"cached_input_tokens":80,"cache_write_input_tokens":0,"output_tokens":20,"reasoning_output_tokens":0}}"#;

const CLAUDE: &str = r#"{"type":"system","subtype":"init","cwd":"/w","session_id":"f960","tools":["Bash"],"mcp_servers":[],"model":"m"}
[claude-code:unrecognized_model] {"model":"m","query_source":"sdk"}
{"type":"assistant","message":{"id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"make","description":"make"}}]},"session_id":"f960"}
{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_1","type":"tool_result","content":"permission denied","is_error":true}]},"session_id":"f960"}
{"type":"assistant","message":{"id":"msg_1","role":"assistant","content":[{"type":"text","text":"I made the file."}]},"session_id":"f960"}
{"duration_api_ms":118,"session_id":"f960","total_cost_usd":0.001216,"usage":{"input_tokens":120,"cache_creation_input_tokens":0,"cache_read_input_tokens":80,"output_tokens":20},"is_error":false,"num_turns":2,"subtype":"success","api_error_status":null,"result":"I made the file.","type":"result"}"#;

const GEMINI: &str = r#"{"type":"init","timestamp":"2026-12-01T04:07:12.877Z","session_id":"5082","model":"gemini-2.5-pro"}
{"type":"message","role":"user","content":"make the file\n"}
{"type":"message","role":"assistant","content":"I look.","delta":true}
{"type":"tool_use","tool_name":"run_shell_command","tool_id":"r_0","parameters":{"command":"make"}}
{"type":"tool_result","tool_id":"r_0","status":"success","output":"429"}
{"type":"message","role":"assistant","content":"I made ","delta":true}
{"type":"message","role":"assistant","content":"the file.","delta":true}
{"type":"result","status":"success","stats":{"total_tokens":220,"input_tokens":200,"output_tokens":20,"cached":80,"duration_ms":286,"tool_calls":1}}"#;

const OPENCODE: &str = r#"{"type":"step_start","sessionID":"ses_1","part":{"type":"step-start"}}
{"type":"tool_use","sessionID":"ses_1","part":{"type":"tool","tool":"bash","state":{"status":"completed","input":{"command":"make"},"output":"permission denied"}}}
{"type":"step_finish","sessionID":"ses_1","part":{"reason":"tool-calls","type":"step-finish","tokens":{"total":110,"input":60,"output":10,"reasoning":0,"cache":{"write":0,"read":40}},"cost":0}}
{"type":"step_start","sessionID":"ses_1","part":{"type":"step-start"}}
{"type":"text","sessionID":"ses_1","part":{"type":"text","text":"I made the file."}}
{"type":"step_finish","sessionID":"ses_1","part":{"reason":"stop","type":"step-finish","tokens":{"total":110,"input":60,"output":10,"reasoning":0,"cache":{"write":0,"read":40}},"cost":0}}"#;

/// The lines are those of the programs themselves, shortened.
#[test]
fn each_agent_is_understood() {
    for (format, lines, session) in [
        (Format::Codex, CODEX, "01a2"),
        (Format::Claude, CLAUDE, "f960"),
        (Format::Gemini, GEMINI, "5082"),
        (Format::Opencode, OPENCODE, "ses_1"),
    ] {
        let (report, shown) = read(format, lines);
        assert_eq!(
            (report.end.as_ref(), report.text.as_str()),
            (Some(&End::Success), "I made the file."),
            "{format:?}"
        );
        assert_eq!(report.session, session);
        let Usage { input_tokens, cached_tokens, output_tokens, .. } = report.usage;
        assert_eq!((input_tokens, cached_tokens, output_tokens), (200, 80, 20), "{format:?}");
        assert!(shown.contains("make") && shown.ends_with('\n'), "{shown}");
        // The output of the agent's own tools is not looked at for the class of a failure.
        let mut reader = Reader::new(format);
        lines.lines().for_each(|line| drop(reader.line(line)));
        let (report, others, _) = reader.finish();
        let none = LastLines::default();
        let judged = judge(format, Some(1), &report, [&others, &none], &Patterns::of_agents()).unwrap_err();
        assert_eq!(judged.class, Class::Transient, "{format:?}: {others:?}");
    }
    assert_eq!(read(Format::Claude, CLAUDE).0.usage.cost_micros, Some(1216));
}

/// The failures of the programs themselves: the server of their model answers 429 or 401, or not to the end.
#[test]
fn each_failure_has_its_class() {
    let claude = |status: u16, words: &str| {
        format!(
            r#"{{"type":"system","subtype":"api_retry","attempt":1,"max_retries":1,"retry_delay_ms":7476,"error_status":{status},"error":"x"}}
{{"type":"result","subtype":"success","is_error":true,"api_error_status":{status},"result":"{words}"}}"#
        )
    };
    let codex = |words: &str| format!(r#"{{"type":"turn.failed","error":{{"message":"{words}"}}}}"#);
    let opencode = |status: u16| {
        format!(
            r#"{{"type":"error","sessionID":"s","error":{{"name":"APIError","data":{{"message":"busy","statusCode":{status},"responseHeaders":{{"retry-after":"7"}}}}}}}}"#
        )
    };
    let gemini = r#"{"type":"result","status":"error","error":{"type":"unknown","message":"[API Error: busy]"}}"#;
    let cases = [
        (Format::Claude, claude(429, "Request rejected (429)"), 1, Class::RateLimit, Some(7_476)),
        (Format::Claude, claude(401, "Failed to authenticate"), 1, Class::Fatal, Some(7_476)),
        (Format::Codex, codex("exceeded retry limit, last status: 429 Too Many Requests"), 1, Class::RateLimit, None),
        (Format::Codex, codex("unexpected status 401 Unauthorized: busy"), 1, Class::Fatal, None),
        (Format::Codex, codex("stream disconnected before completion"), 1, Class::Transient, None),
        (Format::Opencode, opencode(429), 1, Class::RateLimit, Some(7_000)),
        (Format::Opencode, opencode(401), 1, Class::Fatal, Some(7_000)),
        (Format::Gemini, gemini.to_owned(), 145, Class::Fatal, None),
        (Format::Gemini, gemini.to_owned(), 173, Class::RateLimit, None),
    ];
    for (format, lines, code, class, wait) in cases {
        let (report, _) = read(format, &lines);
        let none = LastLines::default();
        let failed = judge(format, Some(code), &report, [&none, &none], &Patterns::of_agents()).unwrap_err();
        let millis = failed.retry_after.map(|wait| wait.as_millis());
        assert_eq!((failed.class, millis), (class, wait), "{format:?}: {lines}");
    }
    let rejected = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1796097951}}"#;
    assert_eq!(read(Format::Claude, rejected).0.resets_at, Some(1_796_097_951));
}

/// Agents write an event into the middle of another line, and words beside events.
#[test]
fn an_event_inside_another_line_is_read() {
    let end = r#"{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":2}}"#;
    for line in [
        format!("working... {end}"),
        format!("{end} done"),
        format!(r#"{{"type":"item.started","item":{{}}}}{end}"#),
        format!(r#"{{"a": 1}} {end}"#),
        format!(r#"{{"torn": {end}"#),
        format!("{{\"{end}"),
    ] {
        let mut reader = Reader::new(Format::Codex);
        reader.line(&line);
        assert!(reader.has_ended(), "{line}");
    }
    let mut reader = Reader::new(Format::Codex);
    assert_eq!(reader.line("only words"), "only words\n");
    assert_eq!(reader.line(&"{\"".repeat(10_000)).lines().count(), 9);
    assert!(!reader.has_ended());
    // What a tool has printed is a text within an event, however it looks.
    reader.line(&format!(
        r#"{{"type":"item.completed","item":{{"type":"command_execution","aggregated_output":{}}}}}"#,
        Value::from(end)
    ));
    assert!(!reader.has_ended());
}

/// A program in JavaScript that cuts a text may write half of a character. What its tools have printed is not searched for the reason of a failure, also where an
/// event cannot be read.
#[test]
fn an_event_with_half_of_a_character_is_read() {
    let words = r#"{"type":"result","subtype":"success","is_error":false,"result":"done \ud83d"}"#;
    let (report, _) = read(Format::Claude, words);
    assert_eq!((report.end, report.text.as_str()), (Some(End::Success), "done \u{fffd}"));
    let mut reader = Reader::new(Format::Claude);
    reader.line(r#"{"type":"user","message":{"content":"permission denied \ud83d"}}"#);
    reader.line(r#"{"type":"assistant","message":{"content":"permission denied"}"#);
    reader.line("words");
    let (report, others, _) = reader.finish();
    assert_eq!(others.iter().collect::<Vec<_>>(), ["words"], "{report:?}");
}

/// An agent may write any number.
#[test]
fn numbers_beyond_all_sense_are_no_panic() {
    let most = u64::MAX;
    for (format, line) in [
        (
            Format::Codex,
            format!(
                r#"{{"type":"turn.completed","usage":{{"input_tokens":{most},"cached_input_tokens":{most},"output_tokens":{most}}}}}"#
            ),
        ),
        (
            Format::Claude,
            format!(
                r#"{{"type":"result","total_cost_usd":1e300,"usage":{{"input_tokens":{most},"cache_read_input_tokens":{most}}}}}"#
            ),
        ),
        (
            Format::Opencode,
            format!(
                r#"{{"type":"step_finish","part":{{"reason":"stop","tokens":{{"input":{most},"output":{most},"cache":{{"read":{most},"write":{most}}}}}}}}}"#
            ),
        ),
    ] {
        let (report, _) = read(format, &format!("{line}\n{line}"));
        assert_eq!((report.usage.input_tokens, report.ends), (most, 2), "{format:?}");
    }
}

/// An error that has passed says nothing of an end hours later.
#[test]
fn an_error_that_has_passed_is_forgotten() {
    let retry =
        r#"{"type":"system","subtype":"api_retry","retry_delay_ms":7476,"error_status":429,"error":"rate_limit"}"#;
    let synthetic =
        r#"{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"API Error"}]}}"#;
    let answer = r#"{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"I go on."}]}}"#;
    let (report, _) = read(Format::Claude, &format!("{retry}\n{synthetic}"));
    assert_eq!((report.error.is_some(), report.last_wait.is_some()), (true, true));
    let (report, _) = read(Format::Claude, &format!("{retry}\n{answer}"));
    assert_eq!((report.error, report.last_wait), (None, None));
}

/// Pieces of a message stand on one line, and the next event on another.
#[test]
fn pieces_of_a_message_are_shown_as_one() {
    let (_, shown) = read(Format::Gemini, GEMINI);
    assert_eq!(shown, "I look.\n[run_shell_command] make\nI made the file.\n");
}

/// The names and messages of an agent are bounded.
#[test]
fn names_and_messages_are_cut() {
    let long = "x".repeat(1 << 20);
    let (report, _) = read(
        Format::Codex,
        &format!(
            r#"{{"type":"thread.started","thread_id":"{long}"}}
{{"type":"error","message":"{long}"}}"#
        ),
    );
    assert_eq!((report.session.len(), report.error.unwrap().message.len()), (200, 4096));
    let mut reader = Reader::new(Format::Text);
    reader.long_line(&long);
    let (report, _, shown) = reader.finish();
    assert!(report.is_cut && report.text.len() == 256 << 10 && shown.len() <= 64 << 10);
}

#[test]
fn a_text_keeps_its_end() {
    let mut reader = Reader::new(Format::Text);
    for n in 0..100_000 {
        assert_eq!(reader.line(&format!("line {n}")), format!("line {n}\n"));
    }
    let (report, _, shown) = reader.finish();
    assert!(report.is_cut && report.text.len() <= 256 << 10 && report.text.ends_with("line 99999\n"));
    assert!(report.end.is_none());
    assert!(shown.len() <= 64 << 10 && shown.ends_with("line 99999\n"));
}

proptest! {
    /// No output of any agent makes a reader fail, whatever it is.
    #[test]
    fn any_output_is_read(pieces in prop::collection::vec(prop_oneof![
        Just("{\"type\":\"result\"".to_owned()), Just("{\"type\":\"error\",\"error\":1}".to_owned()), Just("{\"".to_owned()), Just("}".to_owned()),
        Just("\n".to_owned()), Just("{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":18446744073709551615}}".to_owned()), Just("\"item\":{\"type\":\"agent_message\",\"text\":3}".to_owned()), any::<String>(),
    ], 0..40)) {
        for (_, format) in Format::WORDS {
            let text = pieces.concat();
            let (report, _) = read(format, &text);
            prop_assert!(report.text.len() <= 256 << 10);
            let _ = judge(format, Some(1), &report, [&LastLines::from(text.as_str()), &LastLines::default()], &Patterns::of_agents());
        }
    }
}
