//! What a check of a server shows.

use belay_model::{
    Answer, Api, Arguments, Call, Check, End, Failure, Found, Message, Model, ModelCheck, Question, Refusal,
    ServedModel, ToolCalls, Usage, Verdict,
};
use serde_json::{Value, json};

use crate::support::model;

fn answer(text: &str, call: Option<(&str, Value)>, input: Option<u64>) -> Answer {
    let call = call.map(|(name, arguments)| Call {
        name: name.to_owned(),
        arguments: Arguments::Object(arguments),
        server_id: String::new(),
    });
    Answer {
        text: text.to_owned(),
        reasoning: String::new(),
        calls: call.into_iter().collect(),
        end: End::Complete,
        usage: input.map(|input| Usage { input, output: 5, ..Usage::default() }),
        model: String::new(),
    }
}

fn good_call() -> Answer {
    answer("", Some(("report_number", json!({"number": 7}))), Some(150))
}

fn listed(window: Option<u64>) -> Found {
    Found::List(Ok(vec![ServedModel { id: "qwen3:8b".to_owned(), window }]))
}

fn called(answer: Answer) -> Found {
    Found::Answer(Question::Call, Ok((answer, 9, 600)))
}

/// Of the sample, the server counts a token for four bytes.
fn sampled() -> Found {
    Found::Answer(Question::Sample, Ok((answer("1", None, Some(8_000)), 2, 32_000)))
}

fn refused(refusal: Refusal, status: u16) -> Failure {
    Failure::Refused { refusal, status, message: "no".to_owned(), retry_after: None }
}

fn one(model: &Model, founds: &[Found], name: &str) -> Check {
    let mut check = ModelCheck::new(founds.iter().any(|found| matches!(found, Found::Answer(Question::Window, _))));
    let all: Vec<Check> = founds.iter().flat_map(|found| check.take(model, found)).collect();
    let found: Vec<&Check> = all.iter().filter(|check| check.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {all:?}");
    found[0].clone()
}

#[test]
fn a_good_server_passes_everything() {
    let model = model(Api::Chat);
    let mut check = ModelCheck::new(true);
    let length = |check: &ModelCheck, question: Question| match check.prompt(&model, question).messages.remove(0) {
        Message::User(text) => text.len(),
        other => panic!("{other:?}"),
    };
    assert!(length(&check, Question::Sample) < 33_000, "a quarter of the window");
    let mut checks = Vec::new();
    let schema = answer("{\"number\":7}\n", None, Some(90));
    for (question, found) in [
        (Question::List, listed(Some(32_768))),
        (Question::Call, called(good_call())),
        (Question::Schema, Found::Answer(Question::Schema, Ok((schema, 2, 400)))),
        (Question::Sample, sampled()),
        (Question::Window, Found::Answer(Question::Window, Ok((answer("1", None, Some(24_000)), 2, 96_000)))),
    ] {
        assert_eq!(check.next(), Some(question));
        if question == Question::Window {
            // Four bytes are a token: four fifths of what is not for the answer.
            let expected = (32_768 - 2048) * 4 / 5 * 4;
            assert!(length(&check, question).abs_diff(expected) < 200, "{}", length(&check, question));
        }
        checks.extend(check.take(&model, &found));
    }
    assert_eq!(check.next(), None);
    let names: Vec<_> = checks.iter().map(|check| check.name).collect();
    assert_eq!(names, ["server", "model", "streams", "tool_calls", "usage", "schema", "window"]);
    assert!(checks.iter().all(|check| check.verdict == Verdict::Passed && check.advice.is_empty()), "{checks:#?}");
    assert_eq!(check.usage(), Usage { input: 32_240, output: 20, ..Usage::default() });
}

#[test]
fn what_makes_every_answer_fail_ends_the_check() {
    let model = model(Api::Chat);
    for (failure, advice) in [
        (Failure::Unreachable { why: "refused".to_owned() }, "start the server, or correct `models.coder.base_url`"),
        (refused(Refusal::Credential, 401), "add the server's key to `credentials`"),
    ] {
        let mut check = ModelCheck::new(false);
        let [found] = &check.take(&model, &Found::List(Err(failure.clone())))[..] else { panic!("{failure}") };
        assert_eq!((found.verdict, check.next()), (Verdict::Failed, None));
        assert!(found.advice.contains(advice), "{}", found.advice);
    }
    // Some servers list no models, or not for every key: that is no fault.
    let mut check = ModelCheck::new(false);
    for failure in [refused(Refusal::NotFound, 404), refused(Refusal::Credential, 403)] {
        check = ModelCheck::new(false);
        check.take(&model, &Found::List(Err(failure)));
        assert_eq!(check.next(), Some(Question::Call));
    }
    let found = check.take(&model, &Found::Answer(Question::Call, Err(refused(Refusal::NotFound, 404))));
    assert!(found[0].advice.contains("correct `models.coder.model` (qwen3:8b)"), "{}", found[0].advice);
    assert_eq!(check.next(), None);
}

#[test]
fn each_weakness_is_named_with_what_to_do() {
    let native = model(Api::Chat);
    let constrained = Model { tool_calls: ToolCalls::Constrained, ..model(Api::Chat) };
    let invalid = refused(Refusal::Invalid, 400);
    let with = |call: Answer| [listed(None), called(call)];
    let of = |model: &Model, call: Answer| one(model, &with(call), "tool_calls");

    let text = of(&native, answer("7", None, None));
    assert_eq!((text.verdict, text.advice.as_str()), (Verdict::Failed, "try `models.coder.tool_calls: constrained`"));
    assert!(of(&constrained, answer("", None, None)).advice.contains("another model"));
    assert!(of(&native, answer("", Some(("shell", json!({}))), None)).seen.contains("called `shell`"));
    assert_eq!(
        of(&native, answer("", Some(("report_number", json!({"number": "7"}))), None)).verdict,
        Verdict::Warning
    );
    let failed = one(&native, &[listed(None), Found::Answer(Question::Call, Err(invalid.clone()))], "tool_calls");
    assert!(failed.advice.contains("constrained"), "{}", failed.advice);

    assert_eq!(one(&native, &with(answer("", None, None)), "usage").verdict, Verdict::Warning);
    let whole = one(&native, &[Found::Answer(Question::Call, Ok((good_call(), 1, 600)))], "streams");
    assert_eq!(whole.verdict, Verdict::Warning);
    let other = Found::List(Ok(vec![ServedModel { id: "llama3".to_owned(), window: None }]));
    assert!(one(&native, &[other], "model").seen.contains("is not among those that it lists: llama3"));

    let schema = |model: &Model, found| one(model, &[Found::Answer(Question::Schema, found)], "schema").verdict;
    assert_eq!(schema(&native, Ok((answer("seven", None, None), 2, 9))), Verdict::Warning);
    assert_eq!(schema(&constrained, Ok((answer("{\"number\":\"7\"}", None, None), 2, 9))), Verdict::Failed);
    assert_eq!(schema(&constrained, Ok((answer("{\"number\":70}", None, None), 2, 9))), Verdict::Passed);
    assert_eq!(schema(&native, Err(invalid)), Verdict::Warning);
}

#[test]
fn a_window_that_is_smaller_than_the_settings_say_is_noticed() {
    let model = model(Api::Chat);
    let window = |list: Option<u64>, filled: Option<Result<(Answer, u64, usize), Failure>>| {
        let filled = filled.map(|filled| Found::Answer(Question::Window, filled));
        let founds: Vec<_> = [listed(list), called(good_call()), sampled()].into_iter().chain(filled).collect();
        one(&model, &founds, "window")
    };
    let told = window(Some(4096), None);
    assert!(told.advice.contains("`models.coder.window: 4096`") && told.verdict == Verdict::Failed, "{told:?}");
    assert_eq!(window(None, None).verdict, Verdict::Skipped);
    // What the server tells is known before anything is tried.
    let mut check = ModelCheck::new(true);
    check.take(&model, &listed(Some(30_000)));
    let found = check.take(&model, &called(good_call()));
    assert!(found.iter().any(|check| check.name == "window" && check.verdict == Verdict::Failed), "{found:?}");
    check.take(&model, &Found::Answer(Question::Schema, Err(Failure::Cut)));
    assert_eq!(check.next(), None);
    // Four fifths of 8,192, cut to half of that window: 4,915 tokens to 4,096.
    let half = one(
        &Model { window: 8192, ..model.clone() },
        &[
            called(good_call()),
            sampled(),
            Found::Answer(Question::Window, Ok((answer("1", None, Some(4096)), 2, 19_660))),
        ],
        "window",
    );
    assert_eq!(half.verdict, Verdict::Failed, "{half:?}");
    // Ollama: a quarter of a token for each byte before, and 4,096 tokens of 96,000 bytes now.
    let cut = window(None, Some(Ok((answer("1", None, Some(4096)), 2, 96_000))));
    assert!(cut.seen.contains("has cut a prompt of about 24000 tokens to 4096"), "{cut:?}");
    let long = window(None, Some(Err(refused(Refusal::TooLong, 400))));
    assert!(long.seen.contains("too long") && long.verdict == Verdict::Failed, "{long:?}");
    assert_eq!(window(None, Some(Ok((answer("1", None, None), 2, 96_000)))).verdict, Verdict::Skipped);
    // A sample that says nothing ends it.
    let mut check = ModelCheck::new(true);
    for found in [listed(None), called(good_call())] {
        check.take(&model, &found);
    }
    check.take(&model, &Found::Answer(Question::Schema, Err(Failure::Cut)));
    let failed = check.take(&model, &Found::Answer(Question::Sample, Err(refused(Refusal::TooLong, 400))));
    assert_eq!((failed[0].name, failed[0].verdict, check.next()), ("window", Verdict::Failed, None));
}

// llama.cpp's server answers with its only model, whatever it is called.
#[test]
fn the_window_of_the_only_model_counts() {
    let only = Found::List(Ok(vec![ServedModel { id: "/models/gemma.gguf".to_owned(), window: Some(4096) }]));
    assert!(one(&model(Api::Chat), &[only, called(good_call())], "window").seen.contains("takes 4096 tokens"));
}
