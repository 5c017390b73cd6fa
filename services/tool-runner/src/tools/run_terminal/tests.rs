//! Tests without a sandbox; the rest is in `tests/tools`, whose `main` can become the launcher.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use belay_proto::v1::TraceContext;
use belay_sandbox::{LaunchError, Launcher, Layer, LayerReport, LayerState, Report, RunningCommand, Spec, Tier};
use serde_json::json;

use super::*;
use crate::tools::tests::TestWorkspace;

/// Records specs and starts nothing.
#[derive(Default)]
struct Recorder(Mutex<Vec<Spec>>);

impl Launcher for Recorder {
    fn launch(&self, spec: Spec) -> Result<RunningCommand, LaunchError> {
        let searched = "/nowhere".to_owned();
        let program = spec.program.clone();
        self.0.lock().unwrap().push(spec);
        Err(LaunchError::ProgramNotFound { program, searched })
    }
}

fn recorder() -> (RunTerminal, Arc<Recorder>) {
    let layers = vec![LayerReport { layer: Layer::Landlock, state: LayerState::Active }];
    let recorder = Arc::new(Recorder::default());
    let enforcement =
        Enforcement::new(&Report { layers, tier: Tier::Full }, vec![], Arc::clone(&recorder) as Arc<dyn Launcher>);
    (RunTerminal::new(&enforcement), recorder)
}

#[tokio::test]
async fn the_spec_reflects_the_call() {
    let workspace = TestWorkspace::with(&[("src/a", "")]);
    let (tool, recorder) = recorder();
    let arguments = json!({"command": ["make", "all; $x"], "cwd": "./src", "env": {"CI": "1"}, "timeout_ms": 1500});
    let mut invocation = Invocation::for_test(arguments, Some(workspace.view()));
    invocation.trace = TraceContext { traceparent: "00-1-2-01".into(), tracestate: String::new() };
    let refused = tool.call(invocation).await.unwrap_err();
    assert_eq!(refused.reason, "PROGRAM_NOT_FOUND");
    assert!(refused.message.contains("`make`") && refused.message.contains("/nowhere"), "{}", refused.message);

    let spec = recorder.0.lock().unwrap().remove(0);
    assert_eq!((spec.program.as_str(), &*spec.args, spec.cwd.to_str()), ("make", &["all; $x".into()][..], Some("src")));
    let env: Vec<_> = spec.env.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(env, [("TRACEPARENT", "00-1-2-01"), ("CI", "1")]);
    assert_eq!(spec.timeout, Some(Duration::from_millis(1500)));
    // The operator sets the limits.
    assert!(spec.limits.is_none());
    assert_eq!(spec.workspace.hidden, [PathBuf::from(".belay")]);
    assert_eq!(tool.enforced(), ["landlock"]);
}

#[tokio::test]
async fn a_time_limit_can_only_become_shorter() {
    let workspace = TestWorkspace::with(&[]);
    let (tool, recorder) = recorder();
    let arguments = json!({"command": ["make"], "timeout_ms": 86_400_000});
    let _ = workspace.call(&tool, arguments).await;
    assert_eq!(recorder.0.lock().unwrap()[0].timeout, Some(Duration::from_secs(60)));
}

/// S2-X-08, S2-FR-042.
#[tokio::test]
async fn no_command_starts_outside_the_workspace() {
    let workspace = TestWorkspace::with(&[]);
    let (tool, recorder) = recorder();
    for cwd in ["/etc", "..", r"C:\Windows", ".belay"] {
        let refused = workspace.call(&tool, json!({"command": ["ls"], "cwd": cwd})).await.unwrap_err();
        assert!(refused.reason == "OUTSIDE_WORKSPACE" && refused.message.contains("outside workspace"), "{refused:?}");
    }
    assert!(recorder.0.lock().unwrap().is_empty());
}

/// S2-NFR-011: without its sandbox no command runs, and the failure says why.
#[tokio::test]
async fn without_a_sandbox_it_refuses_every_call() {
    let workspace = TestWorkspace::with(&[]);
    let tool = RunTerminal::new(&Enforcement::unavailable("the layer `landlock` is missing"));
    let refused = workspace.call(&tool, json!({"command": ["true"]})).await.unwrap_err();
    assert_eq!(
        (refused.class.as_str_name(), refused.reason.as_str()),
        ("ERROR_CLASS_SANDBOX_VIOLATION", "SANDBOX_UNAVAILABLE")
    );
    assert!(refused.message.contains("`landlock`"), "{}", refused.message);
    assert!(tool.enforced().is_empty());
}

#[tokio::test]
async fn a_call_that_was_stopped_early_starts_nothing() {
    let workspace = TestWorkspace::with(&[]);
    let (tool, recorder) = recorder();
    let view = workspace.view();
    // The view is in use, so the command has to wait for it.
    let (entered, has_entered) = std::sync::mpsc::channel();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let busy = view.clone();
    let busy = tokio::spawn(async move {
        busy.work(move |_| {
            entered.send(()).unwrap();
            held.recv().unwrap();
        })
        .await
    });
    tokio::task::spawn_blocking(move || has_entered.recv().unwrap()).await.unwrap();
    let mut call = tool.call(Invocation::for_test(json!({"command": ["true"]}), Some(view.clone())));
    assert!(futures::poll!(&mut call).is_pending());
    drop(call);
    let_go.send(()).unwrap();
    busy.await.unwrap().unwrap();
    assert!(view.take().await.is_some());
    assert!(recorder.0.lock().unwrap().is_empty());
}
