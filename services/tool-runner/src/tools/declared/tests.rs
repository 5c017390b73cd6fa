use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{Enforcement, Recovery, Registry, Touches};

/// The only tool of a settings file.
fn declared(settings: &str) -> DeclaredTool {
    let settings = belay_settings::File::parse(settings, None).unwrap_or_else(|wrong| panic!("{wrong:?}"));
    let terminal = RunTerminal::new(&Enforcement::unavailable("no commands here"));
    DeclaredTool::new(&settings.tools[0].value, terminal)
}

fn words(tool: &DeclaredTool, arguments: Value) -> Vec<String> {
    let command = tool.0.command(&arguments).unwrap();
    command["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

const GENERATE: &str = "
tools:
  generate:
    command: [gen, --topic, '${topic}', [--tone, '${tone}'], '--size=${size}', ['${list}', '${flag}'], ['@${file}']]
    env: {MODE: fast}
    cwd: src
    timeout: 5m
    parameters:
      required: [topic]
      properties:
        topic: {type: string}
        tone: {type: string}
        size: {type: integer, default: 3}
        list: {}
        flag: {type: boolean}
        file: {type: string, format: workspace-path}
";

#[test]
fn arguments_become_words() {
    let tool = declared(GENERATE);
    assert_eq!(words(&tool, json!({"topic": "a b; $x"})), ["gen", "--topic", "a b; $x", "--size=3"]);
    let all = json!({"topic": "", "tone": "dry", "size": 12, "list": [1, {"a": null}], "flag": false});
    assert_eq!(words(&tool, all), ["gen", "--topic", "", "--tone", "dry", "--size=12", r#"[1,{"a":null}]"#, "false"]);
    assert_eq!(words(&tool, json!({"topic": "t", "list": 1})).len(), 4, "both of a list, or neither");
    for path in ["a/b", "./x/../a/b", "/workspace/a/b"] {
        assert_eq!(words(&tool, json!({"topic": "t", "file": path}))[4], "@/workspace/a/b");
    }
    // The name as it is: what is shown of it is another one.
    for name in ["a\u{200d}b.txt", "\u{202e}x", "tab\t", "new\nline", r"new\nline", "."] {
        let word = &words(&tool, json!({"topic": "t", "file": name}))[4];
        assert_eq!(word, &format!("@/workspace/{name}"));
    }
    let refused = tool.0.command(&json!({"topic": "t", "file": "hex:ff"})).unwrap_err();
    assert!(refused.message.contains("arguments/file: is not UTF-8"), "{refused:?}");
    let refused = tool.0.command(&json!({"topic": "t", "file": "../a"})).unwrap_err();
    assert!(refused.reason == "OUTSIDE_WORKSPACE" && refused.message.contains("../a"), "{refused:?}");
    let command = tool.0.command(&json!({"topic": "t"})).unwrap();
    assert_eq!((&command["cwd"], &command["env"]), (&json!("src"), &json!({"MODE": "fast"})));
    let spec = tool.spec();
    assert_eq!((spec.default_timeout, spec.kind), (Duration::from_secs(300), ToolKind::Terminal));
}

/// The policy judges the command that runs, and the paths that the arguments name.
#[test]
fn the_policy_sees_the_command_and_the_paths() {
    let tool = declared(GENERATE);
    let intent = tool.intent(&json!({"topic": "t", "file": "a/b"}));
    assert_eq!(intent.command, ["gen", "--topic", "t", "--size=3", "@/workspace/a/b"]);
    assert_eq!((intent.program.as_deref(), intent.working_directory.as_str()), (Some("gen"), "src"));
    assert_eq!((intent.environment, intent.paths), (vec!["MODE".to_owned()], vec!["a/b".to_owned()]));
    let intent = tool.intent(&json!({"topic": "t", "file": "secrets/hex:ff2e656e76"}));
    assert_eq!(intent.paths, [r"secrets/\xff.env"], "a rule about names sees the name");
    let intent = tool.intent(&json!({"topic": "t", "file": "a\u{200d}b/hex:433a/hex:ff"}));
    assert_eq!(intent.paths, ["a\u{200d}b/C:/\\xff"], "and no other form of it");
}

#[test]
fn what_no_program_can_take_is_refused_by_name() {
    let tool = declared(GENERATE);
    let longest = "x".repeat(MAX_WORD_BYTES);
    assert_eq!(words(&tool, json!({"topic": longest}))[2], longest);
    let refused = tool.0.command(&json!({"topic": format!("{longest}x")})).unwrap_err();
    assert!(refused.reason == "TOO_LARGE" && refused.message.contains("arguments/topic"), "{refused:?}");
    let refused = tool.0.command(&json!({"topic": "t", "tone": "a\0b"})).unwrap_err();
    assert!(refused.reason == "INVALID_ARGUMENTS" && refused.message.contains("arguments/tone"), "{refused:?}");
}

#[test]
fn what_it_prints_is_its_result() {
    let ended = |stdout: &str, truncated: bool| json!({"exit_code": 0, "stdout": stdout, "stderr": "log", "stdout_bytes": 9, "stderr_bytes": 3, "truncated": truncated});
    let with = |output: &str| declared(&format!("tools: {{t: {{command: [t], output: {output}}}}}"));
    let json = with("json");
    assert_eq!(json.0.result(ended(" {\"a\": 1}\n", false)).unwrap(), json!({"a": 1}));
    assert_eq!(json.0.result(ended("null", false)).unwrap(), Value::Null);
    for (stdout, truncated) in [("", false), ("{} {}", false), ("done", false), ("1", true)] {
        let refused = json.0.result(ended(stdout, truncated)).unwrap_err();
        assert_eq!((refused.class, refused.reason.as_str()), (ErrorClass::InvalidResult, "INVALID_RESULT"), "{stdout}");
        assert!(refused.message.contains("`t`"), "{refused:?}");
    }
    for (stdout, says) in [
        ("{\"a\": 1, \"a\": 2}", "/a: is given twice"),
        ("{\"n\": 123456789012345678901234567890}", "/n: is a whole number beyond 64 bits"),
        ("[0.10000000000000001]", "/0: is a number whose digits would be lost"),
    ] {
        let refused = json.0.result(ended(stdout, false)).unwrap_err();
        assert!(refused.reason == "INVALID_RESULT" && refused.message.contains(says), "{refused:?}");
    }
    assert_eq!(json.0.result(ended("\u{feff}1", false)).unwrap(), json!(1));
    let text = with("text");
    for tool in [&json, &text] {
        let lossy = json!({"exit_code": 0, "stdout": "\"\u{fffd}\"", "truncated": false, "stdout_lossy": true});
        let refused = tool.0.result(lossy).unwrap_err();
        assert!(refused.reason == "INVALID_RESULT" && refused.message.contains("not UTF-8"), "{refused:?}");
    }
    assert_eq!(text.0.result(ended("a\nb\n\n", false)).unwrap(), json!("a\nb\n"));
    assert_eq!(text.0.result(ended("x", true)).unwrap_err().reason, "INVALID_RESULT");
    let command = with("command");
    assert_eq!(command.0.result(ended("x", true)).unwrap(), ended("x", true));
}

/// Every default makes a tool that can be registered, and one with a schema of its result returns JSON.
#[test]
fn a_declared_tool_is_offered_like_any_other() {
    for (output, result) in [("json", "true"), ("text", r#"{"type": "string"}"#)] {
        let tool = declared(&format!("tools: {{t: {{command: [t], aliases: [u], output: {output}}}}}"));
        assert_eq!(tool.spec().result, result);
        let registry = Registry::new([Box::new(tool) as Box<dyn Tool>]).unwrap();
        let offered: Vec<_> = registry.tools().collect();
        assert_eq!((offered[0].name.as_str(), offered[0].aliases.as_slice()), ("t", &["u".to_owned()][..]));
        let unknown = registry.refusal("u", &json!({"x": 1})).unwrap();
        assert!(unknown.contains('x'), "{unknown}");
    }
    let tool = declared("tools: {t: {command: [t], result: {type: object}}}");
    assert_eq!(tool.0.result(json!({"stdout": "{}", "truncated": false})).unwrap(), json!({}));
    let tool = declared("tools: {t: {command: [t], recovery: read_only}}");
    assert_eq!((tool.spec().recovery, tool.spec().touches), (Recovery::ReadOnly, Touches::Reads));
}

#[test]
fn a_program_that_is_not_there_is_named_when_the_plan_is_checked() {
    let tool = declared("tools: {t: {command: [no-such-program-here]}}");
    let problems = tool.check_planned(&json!({}));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].message.contains("`t`") && problems[0].message.contains("no-such-program-here"));
    assert!(problems[0].pointer.is_empty() && !problems[0].refused);
}

const RATE: &str = "
tools:
  rate:
    command: [rate, '${post}']
    parameters: {required: [post], properties: {post: {type: string}, most: {type: integer, default: 5}}}
    result: {type: object}
    preconditions: ['size(arguments.post) > 0 && arguments.most < 10', 'context.environment != \"production\" || arguments.most == 5']
    postconditions: ['output.score <= arguments.most']
";

/// S4-20: the preconditions of a skill are checked before its execution with its arguments and the context, its postconditions after it with its output.
#[tokio::test]
async fn what_has_to_hold_is_checked_before_and_after_the_program() {
    let tool = declared(RATE);
    let check = async |arguments: Value, context: Option<&str>, output: Option<Value>| {
        let checked = tool.0.check(&arguments, context, output.as_ref()).await;
        checked.map_err(|failure| (failure.class, failure.message))
    };
    let (staging, production) = (Some(r#"{"environment": "staging"}"#), Some(r#"{"environment": "production"}"#));
    assert_eq!(check(json!({"post": "p"}), staging, None).await, Ok(()));
    assert_eq!(check(json!({"post": "p", "most": 9}), staging, None).await, Ok(()));
    let refused = |why: &str| {
        let message = format!("A precondition of the tool `rate` does not hold: {why}.");
        Err((ErrorClass::PreconditionFailed, message))
    };
    let first = "`size(arguments.post) > 0 && arguments.most < 10`";
    assert_eq!(check(json!({"post": ""}), staging, None).await, refused(first));
    let second = r#"`context.environment != "production" || arguments.most == 5`"#;
    assert_eq!(check(json!({"post": "p", "most": 9}), production, None).await, refused(second));
    // The default of an argument that is not given counts, and a context that is missing only where it is needed.
    assert_eq!(check(json!({"post": "p"}), None, None).await, Ok(()));
    let missing = format!("{second}, which has no value: the plan has no context");
    assert_eq!(check(json!({"post": "p", "most": 9}), None, None).await, refused(&missing));

    assert_eq!(check(json!({"post": "p"}), None, Some(json!({"score": 5}))).await, Ok(()));
    let (class, message) = check(json!({"post": "p"}), None, Some(json!({"score": 6}))).await.unwrap_err();
    assert_eq!(class, ErrorClass::PostconditionFailed);
    assert_eq!(message, "A postcondition of the tool `rate` does not hold: `output.score <= arguments.most`.");
    let (_, message) = check(json!({"post": "p"}), None, Some(json!({}))).await.unwrap_err();
    assert!(message.contains("`output.score <= arguments.most`, which has no value: "), "{message}");
}
