//! A real server, if one is named: it streams, calls a tool by a schema, and counts.
//!
//! `BELAY_TEST_MODEL_URL=http://127.0.0.1:8080/v1 BELAY_TEST_MODEL=NAME cargo test -p belay-model-http --test real`; CONTRIBUTING.md has one that comes from a package.

use std::{env, process::ExitCode};

use belay_model::{Api, BaseUrl, Check, Found, Model, ModelCheck, Question, TimeLimits, ToolCalls, Verdict};
use belay_model_http::{Route, Server};

const URL: &str = "BELAY_TEST_MODEL_URL";

fn main() -> ExitCode {
    let names = ["a_real_server_passes_its_check"];
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{}: test", names[0]);
        return ExitCode::SUCCESS;
    }
    println!("\nrunning 1 test");
    let Ok(url) = env::var(URL) else {
        println!("test {} ... ignored, {URL} names no server", names[0]);
        println!("\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        return ExitCode::SUCCESS;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let checks = runtime.block_on(check(&url));
    let failed = checks.iter().any(|check| check.verdict == Verdict::Failed);
    println!("test {} ... {}", names[0], if failed { "FAILED" } else { "ok" });
    for check in &checks {
        println!("     {:?} {}: {} {}", check.verdict, check.name, check.seen, check.advice);
    }
    let (outcome, passed, number) = if failed { ("FAILED", 0, 1) } else { ("ok", 1, 0) };
    if failed {
        println!("\nfailures:\n    {}", names[0]);
    }
    println!("\ntest result: {outcome}. {passed} passed; {number} failed; 0 ignored; 0 measured; 0 filtered out");
    ExitCode::from(u8::from(failed))
}

async fn check(url: &str) -> Vec<Check> {
    let model = Model {
        name: "real".to_owned(),
        api: Api::Chat,
        base_url: BaseUrl::parse(url).unwrap_or_else(|problem| panic!("{URL} {problem}")),
        model: env::var("BELAY_TEST_MODEL").unwrap_or_else(|_| "default".to_owned()),
        window: env::var("BELAY_TEST_MODEL_WINDOW").ok().and_then(|text| text.parse().ok()).unwrap_or(4096),
        max_output: 512,
        tool_calls: ToolCalls::Constrained,
        price: None,
        limits: TimeLimits::DEFAULT,
        credential: None,
    };
    let server = Server::new(model.clone(), &Route::default()).expect("a server that can be asked");
    let (mut so_far, mut checks) = (ModelCheck::new(true), Vec::new());
    while let Some(question) = so_far.next() {
        let found = match question {
            Question::List => Found::List(server.list(None, 0).await),
            question => {
                let asked = server.ask(&so_far.prompt(&model, question), None, 0).await;
                Found::Answer(question, asked.map(|asked| (asked.answer, asked.parts, asked.request_bytes)))
            }
        };
        checks.extend(so_far.take(&model, &found));
    }
    checks
}
