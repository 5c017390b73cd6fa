//! Describes a step's call as one would type or say it: `git log --oneline -3`, `search "^## " in README.md`.

use std::borrow::Cow;

use belay_proto::v1::{
    Execution, Payload, Step, StepSpec, ToolStep, WaitStep, calls_step, step, step_spec, wait_step::Condition,
    waiting_reason,
};
use serde_json::Value;

use super::{
    text::{clean, shorten},
    time,
};

/// The longest of it, in characters.
const MAX_CHARS: usize = 200;

/// The step's call in words.
pub(crate) fn of_step(step: &StepSpec) -> String {
    match &step.kind {
        Some(step_spec::Kind::Tool(call)) => of_tool(&call.tool, arguments(call)),
        Some(step_spec::Kind::Wait(wait)) => match &wait.condition {
            Some(Condition::Duration(duration)) => format!("wait {}", time::short(time::duration(duration))),
            Some(Condition::UntilTime(until)) => format!("wait until {}", time::date_and_time(until)),
            Some(Condition::Signal(signal)) => format!("wait for the signal {}", shorten(&clean(signal), MAX_CHARS)),
            Some(Condition::Form(form)) if form.title.is_empty() => "ask a person".to_owned(),
            Some(Condition::Form(form)) => format!("ask {}", shorten(&clean(&form.title), MAX_CHARS)),
            None => "wait".to_owned(),
        },
        Some(step_spec::Kind::Calls(listed)) => {
            let calls: Vec<String> = listed.calls.iter().map(|call| of_tool(&call.tool, arguments(call))).collect();
            shorten(&calls.join(" + "), MAX_CHARS)
        }
        Some(step_spec::Kind::Agent(agent)) => {
            let task = agent.task.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
            shorten(&format!("{}: {}", clean(&agent.model), clean(task)), MAX_CHARS)
        }
        Some(step_spec::Kind::Plan(step)) => {
            let id = step.plan.as_ref().map(|plan| clean(&plan.id)).unwrap_or_default();
            format!("carry out the plan {}", shorten(&id, MAX_CHARS))
        }
        None => String::new(),
    }
}

/// The same of the call that a step makes now: its own, or that of its fallbacks which has taken its place. Where several of them are calls of that tool, its
/// name alone: the step does not say which one it is.
pub(crate) fn of_step_now(planned: &StepSpec, step: &Step) -> String {
    let (Some(step_spec::Kind::Tool(own)), Some(step::Detail::Tool(now))) = (&planned.kind, &step.detail) else {
        return of_step(planned);
    };
    let mut calls = std::iter::once(own).chain(&planned.fallback).filter(|call| call.tool == now.tool);
    match (calls.next(), calls.next()) {
        // The first attempt is of its own call.
        _ if step.attempt <= 1 => of_step(planned),
        (Some(call), None) => of_tool(&call.tool, arguments(call)),
        (Some(_), Some(_)) => kind_of(step),
        (None, _) => of_step(planned),
    }
}

/// The tool that commits what the calls of a step have changed.
pub(crate) const COMMIT: &str = "commit_changes";

/// The tool that drops what of them conflicts with what others have changed.
pub(crate) const REBASE: &str = "rebase_changes";

/// The tool as which a turn of a model is recorded.
pub(crate) const ASK: &str = "ask_model";

/// The tool with which a model ends its step.
pub(crate) const COMPLETE: &str = "complete_step";

/// The tool that reads the files that a model is shown.
const READ: &str = "read_file";

/// The tool that finds the files that a pattern matches.
const FIND: &str = "find_files";

/// The tool of one of the calls that a step makes side by side, or of the one that commits what they have changed, and the call in words; `None` for a step
/// of another kind.
pub(crate) fn of_several(step: &StepSpec, index: usize) -> Option<(String, String)> {
    let Some(step_spec::Kind::Calls(several)) = &step.kind else { return None };
    let has_one_effect = several.effects() == calls_step::Effects::PerStep;
    match several.calls.get(index) {
        Some(call) => Some((call.tool.clone(), of_tool(&call.tool, arguments(call)))),
        None => has_one_effect.then(|| (COMMIT.to_owned(), "commit what the calls have changed".to_owned())),
    }
}

/// The tool of an entry of a step with a goal, and what it does in words; `None` for a step of another kind. `value`: the entry, as JSON, where it was asked
/// for; `entry`: its step.
pub(crate) fn of_agent(step: &StepSpec, value: Option<&Payload>, entry: Option<&Step>) -> Option<(String, String)> {
    let Some(step_spec::Kind::Agent(agent)) = &step.kind else { return None };
    let item: Value =
        value.and_then(Payload::as_json).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let file_of = |field: &str| {
        let place = usize::try_from(item[field].as_u64()?).ok()?;
        Some(agent.files.get(place).map(|file| clean(file)).unwrap_or_default())
    };
    if let Some(path) = file_of("file") {
        return Some((READ.to_owned(), format!("read {path}")));
    }
    if let Some(pattern) = file_of("listing") {
        return Some(match item["found"].as_u64() {
            Some(place) => (READ.to_owned(), format!("read file {} of {pattern}", place.saturating_add(1))),
            None => (FIND.to_owned(), format!("find {pattern}")),
        });
    }
    let known = entry.and_then(|entry| match &entry.detail {
        Some(step::Detail::Tool(detail)) => Some(detail.tool.as_str()),
        _ => None,
    });
    let known = known.filter(|tool| !tool.is_empty() && *tool != ASK);
    Some(match (&item["turn"], item["tool"].as_str().or(known)) {
        (_, Some(COMPLETE)) => (COMPLETE.to_owned(), "complete the step".to_owned()),
        (_, Some(COMMIT)) => (COMMIT.to_owned(), "commit what the calls have changed".to_owned()),
        (_, Some(REBASE)) => (REBASE.to_owned(), "drop what conflicts with the changes of others".to_owned()),
        (_, Some(tool)) => (tool.to_owned(), clean(tool)),
        (Value::Null, None) => (ASK.to_owned(), format!("ask {}", clean(&agent.model))),
        (turn, None) => {
            let place = item["model"].as_u64().and_then(|place| usize::try_from(place).ok()?.checked_sub(1));
            let model = place.and_then(|place| agent.fallback.get(place)).unwrap_or(&agent.model);
            (ASK.to_owned(), format!("turn {turn} of {}", clean(model)))
        }
    })
}

/// The kind of a step in a word or two: the tool it calls, or that it waits.
pub(crate) fn kind_of(step: &Step) -> String {
    match &step.detail {
        Some(step::Detail::Tool(detail)) => detail.tool.clone(),
        Some(step::Detail::Wait(_)) => "wait".to_owned(),
        Some(step::Detail::Calls(_)) => "calls".to_owned(),
        Some(step::Detail::Plan(_)) => "plan".to_owned(),
        Some(step::Detail::Agent(_)) => "agent".to_owned(),
        None => String::new(),
    }
}

/// The execution that carries out a step's plan, by name; `None` before it has begun, and for other steps.
pub(crate) fn child_of(step: &Step) -> Option<&str> {
    match &step.detail {
        Some(step::Detail::Plan(child)) => Some(child.execution.as_str()).filter(|name| !name.is_empty()),
        Some(step::Detail::Tool(_) | step::Detail::Calls(_) | step::Detail::Agent(_) | step::Detail::Wait(_))
        | None => None,
    }
}

/// The executions that an execution waits for, by name, in the plan's order.
pub(crate) fn awaited_children(execution: &Execution) -> impl Iterator<Item = &str> {
    let waits = |step: &&Step| step.waiting.as_ref().is_some_and(|wait| wait.kind() == waiting_reason::Kind::Child);
    execution.steps.iter().filter(waits).filter_map(child_of)
}

/// The arguments of a step's call as JSON text; empty where it has none inline.
fn arguments(call: &ToolStep) -> &str {
    call.arguments.as_ref().and_then(Payload::as_json).unwrap_or_default()
}

/// The steps that a step waits for: those it names as dependencies, then those whose results its templates name. `is_step` says what is the
/// id of a step of the plan.
pub(crate) fn dependencies(step: &StepSpec, is_step: impl Fn(&str) -> bool) -> Vec<String> {
    let own = match &step.kind {
        Some(step_spec::Kind::Tool(call)) => std::slice::from_ref(call),
        Some(step_spec::Kind::Calls(listed)) => &listed.calls,
        Some(step_spec::Kind::Agent(_) | step_spec::Kind::Wait(_) | step_spec::Kind::Plan(_)) | None => &[],
    };
    let inputs = match &step.kind {
        Some(step_spec::Kind::Plan(plan)) => plan.inputs.as_ref().and_then(Payload::as_json).unwrap_or_default(),
        _ => "",
    };
    let list = step.for_each.as_ref().and_then(Payload::as_json).unwrap_or_default();
    let calls = own.iter().chain(&step.fallback).map(templates).chain([list.into(), inputs.into()]);
    let form = match &step.kind {
        Some(step_spec::Kind::Wait(WaitStep { condition: Some(Condition::Form(form)) })) => Some(form),
        _ => None,
    };
    let task = match &step.kind {
        Some(step_spec::Kind::Agent(agent)) => agent.task.as_str(),
        _ => "",
    };
    let (title, description) = form.map_or((task, ""), |form| (&form.title, &form.description));
    let mut ids = step.depends_on.clone();
    let until = step.repeat.as_ref().map_or("", |repeat| &repeat.until);
    let plain = [step.condition.as_str(), until, title, description].map(|text| (text, "[\"", '"'));
    let calls: Vec<Cow<'_, str>> = calls.collect();
    for (text, open, close) in calls.iter().map(|text| (&**text, r#"[\""#, '\\')).chain(plain) {
        for (place, _) in text.match_indices("${") {
            // `$${` stands for the characters themselves.
            // The arguments are JSON, so the quotes of `${["a.b"].result}` are escaped.
            let after = &text[place + 2..];
            let id = match after.strip_prefix(open) {
                Some(quoted) => quoted.split(close).next(),
                None => after.split(['.', '}']).next(),
            };
            let id = id.unwrap_or_default();
            // A step that repeats, or is checked or undone, reads its own result.
            let is_other = id != step.id && !ids.iter().any(|known| known == id);
            if !text[..place].ends_with('$') && is_step(id) && is_other {
                ids.push(id.to_owned());
            }
        }
    }
    ids
}

/// A call's arguments as JSON text, without those in which `${` is text.
fn templates(call: &ToolStep) -> Cow<'_, str> {
    let text = arguments(call);
    match serde_json::from_str(text) {
        Ok(Value::Object(mut members)) if !call.verbatim.is_empty() => {
            members.retain(|name, _| !call.verbatim.contains(name));
            Value::Object(members).to_string().into()
        }
        _ => text.into(),
    }
}

/// A call in words, by its tool and its arguments as JSON text.
pub(crate) fn of_tool(tool: &str, arguments: &str) -> String {
    let parsed: Value = serde_json::from_str(arguments).unwrap_or_default();
    let text = |name: &str| parsed[name].as_str().map(str::to_owned);
    let said = match tool {
        "run_terminal" => command(&parsed["command"]),
        "code_exec" => text("code")
            .map(|code| format!("{} {}", text("language").unwrap_or_else(|| "python".to_owned()), quoted(&code))),
        "find_files" => text("pattern").map(|pattern| match text("path") {
            Some(place) => format!("find {pattern} in {place}"),
            None => format!("find {pattern}"),
        }),
        "search_code" => text("pattern").map(|pattern| match text("path").or(text("glob")) {
            Some(place) => format!("search {} in {place}", quoted(&pattern)),
            None => format!("search {}", quoted(&pattern)),
        }),
        "write_file" => text("path").map(|path| format!("write {path}")),
        "modify_file" => text("path").map(|path| format!("edit {path}")),
        "delete_file" => text("path").map(|path| format!("delete {path}")),
        "file_info" => text("path").map(|path| format!("look at {path}")),
        "read_file" => text("path").map(|path| format!("read {path}")),
        "http_request" => {
            text("url").map(|url| format!("{} {url}", text("method").unwrap_or_else(|| "GET".to_owned())))
        }
        "fetch_url" => text("url").map(|url| format!("fetch {url}")),
        "research" => text("query").map(|query| format!("research {}", quoted(&query))),
        "list_directory" => Some(format!("list {}", text("path").unwrap_or_else(|| ".".to_owned()))),
        _ => None,
    };
    let whole = said.unwrap_or_else(|| match arguments {
        "" | "{}" => tool.to_owned(),
        _ => format!("{tool} {arguments}"),
    });
    shorten(&clean(&whole), MAX_CHARS)
}

fn command(words: &Value) -> Option<String> {
    let words: Vec<String> = words.as_array()?.iter().map(|word| word.as_str().map(shell)).collect::<Option<_>>()?;
    Some(words.join(" "))
}

/// A word as a shell would need it.
fn shell(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-${}~^*".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use belay_proto::v1::Form;

    use super::*;

    /// Two calls of one tool are not told apart by its name.
    #[test]
    fn a_step_shows_the_call_that_it_makes_now() {
        let call = |tool: &str, task: &str| ToolStep {
            tool: tool.to_owned(),
            arguments: Some(Payload::of_json(format!(r#"{{"task":"{task}"}}"#))),
            ..Default::default()
        };
        let planned = StepSpec {
            kind: Some(step_spec::Kind::Tool(call("a", "own"))),
            fallback: vec![call("b", "second"), call("c", "third"), call("c", "fourth"), call("a", "last")],
            ..Default::default()
        };
        let now = |attempt: i32, tool: &str| {
            let detail = Some(step::Detail::Tool(belay_proto::v1::ToolStepDetail { tool: tool.to_owned() }));
            of_step_now(&planned, &Step { attempt, detail, ..Default::default() })
        };
        assert_eq!(now(0, "a"), r#"a {"task":"own"}"#);
        assert_eq!(now(1, "a"), r#"a {"task":"own"}"#);
        assert_eq!(now(2, "b"), r#"b {"task":"second"}"#);
        assert_eq!((now(3, "c").as_str(), now(5, "a").as_str()), ("c", "a"));
    }

    #[test]
    fn a_step_waits_for_what_it_names_in_whichever_way() {
        let step = |id: &str, after: &[&str], arguments: &str| StepSpec {
            id: id.to_owned(),
            depends_on: after.iter().map(|id| (*id).to_owned()).collect(),
            kind: Some(step_spec::Kind::Tool(ToolStep {
                arguments: Some(Payload::of_json(arguments)),
                ..Default::default()
            })),
            ..Default::default()
        };
        let is_step = |id: &str| matches!(id, "a" | "ab" | "d");
        let named = step("c", &["ab"], r#"{"x":"${a.result.n} ${ab.result} $${d.x} ${nobody.x} ${"}"#);
        assert_eq!(dependencies(&named, is_step), ["ab", "a"]);
        assert!(dependencies(&step("a", &[], ""), is_step).is_empty());
        let condition = r#"${a.result.ok} && ${["d"].state} == "failed""#.to_owned();
        assert_eq!(dependencies(&StepSpec { condition, ..step("c", &["ab"], "{}") }, is_step), ["ab", "a", "d"]);
        let asks = Form {
            title: "${a.result}?".to_owned(),
            description: r#"${["d"].state}"#.to_owned(),
            ..Default::default()
        };
        let wait = step_spec::Kind::Wait(WaitStep { condition: Some(Condition::Form(asks)) });
        assert_eq!(dependencies(&StepSpec { kind: Some(wait), ..Default::default() }, is_step), ["a", "d"]);
        let mut verbatim = step("c", &[], r#"{"script":"${a.x}","x":"${d.result}"}"#);
        if let Some(step_spec::Kind::Tool(call)) = &mut verbatim.kind {
            call.verbatim = vec!["script".to_owned()];
        }
        assert_eq!(dependencies(&verbatim, is_step), ["d"]);
    }

    #[test]
    fn a_call_reads_as_one_would_type_it() {
        let cases = [
            (
                "run_terminal",
                r#"{"command":["git","log","--oneline","it's"],"cwd":"x"}"#,
                r"git log --oneline 'it'\''s'",
            ),
            ("run_terminal", r#"{"command":["sh","-c","a; b"]}"#, "sh -c 'a; b'"),
            ("run_terminal", r#"{"command":"${a.b}"}"#, r#"run_terminal {"command":"${a.b}"}"#),
            ("search_code", r###"{"pattern":"^## ","path":"README.md"}"###, r###"search "^## " in README.md"###),
            ("write_file", r#"{"path":"a\u001b[2Jb","content":"x"}"#, "write a<U+001B>[2Jb"),
            ("list_directory", "{}", "list ."),
            ("find_files", r#"{"pattern":"**/*.rs"}"#, "find **/*.rs"),
            ("find_files", r#"{"pattern":"*.rs","path":"src"}"#, "find *.rs in src"),
            ("http_request", r#"{"url":"https://a.example/b"}"#, "GET https://a.example/b"),
            ("http_request", r#"{"url":"https://a.example/b","method":"POST","json":1}"#, "POST https://a.example/b"),
            ("fetch_url", r#"{"url":"https://a.example/b"}"#, "fetch https://a.example/b"),
            ("research", r#"{"query":"lost calls","depth":"deep"}"#, r#"research "lost calls""#),
            ("noop", "{}", "noop"),
            ("other", "no json", "other no json"),
        ];
        for (tool, arguments, words) in cases {
            assert_eq!(of_tool(tool, arguments), words);
        }
        assert!(of_tool("noop", &"x".repeat(9_999)).chars().count() <= MAX_CHARS);
    }
}
